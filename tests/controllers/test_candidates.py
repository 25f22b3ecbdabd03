"""Who could run a job, and why each candidate cannot."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CoderProvisioner
from coder_k8s.coderd.types import Organization, ProvisionerDaemon
from coder_k8s.controllers.candidates import Candidate, Obstacle, candidates, nearest, rejection, shown
from coder_k8s.controllers.tags import NOBODY, UNTAGGED, key_tags

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DEFAULT = Organization("org-1", "coder", "Coder", is_default=True)
OTHER = Organization("org-2", "research", "Research", is_default=False)


def provisioner(name: str, tags: dict[str, str], status: dict[str, Any] | None = None, **spec: Any) -> CoderProvisioner:
    manifest = {
        "metadata": {"name": name, "namespace": "coder"},
        "spec": {"controlPlaneRef": {"name": "demo"}, "tags": tags, **spec},
        "status": status or {},
    }
    return msgspec.convert(manifest, CoderProvisioner)


def daemon(name: str, key: str, tags: dict[str, str], status: str = "idle", key_name: str = "") -> ProvisionerDaemon:
    return ProvisionerDaemon(
        name, name, key, NOW, "v2.36.1", "1.18", key_tags(tags), NOW, status, key_name or None, None
    )


STALLED = {"type": "Stalled", "status": "True", "reason": "NotEntitled", "message": ""}
KEY = {"provisionerKeyID": "key-1", "organizationID": "org-1"}


@pytest.mark.parametrize(
    ("made", "obstacle"),
    [
        (provisioner("gpu", {"env": "gpu"}), None),
        (provisioner("gpu", {"env": "gpu"}, replicas=0), Obstacle.SCALED_TO_ZERO),
        (
            provisioner("gpu", {"env": "gpu"}, {"conditions": [STALLED | {"lastTransitionTime": NOW.isoformat()}]}),
            Obstacle.STALLED,
        ),
    ],
)
def test_a_provisioner(made: CoderProvisioner, obstacle: Obstacle | None) -> None:
    expected = Candidate("CoderProvisioner gpu", {"env": "gpu", **UNTAGGED}, obstacle, managed=True)
    assert candidates(DEFAULT, [made], []) == [expected]


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("default", {}, [True, False]),
        ("coder", {}, [True, False]),
        ("CODER", {}, [True, False]),
        ("research", {}, [False, True]),
        ("renamed", {"organizationID": "org-2"}, [False, True]),
        ("absent", {}, [False, False]),
    ],
)
def test_organization_of_a_provisioner(name: str, status: dict[str, Any], expected: list[bool]) -> None:
    made = provisioner("gpu", {}, status, organizationName=name)
    assert [bool(candidates(each, [made], [])) for each in (DEFAULT, OTHER)] == expected


def test_daemons_of_a_provisioner_count_as_the_provisioner() -> None:
    zero = provisioner("gpu", {"env": "gpu"}, KEY, replicas=0)
    live, gone = daemon("gpu-1", "key-1", {"env": "gpu"}, "busy"), daemon("gpu-2", "key-1", {"env": "gpu"}, "offline")
    assert candidates(DEFAULT, [zero], [gone])[0].obstacle is Obstacle.SCALED_TO_ZERO
    [found] = candidates(DEFAULT, [zero], [gone, live])
    assert (found.name, found.obstacle) == ("CoderProvisioner gpu", None)


def test_daemons_with_the_tags_of_the_last_key() -> None:
    """They run jobs with these tags until they are replaced."""
    changed = provisioner("gpu", {"env": "gpu"}, KEY)
    old, gone = daemon("gpu-1", "key-1", {"env": "cpu"}, key_name="gpu"), daemon("gpu-2", "key-1", {}, "offline")
    found = candidates(DEFAULT, [changed], [old, gone])
    assert [(each.name, shown(each.tags)) for each in found] == [
        ("CoderProvisioner gpu", "env=gpu"),
        ("provisioner key gpu", "env=cpu"),
    ]


def test_other_daemons() -> None:
    seen = [
        daemon("vm-0", "built-in", {}, key_name="built-in"),
        daemon("vm-1", "built-in", {}, "offline", key_name="built-in"),
        daemon("x-1", "other", {"env": "x"}, "offline", key_name="x"),
        daemon("nameless", "other", {}, "busy"),
        daemon("deleted", "other", {}, "offline"),
    ]
    assert [(each.name, each.obstacle) for each in candidates(DEFAULT, [], seen)] == [
        ("daemon deleted", Obstacle.OFFLINE),
        ("daemon nameless", None),
        ("provisioner key x", Obstacle.OFFLINE),
        ("the built-in provisioner", None),
    ]


def candidate(obstacle: Obstacle | None = None, /, **tags: str) -> Candidate:
    return Candidate("CoderProvisioner build", {**key_tags(tags)}, obstacle, managed=True)


USER = {"scope": "user", "owner": "11111111-1111-4111-8111-111111111111"}


@pytest.mark.parametrize(
    ("found", "job", "text"),
    [
        (candidate(env="gpu"), {"env": "gpu", **UNTAGGED}, ""),
        (candidate(), UNTAGGED, ""),
        (candidate(Obstacle.SCALED_TO_ZERO, env="gpu"), {"env": "gpu", **UNTAGGED}, "is scaled to zero"),
        (candidate(Obstacle.OFFLINE, env="cpu"), {"env": "gpu", **UNTAGGED}, "has env=cpu instead of env=gpu"),
        (candidate(), {"env": "gpu", **UNTAGGED}, "lacks env=gpu"),
        (
            candidate(env="GPU"),
            {"env": "gpu", **UNTAGGED},
            "has env=GPU instead of env=gpu (tags are case-sensitive)",
        ),
        (
            candidate(Env="gpu"),
            {"env": "gpu", **UNTAGGED},
            "has Env=gpu instead of env=gpu (tags are case-sensitive)",
        ),
        (
            candidate(env="cpu", dc="a"),
            {"env": "gpu", "dc": "a", "zone": "b", **UNTAGGED},
            "has env=cpu instead of env=gpu and lacks zone=b",
        ),
        (
            candidate(env="gpu"),
            UNTAGGED,
            "has the tags env=gpu, and a job without tags needs a provisioner without tags",
        ),
        (candidate(), USER, "cannot run jobs with scope=user of this owner"),
        (candidate(scope="user"), {"env": "gpu", **UNTAGGED}, "runs only jobs of its owner (scope=user)"),
        (candidate(scope="user"), {"scope": "user", "owner": NOBODY}, ""),
    ],
)
def test_why_a_candidate_cannot_run_a_job(found: Candidate, job: dict[str, str], text: str) -> None:
    assert rejection(found, job) == text


def test_the_nearest_candidate() -> None:
    job = {"env": "gpu", "dc": "a", **UNTAGGED}
    far = Candidate("CoderProvisioner far", key_tags({"x": "y"}), managed=True)
    near = Candidate("provisioner key near", key_tags({"env": "gpu", "dc": "b"}))
    own = Candidate("CoderProvisioner own", key_tags({"env": "cpu", "dc": "a"}), managed=True)
    users = Candidate("daemon of a user", {"env": "gpu", "dc": "a", **USER})
    assert nearest([], job) is None
    assert nearest([far, users], job) is far
    assert nearest([far, near, users], job) is near
    assert nearest([far, near, own, users], job) is own


def test_many_and_long_tags_are_shortened() -> None:
    tags = {f"tag-{number:02}": "x" * 1000 for number in range(50)}
    assert shown(tags).endswith(" and 42 more")
    assert len(shown(tags)) < 700
    assert len(rejection(candidate(), {**tags, **UNTAGGED})) < 900
