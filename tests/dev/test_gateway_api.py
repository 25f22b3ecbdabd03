"""The CRDs of the Gateway API, downloaded with Go."""

import pytest

from coder_k8s.dev import gateway_api
from tests.support.manifests import parse_all


def test_definitions_are_those_of_the_pinned_release() -> None:
    found = [manifest for manifest in parse_all(gateway_api.manifests()) if manifest]
    crds = {manifest["spec"]["names"]["kind"]: manifest for manifest in found if "names" in manifest["spec"]}
    assert set(crds) == {"Gateway", "GatewayClass", "HTTPRoute"}
    annotations = crds["HTTPRoute"]["metadata"]["annotations"]
    assert annotations["gateway.networking.k8s.io/bundle-version"] == gateway_api.VERSION
    assert annotations["gateway.networking.k8s.io/channel"] == "standard"


def test_the_error_without_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(gateway_api.GatewayAPIMissing, match="put go on PATH"):
        gateway_api.manifests()


def test_the_error_of_go_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("GOMODCACHE", str(tmp_path_factory.mktemp("modules")))
    monkeypatch.setenv("GOPROXY", "off")
    with pytest.raises(gateway_api.GatewayAPIMissing, match="GOPROXY=off"):
        gateway_api.manifests()
