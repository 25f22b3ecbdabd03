"""Changes that users request with annotations, so that they also take effect if the operator starts later."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime
from typing import Any

from coder_k8s.api import PROVISIONER, CoderObject, CoderProvisioner, ProvisionerCondition, reasons
from coder_k8s.controllers.labels import PAUSED, paused
from coder_k8s.controllers.provisioner.objects import ROTATE, secret_name
from coder_k8s.kube import errors
from coder_k8s.kube.conditions import find
from coder_k8s.kube.objects import Key, Kind, Object, micro_timestamp

from .objects import Target, all_kinds, find_one, resource
from .render import printable
from .session import CommandFailed, Session

SECRET_ANNOTATIONS = Kind("", "v1", "Secret", "secrets", Object, metadata_only=True)
WATCH_SECONDS = 300
IDLE_TIMEOUT = 330.0

Write = Callable[[str], None]


async def pause(session: Session, target: Target) -> str:
    """Pause reconciliation of an object, and return the result as one line."""
    kind, found = await find_one(session, target, *all_kinds())
    if paused(found):
        return f"{_title(kind, found)} is already paused"
    await _annotate(session, kind, found, PAUSED, "true")
    return f"{_title(kind, found)} is paused"


async def resume(session: Session, target: Target) -> str:
    kind, found = await find_one(session, target, *all_kinds())
    if not paused(found):
        return f"{_title(kind, found)} is not paused"
    await _annotate(session, kind, found, PAUSED, None)
    return f"{_title(kind, found)} is resumed"


async def rotate(session: Session, target: Target, now: datetime) -> tuple[CoderProvisioner, str]:
    """Request a rotation of the key, unless one is pending.

    Returns the provisioner as it was before, to distinguish the next key from the current one.
    """
    _, found = await find_one(session, target, PROVISIONER)
    assert isinstance(found, CoderProvisioner)  # noqa: S101 - the only requested kind
    title = _title(PROVISIONER, found)
    if paused(found):
        raise CommandFailed(f"{title} is paused: resume it first")
    if await _is_pending(session, found):
        return found, f"{title}: rotation already requested at {found.metadata.annotations[ROTATE]}"
    await _annotate(session, PROVISIONER, found, ROTATE, micro_timestamp(now))
    current = found.status.provisioner_key_name or "none"
    hint = f"follow it with `kubectl coder status {found.metadata.name}`"
    return found, f"{title}: rotation requested (current key: {current}); {hint}"


async def follow(session: Session, before: CoderProvisioner, timeout_seconds: float, write: Write) -> None:
    """Report the progress of a rotation until the new key is in use and no old key is left."""
    last = ""
    try:
        async with asyncio.timeout(timeout_seconds), aclosing(_versions(session, before)) as versions:
            async for seen in versions:
                line, done = progress(before, seen)
                if line != last:
                    write(line)
                    last = line
                if done:
                    return
    except TimeoutError:
        raise CommandFailed(f"not complete after {timeout_seconds:g} s; the operator continues the rotation") from None


async def _versions(session: Session, of: CoderProvisioner) -> AsyncGenerator[CoderProvisioner, None]:
    """Yield the current version of a provisioner, then every new version."""
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
                    raise CommandFailed(f"{_title(PROVISIONER, of)} was deleted")
                if event.type != "BOOKMARK":
                    yield CoderProvisioner.decode(event.object)


def progress(before: CoderProvisioner, seen: CoderProvisioner) -> tuple[str, bool]:
    """Return the progress of a rotation as one line, and whether it is complete."""
    status = seen.status
    if status.provisioner_key_id in ("", before.status.provisioner_key_id):
        return f"key {before.status.provisioner_key_name}: waiting for the new key{_pending_reason(seen)}", False
    if status.retiring_keys:
        old = ", ".join(key.name for key in status.retiring_keys)
        return f"key {status.provisioner_key_name}: created; {old} is deleted when no daemon uses it", False
    return f"key {status.provisioner_key_name}: in use; all older keys are deleted", True


def _pending_reason(seen: CoderProvisioner) -> str:
    """Return reason and message of the key condition, if the key is not ready."""
    condition = find(seen.status.conditions, ProvisionerCondition.PROVISIONER_KEY_READY)
    if condition is None or condition.reason == reasons.KEY_READY:
        return ""
    return printable(f" ({condition.reason}: {condition.message})" if condition.message else f" ({condition.reason})")


async def _is_pending(session: Session, found: CoderProvisioner) -> bool:
    """Return whether the last request is pending. The Secret records the request that its key was created for."""
    requested = found.metadata.annotations.get(ROTATE, "")
    if not requested:
        return False
    key = Key(found.metadata.namespace, secret_name(found))
    try:
        secret = await session.client.get(SECRET_ANNOTATIONS, key)
    except (errors.NotFound, errors.Forbidden):
        return False  # a second request is harmless
    return secret.metadata.annotations.get(ROTATE, "") != requested


async def _annotate(session: Session, kind: Kind[Any], found: CoderObject, name: str, value: str | None) -> None:
    patch = {"metadata": {"uid": found.metadata.uid, "annotations": {name: value}}}
    try:
        await session.client.merge(kind, found.key, patch)
    except errors.Forbidden as refusal:
        raise CommandFailed(f"not allowed: {refusal}") from None


def _title(kind: Kind[Any], found: CoderObject) -> str:
    return f"{resource(kind).noun} {found.key}"
