"""The status of all Coder resources in a namespace or cluster, and of the operator."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from coder_k8s.controllers.labels import MANAGED
from coder_k8s.kube import errors
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Kind
from coder_k8s.kube.wait import wait_any

from . import tree
from .objects import POD, Found, all_kinds, find_all, not_found, parse_target
from .operator import find_operator, operator_node
from .session import CommandFailed, Session

REFRESH = 5.0
"""Seconds after which the state of the operator is read again."""
BURST = 0.2
"""Seconds to wait for further changes before they are shown."""


async def load_tree(session: Session, name: str | None, operator_namespace: str) -> tree.Tree:
    """Return the tree of a namespace, or of one object and its children."""
    loaded, _ = await _load(session, name, operator_namespace)
    return loaded


async def watch_trees(
    session: Session, name: str | None, operator_namespace: str
) -> AsyncGenerator[tuple[tree.Tree, str], None]:
    """Yield the tree now and after each change, with an error if it may be out of date."""
    last, found = await _load(session, name, operator_namespace)
    yield last, ""
    target, operator = parse_target(name) if name else None, last.operator
    informers: list[Informer[Any]] = [_informer(session, kind) for kind in all_kinds()]
    pods = _informer(session, POD, MANAGED) if found.pods is not None else None
    async with _running([*informers, *([pods] if pods is not None else [])]) as watches:
        while True:
            error = ""
            if all(each.synced.is_set() and not each.error for each in watches.informers):
                objects = [(each.kind, of) for each in informers for of in sorted(each, key=lambda of: of.key)]
                found = Found(objects, None if pods is None else sorted(pods, key=lambda pod: pod.key))
            else:
                found, error = await _list_instead(session, found)
            if (seen := await find_operator(session, operator_namespace)).failures:
                error = error or seen.failures[0]
            else:
                operator = operator_node(seen, datetime.now(UTC))
            yield tree.build(found, target, operator), error
            await watches.wait()


async def _load(session: Session, name: str | None, operator_namespace: str) -> tuple[tree.Tree, Found]:
    target = parse_target(name) if name else None
    found = await find_all(session)
    operator = operator_node(await find_operator(session, operator_namespace), datetime.now(UTC))
    loaded = tree.build(found, target, operator)
    if target is not None and not loaded.items:
        raise CommandFailed(not_found(session, target, *([target.kind] if target.kind else all_kinds())))
    return loaded, found


async def _list_instead(session: Session, known: Found) -> tuple[Found, str]:
    """List the objects while a watch fails; what is known, with the error, if that also fails."""
    try:
        return await find_all(session), ""
    except (errors.KubeError, CommandFailed) as error:
        return known, str(error)


def _informer(session: Session, kind: Kind[Any], labels: str = "") -> Informer[Any]:
    return Informer(session.client, kind, [session.namespace], metrics=Metrics(), labels=labels)


class _Watches:
    """Informers, and whether one of them has a change."""

    def __init__(self, informers: list[Informer[Any]]) -> None:
        self.informers = informers
        self._changed = asyncio.Event()
        for informer in informers:
            informer.listen(lambda _: self._changed.set())

    async def wait(self) -> None:
        """Wait for a change, and for those that follow at once; or until the operator is read again."""
        await wait_any(self._changed, timeout=REFRESH)
        await asyncio.sleep(BURST)
        self._changed.clear()


@asynccontextmanager
async def _running(informers: list[Informer[Any]]) -> AsyncIterator[_Watches]:
    """Run informers, and wait until they have listed the objects, unless the API server does not respond."""
    watches = _Watches(informers)
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(REFRESH):
                for informer in informers:
                    await informer.synced.wait()
        yield watches
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
