"""The access of a template: which roles to send to Coder, which merges them with those that it has.

| a group or user | sent as |
|---|---|
| of the spec, with another role in Coder or none | its role |
| of the spec, with the same role in Coder | nothing |
| of the spec, that Coder does not have | nothing: reported |
| that the spec does not have, with a role in Coder | an empty role, which removes it |

All members of an organization are a group, whose ID is that of the organization; `everyone` is its role.
"""

from collections.abc import Iterable, Mapping

import msgspec

from coder_k8s.api.template_settings import Access, Grant

FEATURE = "template_rbac"
ROLES = {"None": "", "Use": "use", "Admin": "admin"}


class Entry(msgspec.Struct, frozen=True):
    """A group or user that has a role in Coder."""

    name: str
    role: str


Entries = Mapping[str, Entry]
"""By ID."""


class AccessPlan(msgspec.Struct, frozen=True):
    """What to do about the access of a template."""

    body: Mapping[str, Mapping[str, str]] | None = None
    """The change; `None` if there is none."""
    changed: tuple[str, ...] = ()
    """Whose roles the change sets or removes."""
    missing: tuple[str, ...] = ()
    """Groups and users of the spec that Coder does not have."""


def plan_access(
    wanted: Access,
    organization: str,
    groups: tuple[Entries, Mapping[str, str]],
    users: tuple[Entries, Mapping[str, str]],
) -> AccessPlan:
    """Compare the access of the spec with that of a template.

    `organization` is an ID. `groups` and `users` are those with a role in Coder, and the IDs of all names.
    """
    of_groups, missing_groups = _wanted(wanted.groups, _identifiers(*groups), "group")
    of_users, missing_users = _wanted(wanted.users, _identifiers(*users), "user")
    of_groups[organization] = Entry("everyone", ROLES[wanted.everyone])
    group_roles = _changes(of_groups, groups[0])
    user_roles = _changes(of_users, users[0])
    changed = [each.name if key == organization else f"group {each.name}" for key, each in group_roles.items()]
    changed += [f"user {each.name}" for each in user_roles.values()]
    body = {
        "group_perms": {key: each.role for key, each in group_roles.items()},
        "user_perms": {key: each.role for key, each in user_roles.items()},
    }
    return AccessPlan(body if changed else None, tuple(changed), (*missing_groups, *missing_users))


def explain_access(found: AccessPlan) -> str:
    """Return what cannot be applied and what to do; empty if everything can."""
    if not found.missing:
        return ""
    return f"Coder does not have {', '.join(found.missing)}; create it in Coder, or remove it from access"


def hides_from_everyone(access: Access | None) -> bool:
    """Whether a new template must not be visible until its access is set."""
    return access is not None and access.everyone == "None"


def _identifiers(current: Entries, listed: Mapping[str, str]) -> dict[str, str]:
    """The IDs of names; the list of all may be older than the roles, or incomplete."""
    return {each.name: key for key, each in current.items()} | {name: key for name, key in listed.items() if key}


def _wanted(grants: Iterable[Grant], known: Mapping[str, str], noun: str) -> tuple[dict[str, Entry], list[str]]:
    """Return the roles of the spec by ID, and what Coder does not have. Names are equal in any case."""
    identifiers = {name.casefold(): identifier for name, identifier in known.items()}
    found: dict[str, Entry] = {}
    missing = []
    for grant in grants:
        if identifier := identifiers.get(grant.name.casefold()):
            found[identifier] = Entry(grant.name, ROLES[grant.role])
        else:
            missing.append(f"{noun} {grant.name}")
    return found, missing


def _changes(wanted: Entries, current: Entries) -> dict[str, Entry]:
    """Return the roles that differ; those to be removed are empty."""
    none = Entry("", "")
    changed = {key: each for key, each in wanted.items() if current.get(key, none).role != each.role}
    removed = {key: Entry(each.name, "") for key, each in current.items() if key not in wanted and each.role}
    return changed | removed
