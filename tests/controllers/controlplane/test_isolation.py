"""Tokens and licenses of one control plane are not visible in another."""

from pathlib import Path
from uuid import uuid4

from coder_k8s.coderd.connections import Endpoint
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import make_license
from tests.support.controlplanes import PlaneNamespace, env, plane_namespace
from tests.support.databases import CoderdDatabase


async def test_operator_tokens_and_licenses(
    cluster: ClusterAccess, demo: PlaneNamespace, database: CoderdDatabase, operator_kubeconfig: Path
) -> None:
    """One control plane has a generated token, another one gets two given tokens in a row."""
    async with plane_namespace(
        cluster.kubeconfig, operator_kubeconfig, demo.namespace, name="neighbour", clock=demo.clock
    ) as neighbour:
        places = (demo, neighbour)
        licenses = [make_license(place.clock(), jti=str(uuid4())) for place in places]
        given = [neighbour.coderd.state.token, neighbour.coderd.state.add_token(neighbour.coderd.state.owner)]
        for number, token in enumerate(given):
            await neighbour.put_secret(f"given-{number}", token=token)
        routes = {
            Endpoint(f"{place.key.name}.{place.key.namespace}.svc.cluster.local", 80): Endpoint(
                "127.0.0.1", place.coderd.port
            )
            for place in places
        }
        async with demo.operator(connect_to=routes) as operator:
            await demo.make(extraEnv=env(database.url), licenseSecretRef={"name": "license-0"})
            access = {"tokenSecretRef": {"name": "given-0"}}
            await neighbour.make(operatorAccess=access, licenseSecretRef={"name": "license-1"})
            for number, place in enumerate(places):
                await place.put_secret(f"license-{number}", license=licenses[number])
                await place.roll_out()
                await place.condition("LicenseApplied", "Applied", "True")
            await neighbour.change(operatorAccess={"tokenSecretRef": {"name": "given-1"}})
            await neighbour.condition("OperatorAccessReady", "TokenReady", "True")
            await operator.later(minutes=10)
            for place in places:
                await place.condition("Ready", "AllReady", "True")
        made = await demo.token()
    assert (demo.coderd.state.presented, neighbour.coderd.state.presented) == ({made}, set(given))
    assert [[each.jwt for each in place.coderd.state.licenses] for place in places] == [[each] for each in licenses]
