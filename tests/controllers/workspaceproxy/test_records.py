"""The records of registered proxies in the status."""

from typing import Any

import msgspec
import pytest

from coder_k8s.api import CoderWorkspaceProxy
from coder_k8s.controllers.workspaceproxy.records import is_for_wanted_coderd

HERE, THERE = "https://here.example.com", "https://there.example.com"
GIVEN = {"bootstrap": {"coderURL": HERE, "credentialsSecretRef": {"name": "token"}}}
REFERENCE = {"controlPlaneRef": {"name": "demo"}}


def retiring(proxy_id: str, url: str) -> dict[str, Any]:
    return {"proxyID": proxy_id, "proxyName": "sydney", "coderURL": url}


@pytest.mark.parametrize("token", ["a:secret", "garbage"])
@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        pytest.param(GIVEN, {"proxyID": "a", "coderURL": HERE}, True, id="at the coderd of the spec"),
        pytest.param(GIVEN, {"proxyID": "a", "registered": True}, True, id="without a coderd"),
        pytest.param(GIVEN, {"proxyID": "a", "coderURL": THERE}, False, id="at another coderd"),
        pytest.param(GIVEN, {}, True, id="no record"),
        pytest.param(GIVEN, {"proxyName": "sydney", "coderURL": THERE}, False, id="a name at another coderd"),
        pytest.param(GIVEN, {"retiringProxies": [retiring("a", THERE)]}, False, id="retires at another coderd"),
        pytest.param(GIVEN, {"proxyName": "s", "coderURL": HERE}, True, id="a name at the coderd of the spec"),
        pytest.param(
            GIVEN,
            {"proxyName": "s", "coderURL": HERE, "retiringProxies": [retiring("a", THERE)]},
            False,
            id="retires at another coderd, begun at that of the spec",
        ),
        pytest.param(
            REFERENCE, {"proxyID": "a", "coderURL": HERE, "controlPlaneRefName": "demo"}, True, id="at the plane"
        ),
        pytest.param(
            REFERENCE, {"proxyID": "a", "coderURL": HERE, "controlPlaneRefName": "old"}, False, id="at another plane"
        ),
        pytest.param(REFERENCE, {"proxyID": "a", "coderURL": HERE}, False, id="was given credentials"),
    ],
)
def test_token_is_for_one_coderd(spec: dict[str, Any], status: dict[str, Any], token: str, expected: bool) -> None:
    made = msgspec.convert({"metadata": {"name": "sydney"}, "spec": spec, "status": status}, CoderWorkspaceProxy)
    assert is_for_wanted_coderd(made, token) is expected


def test_token_of_the_new_coderd_while_the_old_proxy_retires() -> None:
    status = {"proxyID": "b", "coderURL": HERE, "retiringProxies": [retiring("a", THERE)]}
    made = msgspec.convert({"metadata": {"name": "sydney"}, "spec": GIVEN, "status": status}, CoderWorkspaceProxy)
    assert is_for_wanted_coderd(made, "b:secret")
    assert not is_for_wanted_coderd(made, "a:secret")
