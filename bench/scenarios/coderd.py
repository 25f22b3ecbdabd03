"""coderd: requests of many provisioners in steady state, and the duration of rotating all their keys."""

import asyncio
import base64
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from bench.cluster import MANY, TIMEOUT, BenchCluster, bench_cluster, each
from bench.report import Section, Verdict, table
from coder_k8s.api import CONTROL_PLANE, PROVISIONER, CoderProvisioner
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.kube.conditions import find
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Key, Unstructured
from tests.support import eventually
from tests.support.rotations import secret_of

PLANES = 20
PROVISIONERS = 500
REST = 120.0
"""Seconds between requests to a coderd."""
LIMIT = 5.0
"""Maximum requests per minute to a coderd in steady state."""
Coderds = dict[str, CoderdServer]


class Figures(msgspec.Struct, kw_only=True):
    planes: int
    provisioners: int
    made: float
    """Seconds until every provisioner was ready."""
    rest: float
    """Seconds of steady state."""
    requests: dict[str, int]
    """Requests to all coderds in that time, by method and route."""
    rotated: float
    """Seconds until all keys were rotated and all old keys deleted."""
    rotation_requests: int

    @property
    def per_minute(self) -> float:
        return sum(self.requests.values()) * 60 / self.rest / self.planes


async def run(planes: int = PLANES, provisioners: int = PROVISIONERS, rest: float = REST) -> Figures:
    async with bench_cluster() as here, AsyncExitStack() as stack:
        coderds = {f"plane-{count}": await stack.enter_async_context(CoderdServer()) for count in range(planes)}
        routes = [f"{name}.{MANY}.svc.cluster.local:80=127.0.0.1:{coderd.port}" for name, coderd in coderds.items()]
        with here.operator(f"--coderd-connect-to={','.join(routes)}"):
            seen = await stack.enter_async_context(here.informer(PROVISIONER))
            await stack.enter_async_context(pods(here, coderds, seen))
            return await measure(here, coderds, seen, provisioners, rest)


async def measure(
    here: BenchCluster, coderds: Coderds, seen: Informer[CoderProvisioner], number: int, rest: float
) -> Figures:
    await each(coderds.items(), lambda item: _make_plane(here, *item))
    names = list(coderds)
    wanted = [
        {
            "metadata": {"namespace": MANY, "name": f"build-{count}"},
            "spec": {"controlPlaneRef": {"name": names[count % len(names)]}},
        }
        for count in range(number)
    ]
    began = time.monotonic()
    await here.make(PROVISIONER, wanted)
    await eventually(lambda: len(seen) == number and all(map(_is_ready, seen)), TIMEOUT)
    made = time.monotonic() - began
    before = _requests(coderds)
    await asyncio.sleep(rest)
    requests = _requests(coderds) - before
    before, began = _requests(coderds), time.monotonic()
    annotation = {"metadata": {"annotations": {"coder.com/rotate-key": "now"}}}
    old = {each.key: each.status.provisioner_key_id for each in seen}
    await each(list(seen), lambda one: here.admin.merge(PROVISIONER, one.key, annotation))
    await eventually(
        lambda: all(_is_ready(one) and one.status.provisioner_key_id != old[one.key] for one in seen), TIMEOUT
    )
    return Figures(
        planes=len(coderds),
        provisioners=number,
        made=made,
        rest=rest,
        requests=dict(requests),
        rotated=time.monotonic() - began,
        rotation_requests=(_requests(coderds) - before).total(),
    )


async def _make_plane(here: BenchCluster, name: str, coderd: CoderdServer) -> None:
    coderd.state.install_license()
    token = base64.b64encode(coderd.state.token.encode()).decode()
    await here.admin.create(
        SECRET, {"metadata": {"namespace": MANY, "name": f"{name}-token"}, "data": {"token": token}}
    )
    spec = {"image": "coder:v2.36.1", "operatorAccess": {"tokenSecretRef": {"name": f"{name}-token"}}}
    await here.admin.create(CONTROL_PLANE, {"metadata": {"namespace": MANY, "name": name}, "spec": spec})


@asynccontextmanager
async def pods(here: BenchCluster, coderds: Coderds, seen: Informer[CoderProvisioner]) -> AsyncIterator[None]:
    """Completes every rollout immediately; the daemon of a provisioner connects with the current key in its Secret."""
    waiting: asyncio.Queue[Unstructured] = asyncio.Queue()

    async def work() -> None:
        while True:
            deployment = await waiting.get()
            name = deployment.metadata.name.removeprefix("provisioner-")
            if (provisioner := seen.get(Key(MANY, name))) is not None:
                await _log_in(here, coderds[provisioner.spec.control_plane_ref.name], deployment)
            await here.roll_out(deployment.key)

    async with here.informer(DEPLOYMENT) as deployments, asyncio.TaskGroup() as group:
        deployments.listen(
            lambda change: waiting.put_nowait(change.new) if change.new and not _rolled_out(change.new) else None
        )
        workers = [group.create_task(work()) for _ in range(4)]
        yield
        for worker in workers:
            worker.cancel()


async def _log_in(here: BenchCluster, coderd: CoderdServer, deployment: Unstructured) -> None:
    """Connect the new daemon and disconnect the old one."""
    secret = await here.admin.get(SECRET, Key(MANY, secret_of(deployment.manifest["spec"]["template"])))
    old = [daemon.id for daemon in coderd.state.daemons.values() if daemon.name == deployment.metadata.name]
    coderd.state.log_in(deployment.metadata.name, base64.b64decode(secret.manifest["data"]["key"]).decode())
    for daemon in old:
        coderd.state.disconnect_daemon(daemon)


def _rolled_out(deployment: Unstructured) -> bool:
    status = deployment.manifest.get("status") or {}
    return bool(status.get("observedGeneration") == deployment.metadata.generation)


def _is_ready(provisioner: CoderProvisioner) -> bool:
    ready = find(provisioner.status.conditions, "Ready")
    return (
        ready is not None
        and (ready.status, ready.observed_generation) == ("True", provisioner.metadata.generation)
        and not provisioner.status.retiring_keys
    )


def _requests(coderds: Coderds) -> Counter[str]:
    total: Counter[str] = Counter()
    for coderd in coderds.values():
        for (method, route), count in coderd.state.requests.items():
            total[f"{method} {route}"] += count
    return total


def section(runs: Sequence[Figures]) -> Section:
    [run] = runs
    rows = [
        (f"`{name}`", f"{count * 60 / run.rest / run.planes:.2f}")
        for name, count in sorted(run.requests.items(), key=lambda item: -item[1])
    ]
    text = "\n\n".join(
        (
            f"{run.provisioners} provisioners on {run.planes} control planes, each with a simulator of coderd, and "
            f"pods that are ready immediately. All were ready after {run.made:.0f} s. Rotating all keys took "
            f"{run.rotated:.0f} s and {run.rotation_requests / run.provisioners:.1f} requests per key; old keys are "
            "deleted when coderd reports no daemon for them, which is checked every 10 seconds.",
            f"Requests per minute to one coderd in steady state, measured for {run.rest:.0f} s:",
            table(["request", "per minute"], rows),
        )
    )
    verdict = Verdict(
        name="requests per minute to a coderd in steady state",
        target=f"≤ {LIMIT:g}",
        found=f"{run.per_minute:.1f}",
        met=run.per_minute <= LIMIT,
        limit="entitlements, keys and daemons are each requested every 2 minutes.",
    )
    return Section(title="coderd", text=text, verdicts=[verdict])
