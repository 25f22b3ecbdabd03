"""Operator access by the token of `operatorAccess.tokenSecretRef`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import User
from coder_k8s.kube.kinds import SECRET
from tests.support import eventually
from tests.support.controlplanes import PlaneNamespace, plane_namespace


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[PlaneNamespace]:
    async with plane_namespace(cluster.kubeconfig, operator_kubeconfig, namespace) as place:
        yield place


async def test_a_given_token_is_checked_and_used(demo: PlaneNamespace) -> None:
    await demo.put_secret("given", token=f" {demo.coderd.state.token}\n")
    async with demo.operator() as operator:
        await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.condition("OperatorAccessReady", "Pending", "Unknown")
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        reference = (await demo.get()).status.operator_token_secret_ref
        assert reference is not None
        assert (reference.name, reference.key) == ("given", "token")
        assert await demo.find(SECRET, "demo-operator-token") is None
        checks = demo.coderd.state.count("GET", "/api/v2/users/me")
        assert checks == 1
        await operator.reconcile()
        assert demo.coderd.state.count("GET", "/api/v2/users/me") == 1


async def test_a_given_token_that_coderd_rejects_stalls(demo: PlaneNamespace) -> None:
    await demo.put_secret("given", token="AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB")
    async with demo.operator():
        await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.roll_out()
        condition = await demo.condition("OperatorAccessReady", "TokenRejected", "False")
        error = "API key is invalid"
        assert condition.message == f"Coder rejects the token in Secret given: {error}; store a new token in key token"
        await demo.condition("Stalled", "TokenRejected", "True")
        await demo.put_secret("given", token=demo.coderd.state.token)
        await demo.condition("Ready", "AllReady", "True")


async def test_a_given_token_of_a_suspended_user_is_rejected(demo: PlaneNamespace) -> None:
    token = demo.coderd.state.add_token(User("former", ("owner",), status="suspended"))
    await demo.put_secret("given", token=token)
    async with demo.operator():
        await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.roll_out()
        await demo.condition("OperatorAccessReady", "TokenRejected", "False")


@pytest.mark.parametrize("content", [None, {}, {"other": "x"}, {"token": " \n"}])
async def test_a_given_token_waits_for_its_secret(demo: PlaneNamespace, content: dict[str, str] | None) -> None:
    if content is not None:
        await demo.put_secret("given", **content)
    async with demo.operator():
        await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.roll_out()
        condition = await demo.condition("OperatorAccessReady", "SecretUnavailable", "False")
        missing = (
            "does not exist; create it with key token" if content is None else "has no value for key token; set it"
        )
        assert condition.message == f"Secret given {missing}"
        await demo.condition("Stalled", "SecretUnavailable", "True")
        await demo.put_secret("given", token=demo.coderd.state.token)
        await demo.condition("Ready", "AllReady", "True")


async def test_a_given_token_is_rotated(demo: PlaneNamespace) -> None:
    first = demo.coderd.state.token
    await demo.put_secret("given", token=first)
    async with demo.operator() as operator:
        await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        demo.coderd.state.revoke_token(first)
        await operator.later(seconds=121)
        await operator.reconcile()
        await demo.condition("OperatorAccessReady", "TokenRejected", "False")
        await demo.put_secret("given", token=demo.coderd.state.add_token(demo.coderd.state.owner))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")


async def test_a_given_token_is_pending_while_coderd_fails(demo: PlaneNamespace) -> None:
    await demo.put_secret("given", token=demo.coderd.state.token)
    demo.coderd.state.set(failing=True)
    async with demo.operator() as operator:
        await demo.make(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.roll_out()

        async def tried() -> bool:
            return "could not be checked" in (await demo.condition("OperatorAccessReady", "Pending", "Unknown")).message

        await eventually(tried)
        demo.coderd.state.set(failing=False)
        await operator.later(seconds=31)
        await demo.condition("Ready", "AllReady", "True")
