"""Runs a container: pulls its image, prepares its environment, and starts its process again and again."""

import asyncio
import os
import shutil
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path

from coder_k8s.kube import errors
from coder_k8s.kube.events import EventReason
from coder_k8s.kube.objects import Manifest, Unstructured

from . import environment, probes, volumes
from .delays import restart_failures, retry_delay
from .environment import Addresses, ConfigError
from .host import Host
from .images import Image
from .instance import Instance
from .local import localize, loopback, services
from .status import ContainerState, Running, Terminated, Waiting, should_restart

PULL_VISIBLE = 1.0
"""Seconds for which a failed pull is shown before the back-off."""
NOT_EXECUTABLE = 128
"""Exit code of a container whose program cannot be executed."""
MESSAGE_PATH = "/dev/termination-log"

STARTED = EventReason("Started", "Normal")
KILLING = EventReason("Killing", "Normal")
UNHEALTHY = EventReason("Unhealthy", "Warning")
FAILED = EventReason("Failed", "Warning")
BACK_OFF = EventReason("BackOff", "Warning")


@dataclass(frozen=True)
class PodFacts:
    """A pod, its address in the cluster and its folder."""

    pod: Unstructured
    manifest: Manifest
    address: str
    folder: Path


@dataclass(frozen=True)
class Prepared:
    """What a process needs."""

    command: list[str]
    env: dict[str, str]


class Container:
    """Runs a container until it need not be restarted or is stopped; `changed` is called for every new state."""

    def __init__(self, host: Host, pod: PodFacts, spec: Manifest, policy: str, changed: Callable[[], None]) -> None:
        self.state = ContainerState()
        self.log = pod.folder / f"{spec['name']}.log"
        self._host = host
        self._pod = pod
        self._spec = spec
        self._policy = policy
        self._changed = changed
        self._stopping = asyncio.Event()
        self._instance: Instance | None = None

    async def run(self) -> None:
        """Run the container, and return when it does not start again."""
        failures: int | None = None
        while (image := await self._pull()) and (prepared := await self._prepare(image)):
            exited = await self._run_once(prepared)
            if self._stopping.is_set() or not should_restart(self._policy, exited.exit_code):
                return
            failures = restart_failures(failures, exited.seconds, self._host.delays)
            await self._back_off(retry_delay(failures, self._host.delays), exited)
            self.state.last = exited
            self.state.restarts += 1

    async def stop(self, grace: float) -> None:
        """Stop the process and start it no more."""
        self._stopping.set()
        if self._instance:
            self._host.record(self._pod.pod, KILLING, f"Stopping container {self._spec['name']}")
            await self._instance.stop(grace)

    async def kill(self) -> None:
        """Kill the process and start it no more."""
        self._stopping.set()
        if self._instance:
            self._instance.kill()
            await self._instance.wait()

    async def _back_off(self, delay: float, exited: Terminated) -> None:
        if delay:
            note = f"back-off {delay:g}s restarting failed container={self._spec['name']}"
            self._host.record(self._pod.pod, BACK_OFF, note)
            self._set(Waiting("CrashLoopBackOff", note), last=exited)
            await self._pause(delay)

    async def _pull(self) -> Image | None:
        """Find the image, and wait for it if it is unknown; return `None` when the container is stopped."""
        name, failures = self._spec["image"], 0
        while not self._stopping.is_set():
            if name in self._host.images:
                return self._host.images[name]
            failures += 1
            known = ", ".join(self._host.images) or "none"
            error = f'failed to pull image "{name}": not found; this node has the images {known}'
            self._host.record(self._pod.pod, FAILED, error)
            self._set(Waiting("ErrImagePull", error))
            await self._pause(PULL_VISIBLE)
            self._set(Waiting("ImagePullBackOff", f'Back-off pulling image "{name}": ErrImagePull: {error}'))
            await self._pause(retry_delay(failures, self._host.delays))
        return None

    async def _prepare(self, image: Image) -> Prepared | None:
        """Gather what the process needs, and wait for missing objects; return `None` when the container is stopped."""
        while not self._stopping.is_set():
            try:
                prepared = await self._gather(image)
            except ConfigError as error:
                self._host.record(self._pod.pod, FAILED, f"Error: {error}")
                self._set(Waiting("CreateContainerConfigError", str(error)))
            except errors.KubeError as error:
                self._set(Waiting("CreateContainerConfigError", str(error)))
            else:
                return None if self._stopping.is_set() else prepared
            await self._pause(self._host.delays.missing)
        return None

    async def _gather(self, image: Image) -> Prepared:
        pod, spec, host = self._pod.manifest, self._spec, self._host
        namespace, address = pod["metadata"]["namespace"], loopback(self._pod.address)
        found = await host.find(namespace, environment.sources(spec) | volumes.sources(pod))
        for volume in pod["spec"].get("volumes", []):
            volumes.write(self._volumes / volume["name"], volumes.files(volume, found))
        env = environment.environment(spec, pod, Addresses(address, host.address), found, image.env)
        words = image.command(
            *([environment.expand(word, env) for word in spec.get(field, [])] for field in ("command", "args"))
        )
        message = {spec.get("terminationMessagePath", MESSAGE_PATH): str(self._message)}
        paths = volumes.paths(spec, self._volumes) | message | image.paths
        forwarded = {each: await host.forwarders.address(each) for each in services([*words, *env.values()])}

        def local(text: str) -> str:
            return localize(text, address, paths, forwarded)

        return Prepared([local(word) for word in words], self._base_env() | {name: local(env[name]) for name in env})

    def _base_env(self) -> dict[str, str]:
        """Return the variables of any container; the home of the user must not be used."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._pod.folder),
            "HOSTNAME": self._pod.manifest["metadata"]["name"],
        }

    @property
    def _volumes(self) -> Path:
        return self._pod.folder / "volumes"

    @property
    def _message(self) -> Path:
        return self._pod.folder / f"{self._spec['name']}.termination"

    async def _run_once(self, prepared: Prepared) -> Terminated:
        started_at = self._host.now()
        program = prepared.command[0]
        if shutil.which(program, path=prepared.env["PATH"]) is None:
            error = f'exec: "{program}": executable file not found in $PATH'
            exited = Terminated(NOT_EXECUTABLE, started_at, self._host.now(), error, "StartError")
            self._host.record(self._pod.pod, FAILED, f"Error: {error}")
            self._set(exited)
            return exited
        instance = Instance(prepared.command, prepared.env, self._pod.folder, self.log, self._message)
        instance.start()
        self._instance = instance
        self._host.record(self._pod.pod, STARTED, f"Started container {self._spec['name']}, log in {self.log}")
        self._set(Running(started_at))
        probing = asyncio.create_task(self._probe(instance))
        try:
            code = await instance.wait()
        finally:
            probing.cancel()
            await asyncio.wait([probing])
        self._instance = None
        if not probing.cancelled():
            probing.result()  # raises an error of this program
        message = instance.message(self._spec.get("terminationMessagePolicy", "File"), code)
        exited = Terminated(code, started_at, self._host.now(), message)
        self._set(exited)
        return exited

    async def _probe(self, instance: Instance) -> None:
        """Probe the process: first whether it has started, then whether it is ready and alive."""
        startup = self._parse("startupProbe")
        if startup and not await self._watch_health("Startup", startup, instance, until_healthy=True):
            return
        self.state.started = True
        self.state.ready = self._parse("readinessProbe") is None
        self._changed()
        async with asyncio.TaskGroup() as group:
            if probe := self._parse("readinessProbe"):
                group.create_task(self._watch_readiness(probe))
            if probe := self._parse("livenessProbe"):
                group.create_task(self._watch_health("Liveness", probe, instance))

    def _parse(self, name: str) -> probes.Probe | None:
        return probes.parse(self._spec, name, loopback(self._pod.address))

    async def _watch_readiness(self, probe: probes.Probe) -> None:
        async with aclosing(probes.results(self._host.http, probe)) as results:
            async for result in results:
                self._record_failure("Readiness", result)
                if result.healthy is not None and result.healthy != self.state.ready:
                    self.state.ready = result.healthy
                    self._changed()

    async def _watch_health(
        self, name: str, probe: probes.Probe, instance: Instance, *, until_healthy: bool = False
    ) -> bool:
        """Stop the process when it is unhealthy; return whether it is healthy."""
        async with aclosing(probes.results(self._host.http, probe)) as results:
            async for result in results:
                self._record_failure(name, result)
                if result.healthy is False:
                    note = f"Container {self._spec['name']} failed {name.lower()} probe, will be restarted"
                    self._host.record(self._pod.pod, KILLING, note)
                    grace = self._pod.manifest["spec"].get("terminationGracePeriodSeconds", 30)
                    await instance.stop(grace if probe.grace is None else probe.grace)
                    return False
                if result.healthy and until_healthy:
                    return True
        raise AssertionError("a probe ended")

    def _record_failure(self, name: str, result: probes.Result) -> None:
        if result.failure:
            self._host.record(self._pod.pod, UNHEALTHY, f"{name} probe failed: {result.failure}")

    def _set(self, state: Waiting | Running | Terminated, last: Terminated | None = None) -> None:
        self.state.state = state
        self.state.last = last or self.state.last
        self.state.started = self.state.ready = False
        self._changed()

    async def _pause(self, seconds: float) -> None:
        """Wait for some time, or until the container is stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
