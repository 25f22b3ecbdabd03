"""A control plane whose pods are simulated, so that its image can be updated."""

from typing import Any

from coder_k8s.api.updates import UpdateStatus
from coder_k8s.kube.kinds import DEPLOYMENT, JOB
from coder_k8s.kube.objects import Manifest
from tests.support import objects
from tests.support.controlplanes import PlaneNamespace, env
from tests.support.operators import Operator
from tests.support.simulated_pods import SimulatedPods

ROUNDS = 60


class UpdateSite:
    """A namespace, its control plane and its pods."""

    def __init__(self, demo: PlaneNamespace, pods: SimulatedPods) -> None:
        self.demo = demo
        self.pods = pods

    async def deploy(self, operator: Operator, **spec: Any) -> None:
        """Create a control plane, and wait until it is ready."""
        defaults: dict[str, Any] = {"image": "coder:v1", "replicas": 2, "extraEnv": env(self.pods.database.url)}
        await self.demo.make(**(defaults | spec))
        await self.settle(operator)
        assert (await self.demo.conditions())["Ready"] == ("True", "AllReady")

    async def settle(self, operator: Operator) -> None:
        """Let operator and pods work until nothing changes any more."""
        before = ""
        for _ in range(ROUNDS):
            await operator.reconcile()
            moved = await self.pods.sync()
            version = (await self.demo.get()).metadata.resource_version
            if not moved and version == before and operator.idle:
                return
            before = version
        raise AssertionError(await self.demo.get())

    async def update(self) -> UpdateStatus:
        found = (await self.demo.get()).status.update
        assert found is not None
        return found

    async def deployment(self) -> Manifest:
        spec: Manifest = (await self.demo.client.get(DEPLOYMENT, self.demo.key)).manifest["spec"]
        return spec

    async def jobs(self) -> list[str]:
        found = await objects.list_all(self.demo.client, JOB, self.demo.namespace)
        return [each.metadata.name for each in found]
