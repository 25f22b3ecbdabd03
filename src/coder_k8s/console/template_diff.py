"""Shows how a template in Coder differs from its CoderTemplate. Values of variables are not shown."""

import difflib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from coder_k8s.api import CONTROL_PLANE, TEMPLATE, CoderControlPlane, CoderTemplate
from coder_k8s.api.template_settings import Access
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.errors import CoderdError, NotFound, NotSupported
from coder_k8s.coderd.templates import ImportedVersion, ManagedTemplate
from coder_k8s.controllers.template.access import FEATURE, AccessPlan, Entry, plan_access
from coder_k8s.controllers.template.archive import is_left_out
from coder_k8s.controllers.template.flux import FluxReader
from coder_k8s.controllers.template.identity import own_version, template_name
from coder_k8s.controllers.template.settings import SettingsPlan, entitled_features, plan, settings
from coder_k8s.controllers.template.sources import FileReader, Source, SourceError
from coder_k8s.kube import errors
from coder_k8s.kube.objects import Key

from .coderd import ServiceProxy, coderd_of
from .render import printable
from .session import CommandFailed, Session


class Planned(msgspec.Struct, frozen=True):
    """What the operator would change besides files."""

    settings: SettingsPlan = SettingsPlan()
    access: AccessPlan = AccessPlan()


class Current(msgspec.Struct, frozen=True):
    """What Coder has: the template, its active version, and the files of that."""

    template: ManagedTemplate
    version: ImportedVersion
    files: Mapping[str, bytes]


async def show(session: Session, name: str, *, content: bool, use_session_token: bool = False) -> str:
    """Return the differences as text; with `content`, also those of the lines of files."""
    template = await _template(session, name)
    source = await _source(session, template)
    plane = await _plane(session, template)
    coderd = await coderd_of(session, plane, use_session_token=use_session_token)
    try:
        organization = await coderd.organization(template.status.organization_id or template.spec.organization_name)
        current = await _current(coderd, organization.id, template)
        planned = await _planned(coderd, organization.id, template, current)
    except CoderdError as error:
        raise CommandFailed(f"Coder of control plane {plane.metadata.name} cannot be queried: {error}") from None
    lines = text(template, organization.name, source, current, planned, content=content)
    return "\n".join(map(printable, lines))


def text(
    template: CoderTemplate,
    organization: str,
    source: Source,
    current: Current | None,
    planned: Planned,
    *,
    content: bool = False,
) -> Iterator[str]:
    """Yield the lines: the template, its files, its settings, and what would happen."""
    active = f"active version {current.version.name}" if current else "which does not exist in Coder"
    yield f"Template {template_name(template)} in organization {organization}, {active}"
    kept = {name: data for name, data in source.files.items() if not is_left_out(name)}
    files = list(_files(kept, current.files if current else {}, content=content))
    yield from ["Files", *files] if files else []
    own = own_version(template, current.version) if current else None
    same = own is not None and own.digest == source.digest
    if own is not None and not files and not same:
        yield "Variables or tags"
        yield "  differ from those of the active version"
    changed = list(_settings_lines(template, current.template.settings if current else {}, planned.settings))
    yield from ["Settings", *changed] if changed else []
    access = list(_access_lines(planned.access))
    yield from ["Access", *access] if access else []
    changes = (planned.settings.body or planned.access.body) is not None
    yield f"Result: {_result(template, current, imports=bool(files) or not same, changes=changes)}"


def _result(template: CoderTemplate, current: Current | None, *, imports: bool, changes: bool) -> str:
    if template.spec.management_policy == "Observe":
        return "the template is only observed, so that nothing would change."
    if current is None:
        return "a version with these files would be imported, and the template created."
    if imports:
        made = "imported" if template.spec.promotion.policy == "OnSuccess" else "imported, and not made active"
        return f"a version with these files would be {made}, unless Coder has one."
    return "settings or access would be changed." if changes else "nothing would change."


def _files(wanted: Mapping[str, bytes], current: Mapping[str, bytes], *, content: bool) -> Iterator[str]:
    for name in sorted({*wanted, *current}):
        before, after = current.get(name), wanted.get(name)
        if before == after:
            continue
        lines = list(_changed_lines(name, before or b"", after or b""))
        mark = "+" if before is None else "-" if after is None else "~"
        added = sum(line.startswith("+") for line in lines)
        removed = sum(line.startswith("-") for line in lines)
        counts = f" (+{added} -{removed})" if lines and mark == "~" else ""
        yield f"  {mark} {name}{counts}"
        yield from (f"      {line}" for line in lines if content)


def _changed_lines(name: str, before: bytes, after: bytes) -> Iterator[str]:
    """Yield the lines of a text that differ; none for other files."""
    try:
        old, new = before.decode().splitlines(), after.decode().splitlines()
    except UnicodeDecodeError:
        return
    found = difflib.unified_diff(old, new, name, name, lineterm="", n=1)
    yield from (line for line in found if not line.startswith(("---", "+++")))


def _settings_lines(template: CoderTemplate, current: Mapping[str, Any], planned: SettingsPlan) -> Iterator[str]:
    by_field = {each.field: (key, each.value) for key, each in settings(template.spec.settings).items()}
    for field in planned.changed:
        key, value = by_field.get(field, (field, template_name(template)))
        yield f"  {field}: {_shown(current.get(key))} -> {_shown(value)}"
    for field in planned.not_entitled:
        yield f"  {field}: not covered by the license, and not applied"
    for field in planned.needs_consent:
        yield f"  {field}: would delete workspaces, and needs schedule.allowWorkspaceDeletion"


def _access_lines(planned: AccessPlan) -> Iterator[str]:
    roles = [role for each in (planned.body or {}).values() for role in each.values()]
    yield from (f"  {name}: {role or 'removed'}" for name, role in zip(planned.changed, roles, strict=True))
    yield from (f"  {name}: does not exist in Coder" for name in planned.missing)


def _shown(value: Any) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


async def _planned(coderd: Coderd, organization: str, template: CoderTemplate, current: Current | None) -> Planned:
    try:
        entitled = entitled_features(await coderd.entitlements())
    except NotSupported:
        entitled = frozenset()
    name = template_name(template) if current else None
    planned = plan(template.spec.settings, current.template.settings if current else {}, entitled, name)
    if template.spec.access is None or current is None:
        return Planned(planned)
    if FEATURE not in entitled:
        return Planned(planned._replace(not_entitled=(*planned.not_entitled, "access")))
    return Planned(planned, await _access(coderd, organization, template.spec.access, current.template.id))


async def _access(coderd: Coderd, organization: str, wanted: Access, template: str) -> AccessPlan:
    roles = await coderd.template_roles(template)
    users = [await coderd.find_user(each.name) for each in wanted.users]
    return plan_access(
        wanted,
        organization,
        (
            {each.id: Entry(each.name, each.role) for each in roles.group},
            {each.name: each.id for each in await coderd.groups(organization)},
        ),
        (
            {each.id: Entry(each.username, each.role) for each in roles.users},
            {each.username: each.id for each in users if each is not None},
        ),
    )


async def _current(coderd: Coderd, organization: str, template: CoderTemplate) -> Current | None:
    try:
        found = await (
            coderd.template(template.status.template_id)
            if template.status.template_id
            else coderd.template_named(organization, template_name(template))
        )
    except NotFound:
        return None
    version = await coderd.imported_version(found.template.active_version_id)
    return Current(found, version, _unpacked(await coderd.download(version.job.file_id)))


def _unpacked(data: bytes) -> dict[str, bytes]:
    """Return the files of an archive in Coder, which may be of any tool."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            entries = [each for each in archive if each.isreg()]
            found = {each.name.removeprefix("./"): archive.extractfile(each) for each in entries}
            return {name: opened.read() for name, opened in found.items() if opened and not is_left_out(name)}
    except tarfile.TarError:
        raise CommandFailed("the files of the active version in Coder cannot be read") from None


async def _source(session: Session, template: CoderTemplate) -> Source:
    reader = FileReader(session.client, FluxReader(session.client, ServiceProxy(session.http), {}))
    try:
        return await reader.read(template)
    except SourceError as error:
        raise CommandFailed(f"the source of CoderTemplate {template.metadata.name}: {error.message}") from None


async def _template(session: Session, name: str) -> CoderTemplate:
    try:
        return await session.client.get(TEMPLATE, Key(session.namespace, name))
    except errors.NotFound:
        raise CommandFailed(f"There is no CoderTemplate {name} in {session.where}") from None


async def _plane(session: Session, template: CoderTemplate) -> CoderControlPlane:
    name = template.spec.control_plane_ref.name
    try:
        return await session.client.get(CONTROL_PLANE, Key(template.metadata.namespace, name))
    except errors.NotFound:
        raise CommandFailed(f"There is no CoderControlPlane {name} in {session.where}") from None
