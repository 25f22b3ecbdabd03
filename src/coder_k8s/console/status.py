"""The status of all Coder resources in a namespace or cluster, and of the operator."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from coder_k8s.controllers.labels import MANAGED
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.wait import wait_any

from . import tree
from .objects import POD, Found, Target, all_kinds, find_all, not_found, parse_target
from .operator import find_operator, operator_node
from .session import CommandFailed, Session

REFRESH = 5.0
"""Seconds after which the state of the operator is read again."""
BURST = 0.2
"""Seconds to wait for further changes before they are shown."""


async def load_tree(session: Session, name: str | None, operator_namespace: str) -> tree.Tree:
    """Return the tree of a namespace, or of one object and its children."""
    target = parse_target(name) if name else None
    found = await _build(session, await find_all(session), target, operator_namespace)
    if target is not None and not found.items:
        raise CommandFailed(not_found(session, target, *([target.kind] if target.kind else all_kinds())))
    return found


async def watch_trees(
    session: Session, name: str | None, operator_namespace: str
) -> AsyncGenerator[tuple[tree.Tree, str], None]:
    """Yield the tree now and after each change, with an error if it may be out of date."""
    target = parse_target(name) if name else None
    first = await load_tree(session, name, operator_namespace)
    yield first, ""
    namespaces = [session.namespace]
    informers: list[Informer[Any]] = [
        Informer(session.client, kind, namespaces, metrics=Metrics()) for kind in all_kinds()
    ]
    pods = Informer(session.client, POD, namespaces, metrics=Metrics(), labels=MANAGED) if first.pods_listed else None
    changed = asyncio.Event()
    async with _running([*informers, *([pods] if pods is not None else [])], changed) as watches:
        while True:
            objects = [(each.kind, of) for each in informers for of in sorted(each, key=lambda of: of.key)]
            found = Found(objects, None if pods is None else sorted(pods, key=lambda pod: pod.key))
            error = next((each.error for each in watches if each.error), "")
            yield await _build(session, found, target, operator_namespace), error
            await wait_any(changed, timeout=REFRESH)
            await asyncio.sleep(BURST)
            changed.clear()


@asynccontextmanager
async def _running(informers: list[Informer[Any]], changed: asyncio.Event) -> AsyncIterator[list[Informer[Any]]]:
    """Run informers, which set the event after each change."""
    for informer in informers:
        informer.listen(lambda _: changed.set())
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        for informer in informers:
            await informer.synced.wait()
        yield informers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _build(session: Session, found: Found, target: Target | None, operator_namespace: str) -> tree.Tree:
    operator = operator_node(await find_operator(session, operator_namespace), datetime.now(UTC))
    return tree.build(found, target, operator)
