"""Simulates the controllers and nodes of Kubernetes for one control plane, and a Coder that migrates its database.

Pods are objects of the API server, and the schema is in a real database. Only the processes are simulated: what a pod
of an image does when it starts follows from the schema of the image and that of the database.
"""

from typing import Any

from coder_k8s.controllers.controlplane.objects import NAME
from coder_k8s.controllers.controlplane.updates.preflight import COMPONENT, CONTAINER
from coder_k8s.controllers.labels import INSTANCE
from coder_k8s.controllers.pods import is_over
from coder_k8s.kube.kinds import DEPLOYMENT, JOB, POD
from coder_k8s.kube.objects import Key, Manifest, Unstructured
from tests.support import objects
from tests.support.controlplanes import PlaneNamespace
from tests.support.databases import CoderdDatabase

SCHEMAS = {"coder:v1": 412, "coder:v2": 412, "coder:v3": 556, "coder:broken": 556, "coder:late": 556}
VERSIONS = {
    "coder:v1": "v2.30.0",
    "coder:v2": "v2.30.0",
    "coder:v3": "v2.36.1",
    "coder:broken": "v2.36.1",
    "coder:late": "v2.36.1",
}
BROKEN = "coder:broken"
"""An image that exits before it migrates."""
LATE = "coder:late"
"""An image that exits after it has migrated."""
VERSION = '{{\n  "version": "{}",\n  "agpl": false\n}}\n'
SAME = "error: retrieving user: sql: no rows in result set"
OLDER = (
    "error: dial postgres: migrations in database: database needs migration: current version is {}, but later version "
    "{} exists"
)
NEWER = (
    "error: dial postgres: migrations in database: database needs migration: get previous migration: prev for version "
    "{} .: file does not exist"
)
NODE = "simulated"
POD_IP = "127.200.0.1"
READY = {"type": "Ready", "status": "True"}


class SimulatedPods:
    """Pods of a Deployment and of Jobs. Tests set what does not happen by itself."""

    def __init__(self, demo: PlaneNamespace, database: CoderdDatabase) -> None:
        self.demo = demo
        self.client = demo.client
        self.database = database
        self.pulls = True
        """Whether images can be pulled."""
        self.finishes = True
        """Whether the preflight ends."""
        self.verdict: str | None = None
        """The termination message of the preflight, instead of that of Coder."""
        self.stops = True
        """Whether pods that are deleted disappear."""
        self.starts = True
        """Whether new pods start; a migration can take long."""
        self.served: list[set[int]] = []
        """The schemas of the pods that served at the same time, after every change."""
        self.migrated: list[str] = []
        """The pods that migrated the database."""
        self._number = 0
        self.schema = 0
        """Of the database."""
        self._pods: list[Unstructured] | None = None
        """All pods, until one is written or another round begins."""

    async def create_schema(self, version: int = 412) -> None:
        await self._execute("CREATE TABLE schema_migrations (version bigint NOT NULL, dirty bool NOT NULL)")
        await self.set_schema(version)

    async def set_schema(self, version: int, *, dirty: bool = False) -> None:
        await self._execute("DELETE FROM schema_migrations")
        row = f"({int(version)}, {str(dirty).lower()})"
        await self._execute("INSERT INTO schema_migrations VALUES " + row)  # noqa: S608 - numbers
        self.schema = version

    async def sync(self) -> bool:
        """Let everything happen that can; return whether anything changed."""
        changed = False
        for _ in range(50):
            self._pods = None
            moved = [await self._run_jobs(), await self._control(), await self._start(), await self._end()]
            reported = await self._report()
            await self._check()
            if not any(moved) and not reported:
                return changed
            changed = True
        raise AssertionError("the pods never settle")

    async def pods(self, component: str = NAME) -> list[Unstructured]:
        """The pods that Kubernetes counts: not those that were evicted."""
        self._pods = None
        return await self._listed(component)

    async def _listed(self, component: str = NAME) -> list[Unstructured]:
        if self._pods is None:
            self._pods = await objects.list_all(self.client, POD, self.demo.namespace)
        own = {"app.kubernetes.io/name": component, INSTANCE: self.demo.name}
        found = [pod for pod in self._pods if own.items() <= pod.metadata.labels.items()]
        return [pod for pod in found if component != NAME or not is_over(pod)]

    async def serving(self) -> list[str]:
        """The images of the pods that are ready, including those that stop."""
        return _serving(await self.pods())

    async def _control(self) -> bool:
        """Create or delete one pod, like the controllers of Deployments and ReplicaSets."""
        live = await self._deployment()
        if live is None:
            for pod in await self._listed():
                await self._delete(pod)
            return False
        spec = live.manifest["spec"]
        wanted, template = spec["replicas"], spec["template"]
        image = template["spec"]["containers"][0]["image"]
        pods = await self._listed()
        alive = [pod for pod in pods if not pod.deleting]
        current = [pod for pod in alive if _image(pod) == image]
        old = [pod for pod in alive if _image(pod) != image]
        recreate = spec["strategy"]["type"] == "Recreate"
        if len(current) > wanted:
            return await self._delete(current[0])
        ready = [pod for pod in current if _is_ready(pod)]
        if old and (recreate or len(ready) + len(old) > wanted or not wanted):
            return await self._delete(old[0])
        blocked = recreate and any(_image(pod) != image for pod in pods)
        if len(current) < wanted and not blocked and len(current) + len(old) <= wanted:
            await self._create(template, self.demo.name)
            return True
        return False

    async def _start(self) -> bool:
        for pod in await self._listed():
            if pod.deleting or _is_ready(pod) or not self.starts or _restarts(pod) >= 3:
                continue
            image = _image(pod)
            if image == BROKEN or SCHEMAS[image] < self.schema:
                await self._crash(pod, "error: unknown flag")
                return True
            if SCHEMAS[image] > self.schema:
                await self.set_schema(SCHEMAS[image])
                self.migrated.append(pod.metadata.name)
            if image == LATE:
                await self._crash(pod, "error: unknown flag")
                return True
            self.demo.coderd.state.version = VERSIONS[image].removeprefix("v")
            status = {"phase": "Running", "podIP": POD_IP, "conditions": [READY]}
            await self._set(pod, status)
            return True
        return False

    async def _crash(self, pod: Unstructured, message: str) -> None:
        container = {
            "name": "coder",
            "image": _image(pod),
            "imageID": "",
            "ready": False,
            "restartCount": _restarts(pod) + 1,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "message": message}},
        }
        await self._set(pod, {"phase": "Running", "containerStatuses": [container]})

    async def _end(self) -> bool:
        stopping = [pod for pod in await self._listed() if pod.deleting] if self.stops else []
        for pod in stopping:
            await self._delete(pod, grace_seconds=0)
        return bool(stopping)

    async def _report(self) -> bool:
        """Write the status of the Deployment."""
        live = await self._deployment()
        if live is None:
            return False
        image = live.manifest["spec"]["template"]["spec"]["containers"][0]["image"]
        pods = [pod for pod in await self._listed() if not pod.deleting]
        ready = sum(map(_is_ready, pods))
        status = {
            "observedGeneration": live.metadata.generation,
            "replicas": len(pods),
            "updatedReplicas": sum(_image(pod) == image for pod in pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        before = live.manifest.get("status") or {}
        if {name: before.get(name, 0) for name in status} == status:
            return False
        await self.client.merge(DEPLOYMENT, live.key, {"status": status}, "status")
        return True

    async def _run_jobs(self) -> bool:
        """Run the pods of Jobs, and delete those of deleted Jobs."""
        jobs = {job.metadata.uid: job for job in await objects.list_all(self.client, JOB, self.demo.namespace)}
        pods = await self._listed(COMPONENT)
        owners = {pod.controller.uid: pod for pod in pods if pod.controller}
        changed = False
        for pod in pods:
            if pod.controller is None or pod.controller.uid not in jobs:
                changed = await self._delete(pod, grace_seconds=0)
        for uid, job in jobs.items():
            if job.deleting or uid in owners:
                continue
            template = job.manifest["spec"]["template"]
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name, "uid": uid, "controller": True}
            pod = await self._create(template, job.metadata.name, owner)
            await self._set(pod, await self._job_status(template["spec"]["containers"][0]["image"]))
            changed = True
        return changed

    async def _job_status(self, image: str) -> Manifest:
        container: Manifest = {"name": CONTAINER, "image": image, "imageID": "", "ready": False, "restartCount": 0}
        if not self.pulls:
            state: Manifest = {"waiting": {"reason": "ImagePullBackOff", "message": "x"}}
            return {"phase": "Pending", "containerStatuses": [{**container, "state": state}]}
        if not self.finishes:
            return {"phase": "Running", "containerStatuses": [{**container, "state": {"running": {}}}]}
        schema, own = self.schema, SCHEMAS[image]
        probe = SAME if own == schema else OLDER.format(schema, schema + 1) if own > schema else NEWER.format(schema)
        message = VERSION.format(VERSIONS[image]) + probe if self.verdict is None else self.verdict
        state = {"terminated": {"exitCode": 1, "message": message}}
        return {"phase": "Failed", "containerStatuses": [{**container, "state": state}]}

    async def _create(self, template: Manifest, prefix: str, owner: Manifest | None = None) -> Unstructured:
        self._number += 1
        spec = {**template["spec"], "nodeName": NODE}
        metadata: dict[str, Any] = {
            "name": f"{prefix}-{self._number}",
            "namespace": self.demo.namespace,
            "labels": template["metadata"]["labels"],
            **({"ownerReferences": [owner]} if owner else {}),
        }
        self._pods = None
        return await self.client.create(POD, {"metadata": metadata, "spec": spec})

    async def _set(self, pod: Unstructured, status: Manifest) -> None:
        self._pods = None
        await self.client.merge(POD, pod.key, {"status": status}, "status")

    async def _delete(self, pod: Unstructured, grace_seconds: int = 30) -> bool:
        self._pods = None
        await self.client.delete(POD, pod, unchanged=False, grace_seconds=grace_seconds)
        return True

    async def _deployment(self) -> Unstructured | None:
        return await objects.find(self.client, DEPLOYMENT, Key(self.demo.namespace, self.demo.name))

    async def _check(self) -> None:
        """Assert that all pods that serve, or still stop, know the schema of the database."""
        schemas = {SCHEMAS[image] for image in _serving(await self._listed())}
        self.served.append(schemas)
        assert schemas <= {self.schema}, schemas

    async def _execute(self, sql: str) -> None:
        await self.database.server.execute(sql, self.database.name)


def _serving(pods: list[Unstructured]) -> list[str]:
    return [_image(pod) for pod in pods if _is_ready(pod)]


def _image(pod: Unstructured) -> str:
    return str(pod.manifest["spec"]["containers"][0]["image"])


def _is_ready(pod: Unstructured) -> bool:
    return READY["type"] in {
        each["type"] for each in (pod.manifest.get("status") or {}).get("conditions", []) if each["status"] == "True"
    }


def _restarts(pod: Unstructured) -> int:
    statuses = (pod.manifest.get("status") or {}).get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount", 0))
