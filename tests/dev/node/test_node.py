"""Pods that run as processes, on a cluster with the real scheduler and controllers."""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from coder_k8s.dev.full_cluster import FullCluster
from coder_k8s.dev.node.delays import Delays
from coder_k8s.dev.node.images import Image
from coder_k8s.dev.node.local import ServicePort
from coder_k8s.dev.node.node import NODE, Node, cancel
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP, DEPLOYMENT, POD, SECRET, SERVICE
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Unstructured
from tests.support import alive, eventually
from tests.support.objects import NAMESPACE, delete_namespace

JOB = Kind("batch", "v1", "Job", "jobs", Unstructured)
ANY = "0.0.0.0"  # noqa: S104 - the node replaces it
EVENT = Kind("", "v1", "Event", "events", Unstructured)
IMAGES = {"python:3": Image((sys.executable, "-I", "-u", "-c"))}
TAINT = {"key": "processes", "effect": "NoSchedule"}
TIMEOUT = 60

# Answers /healthz with 503 for its first requests; on SIGTERM it answers what it has accepted, then exits.
SERVER = """
import http.server, os, signal, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = self.path != "/healthz" or os.path.exists(sys.argv[2]) or not sys.argv[2]
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(os.environ.get("ANSWER", "one").encode())
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer((sys.argv[1], 8080), Handler)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
server.server_close()
"""
PROBE = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 1, "timeoutSeconds": 5}


class Place:
    """A namespace of the cluster with the node, and the objects of one test."""

    def __init__(self, client: Client, node: Node, namespace: str) -> None:
        self.client = client
        self.node = node
        self.namespace = namespace

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    async def create(self, kind: Kind[Unstructured], name: str, **content: Any) -> Unstructured:
        return await self.client.create(kind, {"metadata": {"name": name, "namespace": self.namespace}, **content})

    async def create_pod(self, *args: str, policy: str = "Always", **fields: Any) -> Unstructured:
        return await self.create(POD, "web", spec=self.pod_spec(*args, policy=policy, **fields))

    def pod_spec(self, *args: str, policy: str = "Always", **fields: Any) -> dict[str, Any]:
        grace = fields.pop("grace", 5)
        volumes = fields.pop("volumes", [])
        container = {"name": "web", "image": "python:3", "args": list(args), **fields}
        return {
            "restartPolicy": policy,
            "terminationGracePeriodSeconds": grace,
            "containers": [container],
            "volumes": volumes,
            "tolerations": [{"key": "processes", "operator": "Exists"}],
            "nodeSelector": {"kubernetes.io/hostname": self.node.name},
        }

    async def status(self, name: str = "web") -> dict[str, Any]:
        status: dict[str, Any] = (await self.client.get(POD, self.key(name))).manifest.get("status", {})
        return status

    async def container(self) -> dict[str, Any]:
        containers: list[dict[str, Any]] = (await self.status()).get("containerStatuses", [{}])
        return containers[0]

    async def until(self, check: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a status of the container."""

        async def found() -> dict[str, Any]:
            container = await self.container()
            return container if container and check(container) else {}

        return await eventually(found, timeout=TIMEOUT)

    async def waits_for(self, reason: str) -> dict[str, Any]:
        return await self.until(lambda each: each["state"].get("waiting", {}).get("reason") == reason)

    async def runs(self) -> dict[str, Any]:
        return await self.until(lambda each: "running" in each["state"])

    async def reports(self, event: str) -> None:
        """Wait for an event that begins with this text."""

        async def found() -> bool:
            return any(each.startswith(event) for each in await self.events())

        await eventually(found, timeout=TIMEOUT)

    async def events(self) -> list[str]:
        pages = [page async for page in self.client.list(EVENT, self.namespace)]
        manifests = [Unstructured.decode(raw).manifest for page in pages for raw in page.items]
        return [f"{each['reason']}: {each['message']}" for each in manifests]

    def log(self, pod: Unstructured) -> str:
        path = self.node.log(pod, "web")
        return path.read_text() if path.exists() else ""


@pytest.fixture
async def place(full_cluster: FullCluster, scratch: Path) -> AsyncIterator[Place]:
    """A node of its own in the cluster, and a namespace."""
    name = f"node-{uuid.uuid4().hex[:8]}"
    async with Http(load(full_cluster.kubeconfig), "node-test", Metrics()) as http:
        client = Client(http, "node-test")
        node = Node(client, name, scratch, IMAGES, Delays(first=0.5, missing=0.2), [TAINT])
        namespace = {"metadata": {"name": name}}
        await client.create(NAMESPACE, namespace)
        async with node.run():
            await eventually(lambda: has_account(client, name), timeout=TIMEOUT)
            yield Place(client, node, name)
        await client.delete(NODE, await client.get(NODE, Key("", name)), unchanged=False)
        await delete_namespace(client, name)


async def has_account(client: Client, namespace: str) -> bool:
    """Whether pods can be created: they need the default ServiceAccount."""
    accounts = Kind("", "v1", "ServiceAccount", "serviceaccounts", Unstructured)
    pages = [page async for page in client.list(accounts, namespace)]
    return any(page.items for page in pages)


async def test_pod_is_ready_when_its_probe_succeeds(place: Place, scratch: Path) -> None:
    ready = scratch / "ready"
    await place.create_pod(
        SERVER, ANY, str(ready), ports=[{"name": "http", "containerPort": 8080}], readinessProbe=PROBE
    )
    await place.runs()
    await place.reports("Unhealthy: Readiness probe failed: ")

    assert not (await place.container())["ready"]
    ready.touch()
    await place.until(lambda each: bool(each["ready"]))
    conditions = {each["type"]: each["status"] for each in (await place.status())["conditions"]}
    assert conditions["Ready"] == conditions["PodScheduled"] == "True"

    ready.unlink()
    await place.until(lambda each: not each["ready"])


async def test_dead_container_is_restarted(place: Place, scratch: Path) -> None:
    healthy = scratch / "healthy"
    healthy.touch()
    ports = [{"name": "http", "containerPort": 8080}]
    probes: dict[str, Any] = {
        "startupProbe": {**PROBE, "failureThreshold": TIMEOUT},
        "livenessProbe": {**PROBE, "failureThreshold": 1},
    }
    await place.create_pod(SERVER, "$(IP)", str(healthy), ports=ports, env=[IP], **probes)
    await place.until(lambda each: bool(each["ready"]))

    healthy.unlink()
    await place.reports("Killing: Container web failed liveness probe, will be restarted")
    await place.until(lambda each: each["restartCount"] == 1 and "running" in each["state"])


IP = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


async def test_unknown_image(place: Place) -> None:
    await place.create_pod("", image="python:4")
    first = await place.waits_for("ErrImagePull")
    assert 'failed to pull image "python:4": not found' in first["state"]["waiting"]["message"]
    second = await place.waits_for("ImagePullBackOff")
    assert second["state"]["waiting"]["message"].startswith('Back-off pulling image "python:4"')
    assert (await place.status())["phase"] == "Pending"


async def test_crash_is_reported_with_its_message(place: Place) -> None:
    script = "import sys; open(sys.argv[1], 'w').write('no database'); print('log'); sys.exit(3)"
    await place.create_pod(script, "/dev/termination-log")
    container = await place.waits_for("CrashLoopBackOff")
    terminated = container["lastState"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"], terminated["message"]) == (3, "Error", "no database")
    assert container["restartCount"] >= 1
    await place.until(lambda each: each["restartCount"] > container["restartCount"])


async def test_end_of_the_log_is_the_message_of_a_failure(place: Place) -> None:
    await place.create_pod(
        "print('first'); raise SystemExit('boom')", policy="Never", terminationMessagePolicy="FallbackToLogsOnError"
    )
    container = await place.until(lambda each: "terminated" in each["state"])
    assert container["state"]["terminated"]["message"] == "first\nboom\n"
    assert (await place.status())["phase"] == "Failed"


# Reports each SIGTERM and continues; its own child must not outlive it either.
STUBBORN = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, lambda *_: print("terminated", flush=True))
print(subprocess.Popen(["sleep", "1000"]).pid, flush=True)
while True: time.sleep(1000)
"""


async def test_process_that_ignores_sigterm_is_killed_after_the_grace_period(place: Place) -> None:
    pod = await place.create_pod(STUBBORN, grace=4)
    await place.runs()
    child = int(await eventually(lambda: place.log(pod), timeout=TIMEOUT))
    assert alive(child)

    loop = asyncio.get_running_loop()
    started = loop.time()
    await place.client.delete(POD, pod, unchanged=False)
    await eventually(lambda: "terminated" in place.log(pod), timeout=TIMEOUT)
    await eventually(lambda: not alive(child), timeout=TIMEOUT)
    assert loop.time() - started >= 3  # timestamps have whole seconds
    await eventually(lambda: is_gone(place, "web"), timeout=TIMEOUT)


async def test_process_that_exits_on_sigterm_is_gone_at_once(place: Place) -> None:
    pod = await place.create_pod("import time; time.sleep(1000)", grace=1000)
    await place.runs()
    await place.client.delete(POD, pod, unchanged=False)
    await eventually(lambda: is_gone(place, "web"), timeout=TIMEOUT)


async def test_stopping_the_node_does_not_interrupt_the_cleanup_of_a_deleted_pod() -> None:
    cleaned = asyncio.Event()

    async def run_pod() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # for the exit of its processes
            cleaned.set()

    pod = asyncio.create_task(run_pod())
    await asyncio.sleep(0)
    pod.cancel()  # its pod was deleted
    await asyncio.sleep(0)
    await cancel([pod])
    assert cleaned.is_set()


async def is_gone(place: Place, name: str) -> bool:
    pages = [page async for page in place.client.list(POD, place.namespace, fields=f"metadata.name={name}")]
    return not any(page.items for page in pages)


async def test_container_waits_for_its_secret_and_sees_volumes(place: Place) -> None:
    script = "import os, sys; print(os.environ['TOKEN'], open(sys.argv[1]).read(), os.path.isdir(sys.argv[2]))"
    pod = await place.create_pod(
        script,
        "/etc/settings/level",
        "$(SCRATCH)",
        policy="Never",
        env=[
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "value"}}},
            {"name": "SCRATCH", "value": "/scratch"},
        ],
        volumeMounts=[{"name": "settings", "mountPath": "/etc/settings"}, {"name": "scratch", "mountPath": "/scratch"}],
        volumes=[
            {"name": "settings", "configMap": {"name": "settings"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "data", "hostPath": {"path": "/nowhere"}},
        ],
    )
    await place.create(CONFIG_MAP, "settings", data={"level": "debug"})
    waiting = await place.waits_for("CreateContainerConfigError")
    assert waiting["state"]["waiting"]["message"] == 'secret "token" not found'

    await place.create(SECRET, "token", stringData={"value": "a"})
    await place.until(lambda each: "terminated" in each["state"])
    assert place.log(pod) == "a debug True\n"
    await place.reports("Unsupported: This node ignores: volume data (hostPath)")


async def test_job_completes_after_its_init_container(place: Place, scratch: Path) -> None:
    marker = scratch / "marker"
    spec = place.pod_spec(f"import os; os.stat({str(marker)!r})", policy="Never")
    spec["initContainers"] = [
        {"name": "init", "image": "python:3", "args": [f"open({str(marker)!r}, 'w')"]},
    ]
    await place.create(JOB, "once", spec={"backoffLimit": 0, "template": {"spec": spec}})

    async def succeeded() -> bool:
        job = await place.client.get(JOB, place.key("once"))
        return bool(job.manifest.get("status", {}).get("succeeded"))

    await eventually(succeeded, timeout=TIMEOUT)


async def test_processes_end_with_the_node_and_start_again_with_the_next_one(place: Place, scratch: Path) -> None:
    def node() -> Node:
        return Node(place.client, f"{place.namespace}-other", scratch / "other", IMAGES, Delays(), [TAINT])

    place.node = node()
    async with place.node.run():
        pod = await place.create_pod("import os, time; print(os.getpid()); time.sleep(1000)")
        first = int(await eventually(lambda: place.log(pod), timeout=TIMEOUT))
        await place.runs()
        assert alive(first)
    assert not alive(first)

    place.node = node()
    async with place.node.run():
        await place.until(lambda each: each["restartCount"] == 1 and "running" in each["state"])
        await place.client.delete(POD, pod, unchanged=False)
        await eventually(lambda: is_gone(place, "web"), timeout=TIMEOUT)
    await place.client.delete(NODE, await place.client.get(NODE, Key("", place.node.name)), unchanged=False)


async def test_rollout_through_the_service_without_a_failed_request(place: Place) -> None:
    labels = {"app": "web"}
    ports = [{"name": "http", "containerPort": 8080}]
    template = {
        "metadata": {"labels": labels},
        "spec": place.pod_spec(SERVER, ANY, "", ports=ports, readinessProbe=PROBE),
    }
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    await place.create(DEPLOYMENT, "web", spec=spec)
    await place.create(SERVICE, "web", spec={"selector": labels, "ports": [{"port": 80, "targetPort": "http"}]})
    target = ServicePort(place.key("web"), 80)
    address = await place.node.forwarders.address(target)
    await eventually(lambda: len(place.node.forwarders.endpoints(target)) == 2, timeout=TIMEOUT)
    before = set(place.node.forwarders.endpoints(target))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        answers: list[str] = []

        async def ask() -> None:
            while True:
                async with http.get(f"http://{address}/") as response:
                    answers.append(await response.text())
                await asyncio.sleep(0.02)

        asking = asyncio.create_task(ask())
        template["spec"]["containers"][0]["env"] = [{"name": "ANSWER", "value": "two"}]
        await place.client.merge(DEPLOYMENT, place.key("web"), {"spec": {"template": template}})

        def replaced() -> bool:
            assert not asking.done() or asking.result() is None
            endpoints = set(place.node.forwarders.endpoints(target))
            return len(endpoints) == 2 and not endpoints & before and answers[-10:] == ["two"] * 10

        try:
            await eventually(replaced, timeout=TIMEOUT)
        finally:
            asking.cancel()
            await asyncio.wait([asking])
    assert asking.cancelled()
    assert set(answers) == {"one", "two"}


async def test_forwarder_without_an_endpoint_closes_connections(place: Place) -> None:
    address = await place.node.forwarders.address(ServicePort(place.key("none"), 80))
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.ClientError):
            await http.get(f"http://{address}/")
