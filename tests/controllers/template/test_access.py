"""The roles that are sent to Coder make the access of a template that of the spec."""

from typing import Any

import msgspec
import pytest

from coder_k8s.api.template_settings import Access
from coder_k8s.controllers.template.access import AccessPlan, Entry, explain_access, plan_access

ORGANIZATION = "org-id"
GROUPS = {"Everyone": ORGANIZATION, "developers": "dev-id", "admins": "adm-id"}
USERS = {"alice": "alice-id", "Bob": "bob-id"}
NOBODY: dict[str, Entry] = {}
EVERYONE = {ORGANIZATION: Entry("Everyone", "use")}


def planned(access: dict[str, Any], groups: dict[str, Entry] | None = None, users: Any = None) -> AccessPlan:
    wanted = msgspec.convert(access, Access)
    return plan_access(wanted, ORGANIZATION, (EVERYONE if groups is None else groups, GROUPS), (users or {}, USERS))


def test_a_list_without_a_group_that_has_a_role() -> None:
    wanted = msgspec.convert({"everyone": "None", **DEVELOPERS}, Access)
    roles = {"dev-id": Entry("developers", "use")}
    assert plan_access(wanted, ORGANIZATION, (roles, {}), ({}, {})) == AccessPlan()


DEVELOPERS = {"groups": [{"name": "developers", "role": "Use"}]}


@pytest.mark.parametrize(
    ("access", "groups", "users", "group_perms", "user_perms", "changed"),
    [
        ({"everyone": "None"}, None, {}, {ORGANIZATION: ""}, {}, ("everyone",)),
        ({"everyone": "Admin"}, None, {}, {ORGANIZATION: "admin"}, {}, ("everyone",)),
        ({}, {}, {}, {ORGANIZATION: "use"}, {}, ("everyone",)),
        (DEVELOPERS, None, {}, {"dev-id": "use"}, {}, ("group developers",)),
        (
            {"groups": [{"name": "DEVELOPERS", "role": "Admin"}]},
            {**EVERYONE, "dev-id": Entry("developers", "use")},
            {},
            {"dev-id": "admin"},
            {},
            ("group DEVELOPERS",),
        ),
        ({}, {**EVERYONE, "adm-id": Entry("admins", "admin")}, {}, {"adm-id": ""}, {}, ("group admins",)),
        (
            {"users": [{"name": "bob", "role": "Use"}]},
            None,
            {"alice-id": Entry("alice", "use")},
            {},
            {"bob-id": "use", "alice-id": ""},
            ("user bob", "user alice"),
        ),
        (
            {"everyone": "Use", "groups": [{"name": "Everyone", "role": "Admin"}]},
            {},
            {},
            {ORGANIZATION: "use"},
            {},
            ("everyone",),
        ),
    ],
)
def test_changes(
    access: Any, groups: Any, users: Any, group_perms: Any, user_perms: Any, changed: tuple[str, ...]
) -> None:
    assert planned(access, groups, users) == AccessPlan({"group_perms": group_perms, "user_perms": user_perms}, changed)


@pytest.mark.parametrize(
    ("access", "groups", "users"),
    [
        ({}, None, {}),
        ({"everyone": "None"}, {}, {}),
        (DEVELOPERS, {**EVERYONE, "dev-id": Entry("developers", "use")}, {}),
        ({"users": [{"name": "bob", "role": "Admin"}]}, None, {"bob-id": Entry("bob", "admin")}),
        ({}, {**EVERYONE, "adm-id": Entry("admins", "")}, {}),
    ],
)
def test_no_change(access: Any, groups: Any, users: Any) -> None:
    assert planned(access, groups, users) == AccessPlan()


def test_what_coder_does_not_have() -> None:
    access = {"groups": [{"name": "nobody", "role": "Use"}], "users": [{"name": "eve", "role": "Use"}]}
    found = planned(access)
    assert found == AccessPlan(missing=("group nobody", "user eve"))
    assert explain_access(found) == (
        "Coder does not have group nobody, user eve; create it in Coder, or remove it from access"
    )
    assert explain_access(AccessPlan()) == ""


def test_no_change_after_the_change() -> None:
    access = {"everyone": "None", **DEVELOPERS, "users": [{"name": "alice", "role": "Admin"}]}
    users = {"bob-id": Entry("Bob", "use")}
    body = planned(access, None, users).body
    assert body is not None
    after = {key: Entry("x", role) for key, role in {ORGANIZATION: "use", **body["group_perms"]}.items() if role}
    users_after = {key: Entry("x", role) for key, role in {"bob-id": "use", **body["user_perms"]}.items() if role}
    assert planned(access, after, users_after) == AccessPlan()
