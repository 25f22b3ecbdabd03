"""Runs one pod, from its start to its deletion."""

import asyncio
import logging
import shutil
from contextlib import suppress
from pathlib import Path

from coder_k8s.kube import errors
from coder_k8s.kube.events import EventReason
from coder_k8s.kube.kinds import POD
from coder_k8s.kube.objects import Manifest, Unstructured, newer

from .container import Container, PodFacts
from .host import Host
from .status import PodState, init_policy, pod_status
from .unsupported import unsupported

log = logging.getLogger(__name__)

RETRY = 1.0
"""Seconds until a rejected write of the status is tried again."""
MINIMUM_GRACE = 1.0
UNSUPPORTED = EventReason("Unsupported", "Warning")


def folder_name(pod: Unstructured) -> str:
    """Return the name of the folder of a pod, as in `/var/log/pods`."""
    return f"{pod.metadata.namespace}_{pod.metadata.name}_{pod.metadata.uid}"


class Worker:
    """Runs the containers of a pod and writes its status."""

    def __init__(self, host: Host, pod: Unstructured, address: str) -> None:
        self.pod = pod
        self.address = address
        self._host = host
        self._changed = asyncio.Event()
        self._deleted = asyncio.Event()
        self._written: Manifest = {}
        self._writing = asyncio.Lock()
        manifest = pod.manifest
        spec = manifest["spec"]
        facts = PodFacts(pod, manifest, address, host.folder / folder_name(pod))
        policy = spec.get("restartPolicy", "Always")

        def containers(field: str, policy: str) -> dict[str, Container]:
            return {
                each["name"]: Container(host, facts, each, policy, self._changed.set) for each in spec.get(field, [])
            }

        self.folder: Path = facts.folder
        self.init = containers("initContainers", init_policy(policy))
        self.containers = containers("containers", policy)
        self._state = PodState(
            {name: each.state for name, each in self.init.items()},
            {name: each.state for name, each in self.containers.items()},
            address,
            host.address,
            host.now(),
        )
        self._continue_restarts(manifest.get("status", {}))

    def update(self, pod: Unstructured) -> None:
        """Follow a change of the pod."""
        if newer(pod.metadata.resource_version, self.pod.metadata.resource_version):
            self.pod = pod
        if pod.deleting:
            self._deleted.set()

    async def run(self) -> None:
        """Run the pod, and return when it is deleted. Cancellation kills its processes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if ignored := unsupported(self.pod.manifest):
            self._host.record(self.pod, UNSUPPORTED, f"This node ignores: {', '.join(ignored)}")
        self.update(self.pod)
        running = asyncio.create_task(self._run_containers())
        running.add_done_callback(self._log_error)
        writing = asyncio.create_task(self._write_changes())
        try:
            await self._deleted.wait()
            await self._terminate()
            await running
            await self._finish()
        finally:
            running.cancel()
            writing.cancel()
            await self._kill()
            await asyncio.wait([running, writing])
            # A pod that starts again on the next node keeps its logs.
            shutil.rmtree(self.folder if self._deleted.is_set() else self.folder / "volumes", ignore_errors=True)

    async def _run_containers(self) -> None:
        self._changed.set()
        for container in self.init.values():
            await container.run()
            if not container.state.succeeded:
                return
            container.state.ready = True
        async with asyncio.TaskGroup() as group:
            for container in self.containers.values():
                group.create_task(container.run())

    def _log_error(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            log.error("pod %s failed", self.pod.key, exc_info=error)

    async def _terminate(self) -> None:
        """Stop all containers; the API server has added the grace period to the deletion timestamp."""
        deadline = self.pod.metadata.deletion_timestamp
        assert deadline is not None
        grace = max(MINIMUM_GRACE, (deadline - self._host.now()).total_seconds())
        async with asyncio.TaskGroup() as group:
            for container in self._all():
                group.create_task(container.stop(grace))

    async def _kill(self) -> None:
        await asyncio.gather(*(container.kill() for container in self._all()))

    def _all(self) -> list[Container]:
        return [*self.init.values(), *self.containers.values()]

    async def _write_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write()
            except errors.KubeError as error:
                log.warning("cannot write the status of pod %s: %s", self.pod.key, error)
                self._changed.set()
                await asyncio.sleep(RETRY)

    async def _write(self) -> None:
        """Write the status if it has changed; a pod that is gone needs none."""
        async with self._writing:
            status = pod_status(self.pod.manifest, self._state, self._host.now())
            if status == self._written:
                return
            patch = {"metadata": {"uid": self.pod.metadata.uid}, "status": status}
            with suppress(errors.NotFound, errors.Conflict):
                self.update(await self._host.client.merge(POD, self.pod.key, patch, "status"))
            self._written = status

    async def _finish(self) -> None:
        """Write the last status and remove the pod from the API server, which waits for this node."""
        while True:
            try:
                await self._write()
                with suppress(errors.NotFound, errors.Conflict):
                    await self._host.client.delete(POD, self.pod, unchanged=False, grace_seconds=0)
            except errors.KubeError as error:
                log.warning("cannot delete pod %s: %s", self.pod.key, error)
                await asyncio.sleep(RETRY)
            else:
                return

    def _continue_restarts(self, status: Manifest) -> None:
        """Count the restarts of a pod that ran before this node started."""
        for before in status.get("containerStatuses", []):
            if before["restartCount"] or "waiting" not in before.get("state", {}):
                self.containers[before["name"]].state.restarts = before["restartCount"] + 1
