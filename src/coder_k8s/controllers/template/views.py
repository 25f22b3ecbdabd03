"""What coderd has of a template and its versions.

| read | requests |
|---|---|
| `known` | the shared list of templates and, during an import, one version; the rest is from the status |
| `current` | the template, and all its versions or, without a template, the jobs that import versions |

`known` decides whether there is anything to do, and `current` what to do.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from coder_k8s.api.template import CoderTemplate
from coder_k8s.coderd import errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.templates import NO_ID, ImportedVersion, ManagedTemplate
from coder_k8s.controllers.answers import Throttled
from coder_k8s.controllers.queries import INTERVAL, CoderdQueries
from coder_k8s.controllers.tags import covers, key_tags

from .identity import own_version, template_name, version_prefix
from .versions import UNSERVED, Found, Version

POLL = timedelta(seconds=5)
"""Maximum age of a version that is being imported."""
CANDIDATES = 20
"""Versions without a template that are read at most."""


class Target(NamedTuple):
    """The coderd and the organization of a template."""

    coderd: Coderd
    organization: str
    """ID of the organization."""
    plane: str
    user: str
    """ID of the operator's user, who creates the versions of objects."""


class View(NamedTuple):
    """The template in coderd and the versions of the object, in the order in which they were created."""

    template: ManagedTemplate | None
    versions: Sequence[Version] = ()
    owned: bool = True
    served: bool = False
    """Whether a connected provisioner has the tags of the template; only read after a job that nobody took."""
    complete: bool = False
    """Whether the versions are all there are."""

    @property
    def found(self) -> Found | None:
        made = self.template
        return None if made is None else Found(made.id, made.template.active_version_id, self.owned)


class ViewReader:
    """Reads templates and versions."""

    def __init__(self, queries: CoderdQueries) -> None:
        self._queries = queries

    async def known(self, template: CoderTemplate, target: Target, digest: str) -> View:
        """What the shared list and the status have."""
        listed = await self._queries.templates_of(target.coderd, target.organization)
        found = _match(template, listed)
        versions = await self._recorded(template, target, digest)
        owned = found is None or found.id == template.status.template_id
        return await self._with_provisioners(template, target, View(found, versions, owned))

    async def current(self, template: CoderTemplate, target: Target, digest: str) -> View:
        """What coderd has now."""
        found = await self._find(template, target)
        if found is None:
            versions = await self._without_template(template, target, digest)
            return await self._with_provisioners(template, target, View(None, versions, complete=True))
        listed = await target.coderd.versions_of(found.id)
        versions = _own(template, target, listed)
        owned = found.id == template.status.template_id or bool(versions)
        return await self._with_provisioners(template, target, View(found, versions, owned, complete=True))

    async def name_of(self, target: Target, version: str) -> str:
        """The name of any version."""
        return (await self._queries.imported_version(target.coderd, version, INTERVAL)).name

    async def _recorded(self, template: CoderTemplate, target: Target, digest: str) -> list[Version]:
        """The versions that the status has, as they are now if that can change."""
        status = template.status
        active, importing, failed = status.active_version, status.importing, status.failed
        kept = [Version(active.id, active.name, active.digest, "succeeded")] if active and active.digest else []
        if importing is not None and importing.digest == digest:
            try:
                found = await self._queries.imported_version(target.coderd, importing.id, POLL)
            except Throttled:
                return [*kept, Version(importing.id, importing.name, importing.digest, "running")]
            except errors.NotFound:
                return kept  # the database is another one
            return [*kept, *_own(template, target, [found])]
        if failed is not None and failed.digest == digest:
            error, code = failed.message, failed.code
            kept.append(Version(failed.id, failed.name, failed.digest, "failed", error=error, error_code=code))
        return kept

    async def _find(self, template: CoderTemplate, target: Target) -> ManagedTemplate | None:
        """The template by ID, or by name; unlike a list, this also finds a deprecated one."""
        if template.status.template_id:
            try:
                return await target.coderd.template(template.status.template_id)
            except errors.NotFound:
                pass
        try:
            return await target.coderd.template_named(target.organization, template_name(template))
        except errors.NotFound:
            return None

    async def _without_template(self, template: CoderTemplate, target: Target, digest: str) -> list[Version]:
        """The versions of a digest that belong to no template yet, by the jobs that import them."""
        prefix = version_prefix(digest)
        jobs = await target.coderd.import_jobs(target.organization)
        wanted = [each for each in jobs if each.metadata.template_version_name.startswith(prefix)]
        ids = [str(each.input.get("template_version_id", "")) for each in wanted[:CANDIDATES]]
        found = [await target.coderd.imported_version(each) for each in ids if each]
        return _own(template, target, [each for each in found if each.template_id in (None, "", NO_ID)])

    async def _with_provisioners(self, template: CoderTemplate, target: Target, view: View) -> View:
        if not any(UNSERVED.search(each.error) for each in view.versions):
            return view
        daemons = await self._queries.daemons(target.coderd, target.organization, timedelta(seconds=30))
        tags = key_tags(template.spec.provisioner_tags)
        return view._replace(served=any(each.status != "offline" and covers(each.tags, tags) for each in daemons))


def _match(template: CoderTemplate, listed: Iterable[ManagedTemplate]) -> ManagedTemplate | None:
    """The template of an object: by ID, otherwise by name, which is the same in any case."""
    by_id = {each.id: each for each in listed}
    by_name = {each.name.lower(): each for each in by_id.values()}
    return by_id.get(template.status.template_id) or by_name.get(template_name(template).lower())


def _own(template: CoderTemplate, target: Target, found: Iterable[ImportedVersion]) -> list[Version]:
    ordered = sorted(found, key=lambda each: (each.created_at.timestamp(), each.id))
    versions = (own_version(template, each, target.user) for each in ordered)
    return [each for each in versions if each is not None]
