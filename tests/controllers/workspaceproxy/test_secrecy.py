"""Tokens are only in their Secrets, not in logs, events, conditions or other objects."""

import logging

import pytest

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.coderd.connections import Limits
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET, SERVICE
from tests.support.workspaceproxies import CREDENTIALS, NAME, SECRET_NAME, ProxyNamespace


async def test_tokens_stay_in_their_secrets(place: ProxyNamespace, caplog: pytest.LogCaptureFixture) -> None:
    """Through a lifecycle with errors: lost tokens, error responses that contain the request, an unavailable coderd."""
    caplog.set_level(logging.DEBUG)
    secrets, texts = {place.coderd.state.token}, []
    async with place.operator(limits=Limits(total=0.5)) as operator:
        await place.make()
        await place.ready(operator)
        secrets.add(place.proxies[NAME].token)
        await place.put_secret(SECRET_NAME, token="lost")
        await place.note("WorkspaceProxyTokenRegenerated")
        await place.ready(operator)
        secrets.add(token := place.proxies[NAME].token)
        failures = ({"failing": True}, {"cut": True}, {"latency": 3}, {"rate_limited": True}, {"database_down": True})
        for failure in failures:
            place.coderd.state.set(**failure)
            await operator.later(minutes=3)
            texts.append(repr((await place.get()).status))
            place.coderd.state.set(**dict.fromkeys(failure, 0))
        place.coderd.state.set_proxy(NAME, "unhealthy", errors=[f"the proxy said {token}"])
        await operator.later(minutes=3)
        assert "the proxy said" in (await place.condition("ProxyHealthy", "ProxyUnhealthy")).message
        texts.append(repr((await place.get()).status))
        place.coderd.state.revoke_token(place.coderd.state.token)
        await operator.later(minutes=3)
        await place.condition("Registered", "CredentialsRejected")
        texts.append(repr((await place.get()).status))
        for kind, name in ((DEPLOYMENT, f"wsproxy-{NAME}"), (SERVICE, f"wsproxy-{NAME}")):
            texts.append(str((await place.find(kind, name)).manifest))
        texts.append(str((await place.find(SECRET, SECRET_NAME)).manifest["metadata"]))
        texts.append(operator.metrics())
        await place.delete(SECRET, CREDENTIALS)
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.note("WorkspaceProxyNotDeregistered")
        await operator.later(minutes=5)
        await place.gone(WORKSPACE_PROXY, NAME)
        await place.note("WorkspaceProxyLeaked")
        texts.append(str(await place.events()))
    own = [record for record in caplog.records if not record.name.startswith("aiohttp")]
    texts += [record.getMessage() + str(record.__dict__) for record in own]
    everything = "\n".join(texts)
    assert NAME in everything
    for secret in secrets:
        for part in (secret, secret.partition(":")[2] or secret.partition("-")[2]):
            assert part not in everything
