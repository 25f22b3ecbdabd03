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
