from pathlib import Path

import aiohttp

from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.coderd_server.saved import StateFile


async def post(server: CoderdServer, path: str, **body: object) -> None:
    headers = {"Coder-Session-Token": server.state.token}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{server.url}{path}", json=body) as answer,
    ):
        assert answer.status in (200, 201), await answer.text()


async def test_keys_and_tokens_are_valid_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    async with CoderdServer(state_file=StateFile(path)) as first:
        await post(first, "/_control/install_license")
        await post(first, "/api/v2/organizations/default/provisionerkeys", name="gpu", tags={"hardware": "gpu"})
        await post(first, "/api/v2/workspaceproxies", name="sydney", display_name="Sydney", icon="/icon.svg")
        async with CoderdServer(state_file=StateFile(path)) as second:
            old, new = first.state, second.state
            assert (new.keys, new.proxies, new.licenses) == (old.keys, old.proxies, old.licenses)
            assert (new.deployment_id, new.organization_id) == (old.deployment_id, old.organization_id)
            assert new.queue.job(new.queue.add_job()).organization == old.organization_id, "jobs have the restored ID"
            template = new.templates.templates[new.templates.add_template("plain")]
            assert template.organization == old.organization_id
            [key] = new.keys.values()
            assert new.log_in("pod", key.secret)
            assert not new.log_in("pod", "another secret")
    assert path.stat().st_mode & 0o777 == 0o600
