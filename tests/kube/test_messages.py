"""Texts of errors without the parts that differ in each attempt."""

import pytest

from coder_k8s.kube.messages import stable, without_times

ID = "3f0c1b2a" * 8


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "fetch object: read tcp 127.0.0.1:44536->127.0.0.1:25432: read: connection reset by peer",
            "fetch object: read tcp 127.0.0.1:25432: read: connection reset by peer",
        ),
        ("write tcp [::1]:44536->[fd00::2]:5432: broken pipe", "write tcp [fd00::2]:5432: broken pipe"),
        (
            "lookup db on 10.0.0.10:53: read udp 10.1.0.7:50123->10.0.0.10:53: i/o timeout",
            "lookup db on 10.0.0.10:53: read udp 10.0.0.10:53: i/o timeout",
        ),
        ("dial tcp 10.0.0.9:5432: connect: connection refused", "dial tcp 10.0.0.9:5432: connect: connection refused"),
        (f'failed to generate container "{ID}" spec', 'failed to generate container "[id]" spec'),
        (f"image coder@sha256:{ID} is not there", f"image coder@sha256:{ID} is not there"),
        ("back-off 2m40s restarting failed container=coder", "back-off restarting failed container=coder"),
        ("panic at 0xc0000a4018 in main", "panic at [address] in main"),
        ("expires at 2026-01-02T03:04:05Z, key a -> b", "expires at 2026-01-02T03:04:05Z, key a -> b"),
    ],
)
def test_what_differs_in_each_attempt_is_removed(text: str, left: str) -> None:
    assert stable(text) == left
    assert stable(left) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("2026-01-02T03:04:05.123456Z error: no database", "error: no database"),
        ("[2026-01-02 03:04:05,123] error: no database", "error: no database"),
        ("2026/01/02 03:04:05 error at 10:00", "error at 10:00"),
        ("2026-01-02 03:04:05.100 +0100 error", "error"),
        ("the date 2026-01-02 stays, version 2026-01-02T03:04:05:06 too", None),
    ],
)
def test_the_times_of_a_log_are_removed(text: str, left: str | None) -> None:
    assert without_times(text) == (text if left is None else left)
