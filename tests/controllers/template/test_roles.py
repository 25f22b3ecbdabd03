"""The access of a template, which needs a license."""

from coder_k8s.dev.coderd_server import User
from tests.support.templates import TemplateNamespace

DEVELOPERS = "8b1c0d2b-0000-4000-8000-000000000001"
FOREIGN = "8b1c0d2b-0000-4000-8000-000000000002"


async def test_access(place: TemplateNamespace) -> None:
    state = place.coderd.state
    state.install_license()
    user = User("gopher", ("member",))
    state.add_token(user)
    state.templates.groups.update({DEVELOPERS: "developers", FOREIGN: "foreign"})
    async with place.operator() as operator:
        grants = {"groups": [{"name": "developers", "role": "Use"}], "users": [{"name": "gopher", "role": "Admin"}]}
        await place.make(access={"everyone": "None", **grants})
        await place.ready(operator)
        assert (place.template.groups, place.template.users) == ({DEVELOPERS: "use"}, {user.id: "admin"})
        note = await place.note("TemplateUpdated")
        assert note == "Changed access of template go: group developers, user gopher", "nobody else ever had access"
        place.template.groups[FOREIGN] = "admin"
        await operator.later(minutes=11)
        await place.event("DriftReverted")
        assert place.template.groups == {DEVELOPERS: "use"}
        writes = place.writes()
        for _ in range(8):
            await operator.later(minutes=2)
        assert place.writes() == writes
        await place.change(access={"groups": [{"name": "nobody", "role": "Use"}]})
        message = "Coder does not have group nobody; create it in Coder, or remove it from access"
        await place.message("SettingsApplied", "SettingsRejected", message)


async def test_more_users_than_requests(place: TemplateNamespace) -> None:
    """While the operator's limit of requests does not allow to read the access, the conditions stay as they are."""
    state = place.coderd.state
    state.install_license()
    users = {name: User(name, ("member",)) for name in (f"user-{number}" for number in range(60))}
    for user in users.values():
        state.add_token(user)
    async with place.operator() as operator:
        await place.make(access={"users": [{"name": name, "role": "Use"} for name in users]})
        await place.import_next(operator)
        message = "Waiting to read the access of template go: the operator limits its requests"
        await place.message("SettingsApplied", "RateLimited", message)
        await place.condition("Promoted", "Promoted", "True")
        await operator.later(minutes=1)
        await place.condition("Ready", "AllReady", "True")
        assert place.template.users == {user.id: "use" for user in users.values()}
    coderd_writes = place.writes()
    async with place.operator() as operator:
        for _ in range(3):
            await operator.later(minutes=1)
        assert (operator.writes(), place.writes()) == (0, coderd_writes)
