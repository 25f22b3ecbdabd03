"""The client decodes every recorded response of coderd, and every recorded error has a type for its caller."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.coderd import types
from coder_k8s.coderd.caller import checked, decode
from coder_k8s.coderd.connections import Response
from coder_k8s.coderd.errors import CoderdError, Unavailable
from coder_k8s.coderd.health import HealthReport, HealthSettings
from tests.dev import coderd_server

RECORDINGS = Path(coderd_server.__path__[0]) / "recordings"
ORGANIZATION = r"/api/v2/organizations/[^/]+"
KINDS: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/api/v2/buildinfo", types.BuildInfo),
    ("GET", "/api/v2/users/me", types.User),
    ("GET", "/api/v2/entitlements", types.Entitlements),
    ("GET", "/api/v2/licenses", list[types.License]),
    ("POST", "/api/v2/licenses", types.License),
    ("GET", "/api/v2/debug/health", HealthReport),
    ("GET", "/api/v2/debug/health/settings", HealthSettings),
    ("GET", "/api/v2/organizations", list[types.Organization]),
    ("GET|PATCH", ORGANIZATION, types.Organization),
    ("POST", "/api/v2/organizations", types.Organization),
    ("GET", f"{ORGANIZATION}/provisionerkeys", list[types.ProvisionerKey]),
    ("POST", f"{ORGANIZATION}/provisionerkeys", types.CreatedKey),
    ("GET", r"/api/v2/provisionerkeys/[^/]*", types.ProvisionerKey),
    ("GET", f"{ORGANIZATION}/provisionerdaemons", list[types.ProvisionerDaemon]),
    ("GET", f"{ORGANIZATION}/provisionerjobs", list[types.ProvisionerJob]),
    ("GET", "/api/v2/workspaceproxies", types.Regions),
    ("POST", "/api/v2/workspaceproxies", types.ProxyRegistration),
    ("PATCH", r"/api/v2/workspaceproxies/[^/]+", types.ProxyRegistration),
    ("GET", r"/api/v2/workspaceproxies/[^/]+", types.WorkspaceProxy),
    ("GET", "/api/v2/templates", list[types.Template]),
    ("GET", f"{ORGANIZATION}/templates/[^/]+", types.Template),
    ("POST", f"{ORGANIZATION}/templates", types.Template),
    ("PATCH", r"/api/v2/templates/[^/]+", types.Template),
    ("GET", r"/api/v2/templateversions/[^/]+", types.TemplateVersion),
    ("POST", f"{ORGANIZATION}/templateversions", types.TemplateVersion),
)
"""What the responses of the routes are; other responses have no content that the operator reads."""
UNREAD = ("/daemons", "/files", "/logs", "/versions", "/cancel", "/refresh-entitlements")


def exchanges() -> list[Any]:
    found = []
    for file in sorted(RECORDINGS.rglob("*.json")):
        for entry in json.loads(file.read_text()):
            steps = [step for step in entry.get("steps", [entry]) if step.get("path", "").startswith("/api/")]
            found += [(file.stem, step) for step in steps]
    return [pytest.param(step, id=f"{stem}-{index}-{step['from']}") for index, (stem, step) in enumerate(found)]


@pytest.mark.parametrize("step", exchanges())
def test_the_response_has_a_type(step: dict[str, Any]) -> None:
    path = step["path"].partition("?")[0]
    text = step["answer"] if isinstance(step["answer"], str) else json.dumps(step["answer"])
    body = b"" if step["answer"] is None else text.encode()
    response = Response(step["status"], step.get("answer_headers", {}), body)
    if step["status"] >= 400:
        with pytest.raises(CoderdError) as caught:
            checked(path, response, ())
        known = step["status"] not in (401, 405, 428, 429, 500)
        assert not (known and type(caught.value) is Unavailable), caught.value
        return
    kinds = [
        kind for method, route, kind in KINDS if re.fullmatch(method, step["method"]) and re.fullmatch(route, path)
    ]
    if step["method"] == "DELETE" or path.endswith(UNREAD):
        kinds = kinds or [object]
    [kind] = kinds
    if body or kind is not object:
        decode(kind, path, checked(path, response, ()) or b"null")
