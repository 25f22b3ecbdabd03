"""Pull policies are the defaults of Kubernetes."""

import pytest

from coder_k8s.controllers.images import pull_policy


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("ghcr.io/coder/coder:latest", "Always"),
        ("ghcr.io/coder/coder", "Always"),
        ("coder", "Always"),
        ("localhost:5000/coder", "Always"),
        ("localhost:5000/coder:v2.30.0", "IfNotPresent"),
        ("ghcr.io/coder/coder:v2.30.0", "IfNotPresent"),
        ("coder@sha256:0123", "IfNotPresent"),
        ("coder:v2@sha256:0123", "IfNotPresent"),
        ("coder:latest@sha256:0123", "Always"),
    ],
)
def test_pull_policy(image: str, expected: str) -> None:
    assert pull_policy(image) == expected
