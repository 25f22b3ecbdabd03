"""Leader election with a Lease: only the holder may write.

It does not depend on synchronized clocks. A standby takes the Lease after it has itself observed it unchanged for the
lease duration. The holder stops `renew_deadline` after the *start* of its last successful renewal, which is before a
standby may take the Lease. `check` is called before every write, so a process that was suspended does not write after
it lost the Lease. If two candidates update the Lease at once, its resourceVersion lets one of them succeed.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import msgspec

from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.http import Http
from coder_k8s.kube.lease import LEASE, Lease, LeaseSpec, can_acquire, claim, release
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, ObjectMeta
from coder_k8s.kube.rules import Rule
from coder_k8s.kube.wait import wait_any

log = logging.getLogger(__name__)

RULES = (Rule(groups=("coordination.k8s.io",), resources=("leases",), verbs=("get", "watch", "create", "update")),)
"""Required only in the namespace of the Lease."""


class LeadershipLost(Exception):
    """This process no longer holds the Lease."""


def boot_time() -> float:
    """Return the seconds since boot, including the time in which the machine was suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def utc_now() -> datetime:
    return datetime.now(UTC)


class ElectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """When a Lease is renewed and lost; times are in seconds."""

    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    clock: Callable[[], float] = boot_time
    now: Callable[[], datetime] = utc_now
    jitter: Callable[[], float] = random.random


class Election:
    """A candidate for a Lease: call `acquire`, then `lead`."""

    def __init__(
        self,
        http: Http,
        key: Key,
        identity: str,
        *,
        field_manager: str,
        metrics: Metrics,
        annotations: Mapping[str, str] = MappingProxyType({}),
        options: ElectionOptions = ElectionOptions(),  # noqa: B008 - it is frozen
    ) -> None:
        self.key = key
        self.identity = identity
        self._candidate = Client(http, field_manager)
        self._holder = Client(http, field_manager, fence=self.check)
        self._annotations = annotations
        self._options = options
        self._request_timeout = options.renew_deadline / 2  # after one timeout there is time for another attempt
        self._clock = options.clock
        self._observed: Lease | None = None
        self._observed_at = options.clock()
        self._leads_until = float("-inf")
        self._last_warning = ""
        metrics.leader.labels(key.name).set_function(lambda: float(self.leading))

    @property
    def leading(self) -> bool:
        """Whether this process may write."""
        return self._clock() < self._leads_until

    def check(self) -> None:
        """Raise `NotLeading` unless this process may write. It is the fence of the client."""
        if not self.leading:
            raise errors.NotLeading(f"{self.identity} does not hold the Lease {self.key}")

    async def acquire(self, stopping: asyncio.Event) -> bool:
        """Wait for the Lease and return True, or return False on shutdown.

        An attempt is never cancelled: it may have acquired the Lease, which must then be released.
        """
        log.info("waiting for the Lease %s", self.key, extra={"identity": self.identity})
        acquired = not stopping.is_set() and (await self._try_acquire() or await self._retry_until_acquired(stopping))
        if acquired:
            log.info("leading", extra={"identity": self.identity})
        return acquired

    async def _retry_until_acquired(self, stopping: asyncio.Event) -> bool:
        """Retry when the holder releases the Lease, and when the Lease expires."""
        available = asyncio.Event()
        acquired = False
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(available), name=f"watch Lease {self.key}")
            while not acquired:
                await wait_any(available, stopping, timeout=self._retry_delay())
                if stopping.is_set():
                    break
                available.clear()
                acquired = await self._try_acquire()
            watching.cancel()
        return acquired

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the work while renewing the Lease; release the Lease after the work has stopped."""
        done = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._renew_loop(done), name=f"renew Lease {self.key}")
                await work()
                done.set()
        finally:
            await self._release()

    async def _try_acquire(self) -> bool:
        started = self._clock()
        try:
            async with asyncio.timeout(self._request_timeout):
                lease = await self._get()
                if not self._can_acquire():
                    return False
                await self._claim(self._candidate, lease)
        except errors.Conflict:
            return False  # another candidate was faster
        except (errors.KubeError, TimeoutError) as error:
            self._warn("cannot acquire the Lease", error)
            return False
        self._leads_until = started + self._options.renew_deadline
        return True

    async def _renew_loop(self, done: asyncio.Event) -> None:
        """Renew the Lease until the work is done."""
        while True:
            await wait_any(done, timeout=max(0.0, min(self._options.retry_period, self._leads_until - self._clock())))
            if done.is_set():
                return
            if not self.leading:
                raise LeadershipLost(f"could not renew the Lease {self.key} within {self._options.renew_deadline:g} s")
            await self._renew()

    async def _renew(self) -> None:
        started = self._clock()
        try:
            async with asyncio.timeout(min(self._request_timeout, self._leads_until - started)):
                await self._renew_or_reclaim()
        except (errors.KubeError, TimeoutError) as error:
            self._warn("cannot renew the Lease", error)
        else:
            self._leads_until = started + self._options.renew_deadline
            self._last_warning = ""

    async def _renew_or_reclaim(self) -> None:
        try:
            await self._claim(self._holder, self._observed)
        except (errors.Conflict, errors.NotFound):
            current = await self._get()
            if current is not None and current.spec.holder_identity != self.identity:
                self._leads_until = float("-inf")
                holder = current.spec.holder_identity
                state = f"is held by {holder}" if holder else "has no holder"
                raise LeadershipLost(f"the Lease {self.key} {state}") from None
            await self._claim(self._holder, current)  # edited or deleted by hand, and still held

    async def _release(self) -> None:
        if not self.leading:
            return
        self._leads_until = float("-inf")  # a standby may acquire the Lease before the response arrives
        try:
            async with asyncio.timeout(self._request_timeout):
                await self._release_or_retry()
        except (errors.KubeError, TimeoutError) as error:
            self._warn("cannot release the Lease", error)
        else:
            log.info("released the Lease %s", self.key, extra={"identity": self.identity})

    async def _release_or_retry(self) -> None:
        try:
            await self._write_release()
        except errors.Conflict:
            current = await self._get()  # a cancelled renewal may have succeeded
            if current is not None and current.spec.holder_identity == self.identity:
                await self._write_release()

    async def _write_release(self) -> None:
        assert self._observed is not None  # noqa: S101 - a holder has observed the Lease
        await self._write(self._candidate, self._observed, release(self._observed.spec, self._options.now()))

    async def _claim(self, client: Client, lease: Lease | None) -> None:
        """Write this identity as the holder; create the Lease if it is None."""
        before = self._observed.spec if self._observed else None
        await self._write(
            client, lease, claim(before, self.identity, self._options.lease_duration, self._options.now())
        )

    async def _write(self, client: Client, lease: Lease | None, spec: LeaseSpec) -> None:
        old = lease.metadata if lease else ObjectMeta(name=self.key.name, namespace=self.key.namespace)
        # An update without managedFields keeps them. The struct has too few of their fields to send them.
        metadata = msgspec.structs.replace(old, annotations={**old.annotations, **self._annotations}, managed_fields=())
        manifest = msgspec.to_builtins(Lease(metadata=metadata, spec=spec))
        self._observe(await (client.replace if lease else client.create)(LEASE, manifest))

    async def _get(self) -> Lease | None:
        try:
            lease = await self._candidate.get(LEASE, self.key)
        except errors.NotFound:
            return None  # the last observation stays: a deletion does not end the right of the holder
        self._observe(lease)
        return lease

    def _observe(self, lease: Lease) -> None:
        if self._observed and lease.metadata.resource_version == self._observed.metadata.resource_version:
            return
        if self._observed is None or lease.spec != self._observed.spec:
            self._observed_at = self._clock()
        self._observed = lease

    def _can_acquire(self) -> bool:
        if self._observed is None:
            return True
        return can_acquire(
            self._observed.spec, self.identity, self._clock() - self._observed_at, self._options.lease_duration
        )

    def _retry_delay(self) -> float:
        """Return the seconds until the next attempt: the retry period, but not longer than the Lease is valid."""
        regular = self._options.retry_period * (1 + self._options.jitter() / 5)
        if self._observed is None:
            return regular
        duration = self._observed.spec.lease_duration_seconds or self._options.lease_duration
        expires_in = self._observed_at + duration - self._clock()
        return min(regular, expires_in) if expires_in > 0 else regular

    async def _watch(self, available: asyncio.Event) -> None:
        """Observe renewals and releases at once. Without a watch the next attempt observes them."""
        fields = f"metadata.name={self.key.name}"
        idle_timeout = 2.0 * self._options.lease_duration
        while True:
            try:
                async for event in self._candidate.watch(
                    LEASE, self.key.namespace, "", seconds=300, idle_timeout=idle_timeout, fields=fields
                ):
                    if event.type in ("ADDED", "MODIFIED"):
                        self._observe(Lease.decode(event.object))
                        if self._can_acquire():
                            available.set()
            except errors.KubeError as error:
                log.debug("watching the Lease %s: %s", self.key, error)
            await asyncio.sleep(self._options.retry_period)

    def _warn(self, action: str, error: Exception) -> None:
        """Log a warning; log repeats at debug level."""
        warning = f"{action} {self.key}: {str(error) or 'timeout'}"
        log.log(logging.DEBUG if warning == self._last_warning else logging.WARNING, "%s", warning)
        self._last_warning = warning
