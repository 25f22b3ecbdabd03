"""The builds of Coder that a test is run with."""

import pytest

from coder_k8s.dev.coder_build import AGPL, LATEST

VERSIONS = [pytest.param(version, marks=pytest.mark.coder(version)) for version in (LATEST, AGPL)]
"""What Coder ships, and the AGPL build of an older version."""
MOSTLY_LATEST = [
    pytest.param(LATEST, marks=pytest.mark.coder(LATEST)),
    pytest.param(AGPL, marks=[pytest.mark.coder(AGPL), pytest.mark.campaign]),
]
"""The same; the older version only in the campaign, because `tests/dev/coderd_server` compares what both respond."""
