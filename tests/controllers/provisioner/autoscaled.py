"""An autoscaled provisioner with pods and jobs."""

from datetime import datetime
from typing import Any

from coder_k8s.kube.kinds import POD, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Unstructured, timestamp
from tests.support import eventually
from tests.support.operators import Operator
from tests.support.provisioners import NAME, ProvisionerNamespace


class AutoscaledSite:
    """One provisioner, whose pods the test creates and removes as a ReplicaSet would."""

    def __init__(self, place: ProvisionerNamespace, operator: Operator, name: str = NAME) -> None:
        self.place = place
        self.operator = operator
        self.name = name
        self.state = place.plane.coderd.state

    async def make(self, replicas: int = 1, pods: int | None = None, **autoscaling: Any) -> None:
        """Create the provisioner and its pods, and wait until it is Ready."""
        await self.place.make(self.name, replicas=replicas, autoscaling={"maxReplicas": 10, **autoscaling})
        await self.place.condition("ProvisionerKeyReady", "KeyReady", "True", name=self.name)
        await self.operator.wait_idle()
        await self.add_pods(replicas if pods is None else pods)
        await self.reconcile()

    async def add_pods(self, number: int, *, ready: bool = True) -> None:
        """Add pods with connected daemons until there are so many."""
        for index in range(number):
            name = f"{self.name}-{index}"
            if await self.place.find(POD, name) is None:
                await self.add_pod(name, self.place.clock() if ready else None)
        await self.place.roll_out(number if ready else 0, f"provisioner-{self.name}")

    async def add_pod(self, name: str, ready_since: datetime | None) -> None:
        place = self.place
        if await place.find(SERVICE_ACCOUNT, "default") is None:
            await place.client.create(SERVICE_ACCOUNT, {"metadata": {"namespace": place.namespace, "name": "default"}})
        template = (await place.deployment(f"provisioner-{self.name}")).manifest["spec"]["template"]["metadata"]
        metadata = {"namespace": place.namespace, "name": name, **template}
        spec = {"containers": [{"name": "provisioner", "image": "coder"}], "automountServiceAccountToken": False}
        await place.client.create(POD, {"metadata": metadata, "spec": spec})
        cache = self.operator.informers[POD]
        if ready_since is None:
            await eventually(lambda: cache.get(place.key_of(name)))
            return
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(ready_since)}
        await place.client.merge(POD, place.key_of(name), {"status": {"conditions": [condition]}}, "status")
        key = (await place.get(self.name)).status.provisioner_key_name
        self.state.connect_daemon(name, key)
        await eventually(lambda: (live := cache.get(place.key_of(name))) and "conditions" in live.manifest["status"])

    async def remove_pods(self, *names: str) -> None:
        """Remove pods as a ReplicaSet would, and their daemons."""
        for name in names:
            await self.place.client.delete(POD, await self.pod(name), unchanged=False, grace_seconds=0)
            self.state.disconnect_daemon(self.daemon(name))
        cache, keys = self.operator.informers[POD], [self.place.key_of(name) for name in names]
        await eventually(lambda: all(cache.get(key) is None for key in keys))

    def daemon(self, name: str) -> str:
        return next(each.id for each in self.state.daemons.values() if each.name == name)

    def add_jobs(self, number: int = 1, **fields: Any) -> list[str]:
        return [self.state.queue.add_job(**fields) for _ in range(number)]

    def run_job(self, name: str) -> str:
        """Let the daemon of a pod take the next job, or a new one."""
        if job := self.state.acquire_job(self.daemon(name)):
            return job
        self.add_jobs()
        return self.state.acquire_job(self.daemon(name))

    async def pod(self, name: str) -> Unstructured:
        return await self.place.client.get(POD, self.place.key_of(name))

    async def reconcile(self) -> None:
        await self.operator.reconcile(self.place.key_of(self.name))

    async def later(self, **spans: float) -> None:
        """Advance the clock, then reconcile."""
        await self.operator.wait_idle()
        self.place.clock.advance(**spans)
        await self.place.set_plane_status(self.place.plane.name, **self.place.fresh("entitled"))
        await self.reconcile()

    async def replicas(self) -> int:
        deployment = await self.place.deployment(f"provisioner-{self.name}")
        replicas: int = deployment.manifest["spec"]["replicas"]
        return replicas

    async def condition(self, type_: str) -> tuple[str, str]:
        return (await self.place.conditions(self.name))[type_]

    async def annotations(self, name: str) -> dict[str, str]:
        """The annotations of a pod, without the checksum of its key."""
        found = (await self.pod(name)).metadata.annotations
        return {key: value for key, value in found.items() if not key.startswith("checksum/")}
