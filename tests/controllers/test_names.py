"""Derived names never change: a new release must find the objects of an old one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.controllers.names import NAME_LIMIT, derived, fnv1a32, hashed

LONG = "a-provisioner-with-a-name-that-is-long-enough-to-be-cut-short-by-all-limits"
NAMES = st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,250}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", "811c9dc5"), (b"a", "e40c292c"), (b"foobar", "bf9cf968")],
)
def test_hash_is_fnv1a_as_published(data: bytes, expected: str) -> None:
    assert fnv1a32(data) == expected


@pytest.mark.parametrize(
    ("namespace", "name", "expected"),
    [
        ("golden", "full", "d072c051"),
        ("golden", "minimal", "21f8477f"),
        ("golden", "prov", "47bb11c3"),
        ("golden", "tls", "980ffbad"),
        ("golden", "tls443", "9c41f70a"),
    ],
)
def test_hash_of_a_control_plane_is_in_the_names_of_roles_that_exist(namespace: str, name: str, expected: str) -> None:
    assert hashed(namespace, name) == expected


def test_boundaries_of_hashed_strings_count() -> None:
    assert hashed("ab", "c") != hashed("a", "bc")


@pytest.mark.parametrize(
    ("name", "prefix", "suffix", "expected"),
    [
        ("coder", "", "", "coder"),
        ("coder", "provisioner-", "", "provisioner-coder"),
        ("coder", "", "-operator-token", "coder-operator-token"),
        ("x" * 63, "", "", "x" * 63),
        (LONG, "provisioner-", "", "provisioner-a-provisioner-with-a-name-that-is-long-eno-be886d0e"),
        (LONG, "", "-provisioner", "a-provisioner-with-a-name-that-is-long-eno-be886d0e-provisioner"),
        (LONG, "", "", "a-provisioner-with-a-name-that-is-long-enough-to-be-cu-be886d0e"),
        ("a" * 53 + "-" * 10 + "b", "", "", "a" * 53 + "--" + hashed("a" * 53 + "-" * 10 + "b")),
        ("a" * 41 + "-" + "b" * 40, "provisioner-", "", f"provisioner-{'a' * 41}--{hashed('a' * 41 + '-' + 'b' * 40)}"),
        ("a" * 41 + "." + "b" * 40, "", "-provisioner", f"{'a' * 41}.-{hashed('a' * 41 + '.' + 'b' * 40)}-provisioner"),
    ],
)
def test_derived(name: str, prefix: str, suffix: str, expected: str) -> None:
    assert derived(name, prefix=prefix, suffix=suffix) == expected


@given(NAMES, st.sampled_from(["", "provisioner-", "wsproxy-"]), st.sampled_from(["", "-operator-token"]))
def test_derived_names_fit_and_stay_names(name: str, prefix: str, suffix: str) -> None:
    made = derived(name, prefix=prefix, suffix=suffix)
    assert len(made) <= 63
    assert made.startswith(prefix)
    assert made.endswith(suffix)
    assert re.fullmatch(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", made)


@given(NAMES, NAMES)
def test_different_names_stay_different(one: str, other: str) -> None:
    assert (derived(one) == derived(other)) == (one == other)


@pytest.mark.parametrize(
    ("length", "expected"),
    [(237, "a" * 237 + "-provisioner-key"), (238, f"{'a' * 228}-{hashed('a' * 238)}-provisioner-key")],
)
def test_secrets_may_have_long_names(length: int, expected: str) -> None:
    made = derived("a" * length, suffix="-provisioner-key", limit=NAME_LIMIT)
    assert made == expected
    assert len(made) == 253
