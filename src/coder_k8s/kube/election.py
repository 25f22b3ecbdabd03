"""Leadership by a Lease: one process at a time may write.

Neither side trusts the clock on the wall. A standby takes a Lease that it has itself seen unchanged for as long as the
record promises. The holder counts from the *start* of its last successful renewal: its right to write ends
`renew_deadline` later, before anyone who saw that renewal may take the Lease. `check` stands before every write, so a
process that was frozen meanwhile learns of its loss before it can do harm. When two reach for the Lease at once, its
resourceVersion lets one of them have it.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec

from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.http import Http
from coder_k8s.kube.lease import LEASE, Lease, LeaseSpec, claim, free, release
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, ObjectMeta, newer
from coder_k8s.kube.rules import Rule
from coder_k8s.kube.wait import wait_any

log = logging.getLogger(__name__)

RULES = (Rule(groups=("coordination.k8s.io",), resources=("leases",), verbs=("get", "watch", "create", "update")),)
"""Needed in the namespace of the Lease alone."""


class LeadershipLost(Exception):
    """Another process may lead by now."""


def boot_time() -> float:
    """Seconds on a clock that nobody can set and that goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def utc_now() -> datetime:
    return datetime.now(UTC)


class Election:
    """One candidate for one Lease: `acquire`, then `lead`."""

    def __init__(
        self,
        http: Http,
        key: Key,
        identity: str,
        *,
        field_manager: str,
        metrics: Metrics,
        lease_duration: int = 15,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        clock: Callable[[], float] = boot_time,
        now: Callable[[], datetime] = utc_now,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.key = key
        self.identity = identity
        self._candidate = Client(http, field_manager)
        self._holder = Client(http, field_manager, fence=self.check)
        self._lease_duration = lease_duration
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        self._request_timeout = renew_deadline / 2  # one connection that hangs must leave time for another
        self._clock = clock
        self._now = now
        self._jitter = jitter
        self._seen: Lease | None = None
        self._seen_since = clock()
        self._until = float("-inf")
        self._trouble = ""
        metrics.leader.labels(key.name).set_function(lambda: float(self.leading))

    @property
    def leading(self) -> bool:
        """Whether this process may write now."""
        return self._clock() < self._until

    def check(self) -> None:
        """The fence before every write."""
        if not self.leading:
            raise errors.NotLeading(f"{self.identity} does not hold the Lease {self.key}")

    async def acquire(self, stopping: asyncio.Event) -> bool:
        """Wait until the Lease is ours; false when we are told to stop before.

        A try is never interrupted half way: it may have taken the Lease, and then it must be given back.
        """
        log.info("waiting for the Lease %s", self.key, extra={"identity": self.identity})
        taken = not stopping.is_set() and (await self._try_to_take() or await self._outwait(stopping))
        if taken:
            log.info("leading", extra={"identity": self.identity})
        return taken

    async def _outwait(self, stopping: asyncio.Event) -> bool:
        """Try again when the holder lets go, and when it may have lost its right."""
        freed = asyncio.Event()
        taken = False
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(freed), name=f"watch Lease {self.key}")
            while not taken:
                await wait_any(freed, stopping, timeout=self._pause())
                if stopping.is_set():
                    break
                freed.clear()
                taken = await self._try_to_take()
            watching.cancel()
        return taken

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work while the Lease is ours; it is let go only after the work has stopped."""
        done = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep(done), name=f"renew Lease {self.key}")
                await work()
                done.set()
        finally:
            await self._release()

    async def _try_to_take(self) -> bool:
        started = self._clock()
        try:
            async with asyncio.timeout(self._request_timeout):
                lease = await self._look()
                if not self._free():
                    return False
                await self._claim(self._candidate, lease)
        except errors.Conflict:
            return False  # somebody was faster
        except (errors.KubeError, TimeoutError) as trouble:
            self._report("cannot take the Lease", trouble)
            return False
        self._until = started + self._renew_deadline
        return True

    async def _keep(self, done: asyncio.Event) -> None:
        """Renew until the work is done."""
        while True:
            await wait_any(done, timeout=max(0.0, min(self._retry_period, self._until - self._clock())))
            if done.is_set():
                return
            if not self.leading:
                raise LeadershipLost(f"could not renew the Lease {self.key} within {self._renew_deadline:g} s")
            await self._renew()

    async def _renew(self) -> None:
        started = self._clock()
        try:
            async with asyncio.timeout(min(self._request_timeout, self._until - started)):
                await self._renew_or_look()
        except (errors.KubeError, TimeoutError) as trouble:
            self._report("cannot renew the Lease", trouble)
        else:
            self._until = started + self._renew_deadline
            self._trouble = ""

    async def _renew_or_look(self) -> None:
        try:
            await self._claim(self._holder, self._seen)
        except (errors.Conflict, errors.NotFound):
            current = await self._look()
            if current is not None and current.spec.holder_identity != self.identity:
                self._until = float("-inf")
                raise LeadershipLost(
                    f"the Lease {self.key} is held by {current.spec.holder_identity or 'nobody'}"
                ) from None
            await self._claim(self._holder, current)  # edited or deleted by hand: it is still ours

    async def _release(self) -> None:
        if not self.leading:
            return
        self._until = float("-inf")  # whoever sees the release may lead, before we hear that it was written
        try:
            async with asyncio.timeout(self._request_timeout):
                await self._let_go()
        except (errors.KubeError, TimeoutError) as trouble:
            self._report("cannot release the Lease", trouble)
        else:
            log.info("released the Lease %s", self.key, extra={"identity": self.identity})

    async def _let_go(self) -> None:
        try:
            await self._write_release()
        except errors.Conflict:
            current = await self._look()  # a renewal that was cut off may have been written all the same
            if current is not None and current.spec.holder_identity == self.identity:
                await self._write_release()

    async def _write_release(self) -> None:
        assert self._seen is not None  # noqa: S101 - who leads has seen the Lease
        await self._write(self._candidate, self._seen, release(self._seen.spec, self._now()))

    async def _claim(self, client: Client, lease: Lease | None) -> None:
        """Write that the Lease is ours, over what was seen, or anew."""
        before = self._seen.spec if self._seen else None
        await self._write(client, lease, claim(before, self.identity, self._lease_duration, self._now()))

    async def _write(self, client: Client, lease: Lease | None, spec: LeaseSpec) -> None:
        if lease is None:
            new = Lease(metadata=ObjectMeta(name=self.key.name, namespace=self.key.namespace), spec=spec)
            self._observe(await client.create(LEASE, msgspec.to_builtins(new)))
        else:
            # An update without managedFields keeps them; our struct knows too little of them to send them back.
            kept = msgspec.structs.replace(lease.metadata, managed_fields=())
            self._observe(await client.replace(LEASE, msgspec.to_builtins(Lease(metadata=kept, spec=spec))))

    async def _look(self) -> Lease | None:
        try:
            lease = await self._candidate.get(LEASE, self.key)
        except errors.NotFound:
            return None  # what was seen last still counts: deleting the Lease ends nobody's right to it
        self._observe(lease)
        return lease

    def _observe(self, lease: Lease) -> None:
        if self._seen and not newer(lease.metadata.resource_version, self._seen.metadata.resource_version):
            return
        if self._seen is None or lease.spec != self._seen.spec:
            self._seen_since = self._clock()
        self._seen = lease

    def _free(self) -> bool:
        if self._seen is None:
            return True
        return free(self._seen.spec, self.identity, self._clock() - self._seen_since, self._lease_duration)

    def _pause(self) -> float:
        """Until the next try: a while, but not past the moment at which the holder loses its right."""
        regular = self._retry_period * (1 + self._jitter() / 5)
        if self._seen is None:
            return regular
        duration = self._seen.spec.lease_duration_seconds or self._lease_duration
        expires_in = self._seen_since + duration - self._clock()
        return min(regular, expires_in) if expires_in > 0 else regular

    async def _watch(self, freed: asyncio.Event) -> None:
        """Notice renewals and releases at once; without a watch they are noticed at the next try."""
        fields = f"metadata.name={self.key.name}"
        idle_timeout = 2.0 * self._lease_duration
        while True:
            try:
                async for event in self._candidate.watch(
                    LEASE, self.key.namespace, "", seconds=300, idle_timeout=idle_timeout, fields=fields
                ):
                    if event.type in ("ADDED", "MODIFIED"):
                        self._observe(Lease.decode(event.object))
                        if self._free():
                            freed.set()
            except errors.KubeError as trouble:
                log.debug("watching the Lease %s: %s", self.key, trouble)
            await asyncio.sleep(self._retry_period)

    def _report(self, what: str, trouble: Exception) -> None:
        line = f"{what} {self.key}: {str(trouble) or 'no answer in time'}"
        log.log(logging.DEBUG if line == self._trouble else logging.WARNING, "%s", line)
        self._trouble = line
