"""A walk of random changes of one template, and a model of what Coder has to have after each of them."""

import io
import tarfile
from collections.abc import Callable
from random import Random
from typing import Any

from coder_k8s.api import TEMPLATE
from coder_k8s.controllers.labels import PROMOTE
from coder_k8s.dev.coderd_server import User
from coder_k8s.dev.coderd_server.templates import Template, Version
from tests.support.operators import Operator
from tests.support.templates import FINALIZER, NAME, PLANE, TemplateNamespace

from .settings_table import BY_FIELD, SETTINGS, in_coder, in_spec

CONTENTS = 5
BROKEN = 4
"""The content whose import fails."""
GROUP = "8b1c0d2b-0000-4000-8000-000000000001"
MAX_RECONCILES = 40
Content = tuple[int, str, str]
"""The number of the content, the value of a variable, and that of a tag."""


class Walk:
    """The spec of a template, and what follows from it."""

    def __init__(self, place: TemplateNamespace, seed: str, *, licensed: bool, reliable: bool = True) -> None:
        """`reliable` is whether coderd receives all requests; an archiving that is lost waits for the next change."""
        self.place = place
        self.reliable = reliable
        self.random = Random(seed)  # noqa: S311 - the same in every run
        self.licensed = licensed
        self.user = User("gopher", ("member",))
        place.coderd.state.add_token(self.user)
        place.coderd.state.templates.groups[GROUP] = "developers"
        if licensed:
            place.coderd.state.install_license()
        self.content: Content = (0, "", "")
        self.chosen: dict[str, int] = {}
        self.options: dict[str, Any] = {"history": 3}
        self.promote = ""
        self.versions: dict[Content, str] = {}
        """The version of each content that was imported since the template exists."""
        self.active = ""
        self.settings: dict[str, Any] = {}
        self.roles: tuple[dict[str, str], dict[str, str]] = ({}, {})

    @property
    def spec(self) -> dict[str, Any]:
        number, region, zone = self.content
        variables = {"variables": [{"name": "region", "value": region}]} if region else {}
        tags = {"provisionerTags": {"zone": zone}} if zone else {}
        source = {"inline": {"files": {"main.tf": f"# {number}"}}}
        settings = {"settings": in_spec(self.chosen)}
        return {"controlPlaneRef": {"name": PLANE}, "source": source, **variables, **tags, **settings, **self.options}

    @property
    def observes(self) -> bool:
        return self.options.get("managementPolicy") == "Observe"

    @property
    def template(self) -> Template:
        return self.place.template

    async def begin(self, operator: Operator) -> None:
        await self.place.make(**self.spec)
        await self.settle(operator)
        self.adopt_state()
        self.check_versions()

    def adopt_state(self) -> None:
        """Take over what a new template has without the spec."""
        self.settings = dict(self.template.settings)
        self.roles = dict(self.template.groups), dict(self.template.users)

    async def step(self, operator: Operator) -> None:
        """Change something, and check what follows."""
        move = self.random.choice(MOVES)
        before, writes = self.spec, self.place.writes()
        move(self)
        print(f"{move.__name__}: {self.content} {self.options} {self.promote}")  # noqa: T201 - shown if the step fails
        await self.place.client.merge(TEMPLATE, self.place.key, {"spec": merge_patch(before, self.spec)})
        await self.place.set_annotations(TEMPLATE, NAME, {PROMOTE: self.promote or None})
        await self.settle(operator)
        if self.observes:
            assert self.place.writes() == writes or move in CHANGES_IN_CODER
        else:
            self.check_versions()
            self.check_settings()
        await self.check_object()

    async def settle(self, operator: Operator) -> None:
        """Complete imports, and reconcile until the status has the result."""
        queue = self.place.coderd.state.queue
        for _ in range(MAX_RECONCILES):
            await operator.wait_idle()
            pending = [job for job in queue.jobs if job.status == "pending"]
            for job in pending:
                broken = f"# {BROKEN}".encode() in files_of(self.place, job.file)["main.tf"]
                queue.finish_job(job.id, "exit status 1" if broken else "")
            await operator.later(minutes=2)
            conditions = await self.place.conditions()
            concluded = "True" in (conditions["Ready"][0], conditions["Stalled"][0])
            if concluded and not pending:
                return
        raise AssertionError(await self.place.conditions())

    def check_versions(self) -> None:
        """The active version is the wanted one, each content was imported once, and old versions are archived."""
        found = self.template
        known = self.place.coderd.state.templates.versions
        own = [each for each in known.values() if each.template == found.id and each.author.username == "admin"]
        if self.content not in self.versions:
            [self.versions[self.content]] = {each.id for each in own} - set(self.versions.values())
        assert len(own) == len(self.versions), "no content is imported twice"
        wanted = known[self.versions[self.content]]
        number, _, zone = self.content
        job = self.place.coderd.state.queue.job(wanted.job)
        assert files_of(self.place, job.file)["main.tf"] == f"# {number}".encode()
        assert job.tags.get("zone", "") == zone
        self.active = self._wanted_active(own, wanted)
        assert found.active == self.active
        kept = [each for each in own if not each.archived and each.id not in (self.active, wanted.id)]
        assert len(kept) <= self.options["history"] or not self.reliable

    def _wanted_active(self, own: list[Version], wanted: Version) -> str:
        named = next((each for each in own if each.name == self.promote), None)
        if self.options.get("promotion") == {"policy": "Manual"}:
            if named is not None and self.is_imported(named):
                return named.id
            return self.active
        return wanted.id if self.is_imported(wanted) else self.active

    def is_imported(self, version: Version) -> bool:
        return self.place.coderd.state.queue.job(version.job).status == "succeeded"

    def check_settings(self) -> None:
        """Managed settings and roles are those of the spec; the others are as before."""
        found = self.template
        self.settings |= in_coder(self.chosen, licensed=self.licensed)
        assert found.settings == self.settings
        assert found.name == self.options.get("name", NAME)
        if self.licensed and "access" in self.options:
            access = self.options["access"]
            everyone = {found.organization: access["everyone"].lower()} if access["everyone"] != "None" else {}
            groups = {GROUP: "use"} if access["groups"] else {}
            self.roles = {**everyone, **groups}, {self.user.id: "admin"} if access["users"] else {}
        assert (found.groups, found.users) == self.roles

    async def check_object(self) -> None:
        found = await self.place.get()
        deletes = self.options.get("deletionPolicy") == "Delete" and not self.observes
        assert (FINALIZER in found.metadata.finalizers) is deletes
        conditions = await self.place.conditions()
        broken = self.content[0] == BROKEN and not self.observes
        assert conditions["Ready"] == (("False", "ImportFailed") if broken else ("True", "AllReady"))
        assert found.status.active_version is not None
        assert found.status.active_version.id == self.template.active
        assert found.status.template_id == self.template.id


def files_of(place: TemplateNamespace, file: str) -> dict[str, bytes]:
    content = place.coderd.state.templates.archives.get(file)
    if content is None:
        return {"main.tf": b""}
    with tarfile.open(fileobj=io.BytesIO(content)) as found:
        return {each.name: found.extractfile(each).read() for each in found}  # type: ignore[union-attr]


def merge_patch(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The change between two objects; `None` removes a field."""
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    patch = {
        name: merge_patch(before[name], value) if isinstance(value, dict) and name in before else value
        for name, value in changed.items()
    }
    return {**patch, **{name: None for name in before if name not in after}}


def change_content(walk: Walk) -> None:
    walk.content = (walk.random.randrange(CONTENTS), *walk.content[1:])


def change_variable(walk: Walk) -> None:
    walk.content = (walk.content[0], walk.random.choice(["", "eu", "us"]), walk.content[2])


def change_tag(walk: Walk) -> None:
    walk.content = (*walk.content[:2], walk.random.choice(["", "a"]))


def change_settings(walk: Walk) -> None:
    fields = walk.random.sample(sorted(BY_FIELD), walk.random.randrange(len(SETTINGS)))
    walk.chosen = {field: walk.random.randrange(2) for field in fields}


def set_option(name: str, *values: Any) -> Callable[[Walk], None]:
    """A change of one field, which `None` removes."""

    def move(walk: Walk) -> None:
        walk.options.pop(name, None)
        if (value := walk.random.choice(values)) is not None:
            walk.options[name] = value

    move.__name__ = f"change_{name}"
    return move


def change_promoted_version(walk: Walk) -> None:
    names = {each.name for each in walk.place.versions if each.id in walk.versions.values()}
    walk.promote = walk.random.choice([*sorted(names), "", "nothing-1"])


def promote_in_coder(walk: Walk) -> None:
    """An administrator makes another version active; it may be one of the operator."""
    templates = walk.place.coderd.state.templates
    if walk.observes:
        return
    imported = [
        each for each in templates.versions_of(walk.template.id) if not each.archived and walk.is_imported(each)
    ]
    templates.activate_version(walk.template.id, walk.random.choice(imported).id)


def edit_in_coder(walk: Walk) -> None:
    """An administrator changes a setting, which stays if it is not managed."""
    setting = walk.random.choice([each for each in SETTINGS if walk.licensed or not each.licensed])
    value = setting.values[walk.random.randrange(2)][1]
    walk.template.settings[setting.name] = walk.settings[setting.name] = value


ACCESS = [
    {"everyone": everyone, "groups": groups, "users": users}
    for everyone in ("None", "Use", "Admin")
    for groups in ([], [{"name": "developers", "role": "Use"}])
    for users in ([], [{"name": "gopher", "role": "Admin"}])
]
CHANGES_IN_CODER = (promote_in_coder, edit_in_coder)
MOVES = (
    change_content,
    change_content,
    change_variable,
    change_tag,
    change_settings,
    change_settings,
    change_promoted_version,
    set_option("history", 1, 3, 10),
    set_option("promotion", None, {"policy": "Manual"}),
    set_option("deletionPolicy", None, "Delete"),
    set_option("managementPolicy", None, None, "Observe"),
    set_option("name", None, "golang"),
    set_option("access", None, *ACCESS),
    *CHANGES_IN_CODER,
)
