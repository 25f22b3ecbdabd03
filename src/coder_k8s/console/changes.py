"""What a person asks of the operator: by an annotation, so that nothing is lost if it does not run."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime
from typing import Any

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY, CoderProvisioner, ProvisionerCondition
from coder_k8s.controllers.labels import PAUSED, paused
from coder_k8s.controllers.provisioner.objects import ROTATE, secret_name
from coder_k8s.kube import errors
from coder_k8s.kube.conditions import find
from coder_k8s.kube.objects import Key, Kind, Object, micro_timestamp

from .objects import WORDS, Coder, Target, find_one
from .render import printable
from .session import Refused, Session

KINDS = (CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY)
SECRET_ANNOTATIONS = Kind("", "v1", "Secret", "secrets", Object, metadata_only=True)
WATCH_SECONDS = 300
IDLE_TIMEOUT = 330.0

Say = Callable[[str], None]


async def pause(session: Session, target: Target) -> str:
    """Let the operator write nothing more about an object; what happened, in a line."""
    kind, found = await find_one(session, target, *KINDS)
    if paused(found):
        return f"{_title(kind, found)} was paused already"
    await _annotate(session, kind, found, PAUSED, "true")
    return f"{_title(kind, found)} is paused"


async def resume(session: Session, target: Target) -> str:
    kind, found = await find_one(session, target, *KINDS)
    if not paused(found):
        return f"{_title(kind, found)} is not paused"
    await _annotate(session, kind, found, PAUSED, None)
    return f"{_title(kind, found)} is resumed"


async def rotate(session: Session, target: Target, now: datetime) -> tuple[CoderProvisioner, str]:
    """Ask for another provisioner key, unless somebody did and is still waiting for it.

    Returns the provisioner as it was before, so that its next key can be told from the one that it has.
    """
    _, found = await find_one(session, target, PROVISIONER)
    assert isinstance(found, CoderProvisioner)  # noqa: S101 - the only kind that was asked for
    title = _title(PROVISIONER, found)
    if paused(found):
        raise Refused(f"{title} is paused: resume it first")
    if await _is_awaited(session, found):
        return found, f"{title}: another key was asked for already, at {found.metadata.annotations[ROTATE]}"
    await _annotate(session, PROVISIONER, found, ROTATE, micro_timestamp(now))
    return found, f"{title}: asked for another key in place of {found.status.provisioner_key_name or 'none'}"


async def follow(session: Session, before: CoderProvisioner, patience: float, say: Say) -> None:
    """Tell how far a rotation is until the new key is in use and no old one is left."""
    said = ""
    try:
        async with asyncio.timeout(patience), aclosing(_sightings(session, before)) as sightings:
            async for seen in sightings:
                line, done = progress(before, seen)
                if line != said:
                    say(line)
                    said = line
                if done:
                    return
    except TimeoutError:
        raise Refused(f"not done within {patience:g} s; the operator goes on with it") from None


async def _sightings(session: Session, of: CoderProvisioner) -> AsyncGenerator[CoderProvisioner, None]:
    """A provisioner as it is, and again whenever it changes."""
    named = f"metadata.name={of.metadata.name}"
    while True:
        seen = await session.client.get(PROVISIONER, of.key)
        yield seen
        version = seen.metadata.resource_version
        events = session.client.watch(
            PROVISIONER, of.metadata.namespace, version, seconds=WATCH_SECONDS, idle_timeout=IDLE_TIMEOUT, fields=named
        )
        async with aclosing(events):
            async for event in events:
                if event.type == "DELETED":
                    raise Refused(f"{_title(PROVISIONER, of)} was deleted")
                if event.type != "BOOKMARK":
                    yield CoderProvisioner.decode(event.object)


def progress(before: CoderProvisioner, seen: CoderProvisioner) -> tuple[str, bool]:
    """Where a rotation stands, and whether that is the end of it."""
    status = seen.status
    if status.provisioner_key_id in ("", before.status.provisioner_key_id):
        return f"key {before.status.provisioner_key_name}: waiting for a new one{_hitch(seen)}", False
    if status.retiring_keys:
        old = ", ".join(key.name for key in status.retiring_keys)
        return f"key {status.provisioner_key_name}: made; {old} goes when no daemon uses it", False
    return f"key {status.provisioner_key_name}: in use, and no older one is left", True


def _hitch(seen: CoderProvisioner) -> str:
    """What the operator says about a key that it has not replaced yet."""
    condition = find(seen.status.conditions, ProvisionerCondition.PROVISIONER_KEY_READY)
    if condition is None or condition.reason == "KeyReady":
        return ""
    return printable(f" ({condition.reason}: {condition.message})" if condition.message else f" ({condition.reason})")


async def _is_awaited(session: Session, found: CoderProvisioner) -> bool:
    """Whether the last request is unanswered; the Secret of a key names the request that it answers."""
    asked = found.metadata.annotations.get(ROTATE, "")
    if not asked:
        return False
    key = Key(found.metadata.namespace, secret_name(found))
    try:
        secret = await session.client.get(SECRET_ANNOTATIONS, key)
    except (errors.NotFound, errors.Forbidden):
        return False  # one request more does no harm
    return secret.metadata.annotations.get(ROTATE, "") != asked


async def _annotate(session: Session, kind: Kind[Any], found: Coder, name: str, value: str | None) -> None:
    patch = {"metadata": {"uid": found.metadata.uid, "annotations": {name: value}}}
    try:
        await session.client.merge(kind, found.key, patch)
    except errors.Forbidden as refusal:
        raise Refused(f"not allowed: {refusal}") from None


def _title(kind: Kind[Any], found: Coder) -> str:
    return f"{WORDS[kind]} {found.key}"
