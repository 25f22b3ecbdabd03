"""What `coder-k8s update --dry-run` prints."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from coder_k8s.api import CoderControlPlane
from coder_k8s.console.updates import plan
from coder_k8s.controllers.controlplane.updates.observations import Schema, Verdict

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def plane(**spec: Any) -> CoderControlPlane:
    manifest = {
        "metadata": {"name": "coder", "namespace": "coder"},
        "spec": {"image": "coder:v2", "replicas": 2, **spec},
        "status": {"image": "coder:v1", "version": "v2.30.0"},
    }
    return msgspec.convert(manifest, CoderControlPlane)


def test_new_schema() -> None:
    lines, starts = plan(plane(), Verdict("v2.36.1", Schema.OLDER), "", NOW)
    assert starts
    assert lines[0] == "Preflight: version v2.36.1, now v2.30.0"
    assert [line.partition(":")[0] for line in lines] == [
        *("Preflight", "Window", "Backup", "Drain", "Stop", "Migrate", "Verify", "ScaleBack", "Fleet")
    ]


def test_same_schema() -> None:
    windows = [{"schedule": "0 22 * * 6", "duration": "4h"}]
    lines, starts = plan(plane(update={"windows": windows}), Verdict("v2.30.1", Schema.SAME), "", NOW)
    assert starts
    assert lines[1:] == [
        "Window: opens on 2026-03-07 at 22:00 UTC",
        "Rollout: same database schema, so pods are replaced one after another",
    ]


def test_refusals() -> None:
    [line], starts = plan(plane(), Verdict("v2.20.0", Schema.NEWER), "", NOW)
    assert not starts
    assert line.startswith("Refused (DowngradeRefused): The database has a newer schema than image coder:v2")
    [line], starts = plan(plane(), None, "pod x: ImagePullBackOff", NOW)
    assert not starts
    assert line == "Refused (ImageUnreadable): Image coder:v2 cannot be checked: pod x: ImagePullBackOff"
