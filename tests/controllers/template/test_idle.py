"""A template that needs no change costs one list per two minutes, and causes no writes."""

from coder_k8s.api import CONTROL_PLANE, TEMPLATE
from tests.support.templates import NAME, PLANE, TemplateNamespace, inline


async def test_steady_state(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(settings={"displayName": "Go"})
        await place.make("rust", source=inline("# rust"))
        await place.pending_version(2)
        for name in (NAME, "rust"):
            await place.condition("Imported", "Importing", name=name)
        await operator.wait_idle()
        for version in place.versions:
            place.finish(version)
        place.clock.advance(seconds=6)
        await operator.reconcile(place.key, place.key_of("rust"))
        for name in (NAME, "rust"):
            await place.condition("Ready", "AllReady", "True", name=name)
        place.clock.advance(minutes=2)
        await operator.reconcile(place.key, place.key_of("rust"))
        requests, writes, coderd_writes = place.coderd.state.requests.total(), operator.writes(), place.writes()
        for _ in range(30):
            place.clock.advance(minutes=2)
            await operator.reconcile(place.key, place.key_of("rust"))
        assert (operator.writes(), place.writes()) == (writes, coderd_writes)
        lists = 30
        organizations = 30
        assert place.coderd.state.requests.total() - requests <= lists + organizations
    async with place.operator() as operator:
        await operator.reconcile(place.key, place.key_of("rust"))
        assert (operator.writes(), place.writes()) == (0, coderd_writes)


async def test_lost_status(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        before = await place.ready(operator)
        writes = place.writes()
    await place.client.merge(TEMPLATE, place.key, {"status": None}, "status")
    async with place.operator() as operator:
        await place.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        after = (await place.get()).status
        assert (after.template_id, after.active_version, after.promoted_version) == (
            before.status.template_id,
            before.status.active_version,
            before.status.promoted_version,
        )
        assert place.writes() == writes


async def test_control_plane_that_does_not_answer(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.set_plane_status(operatorAccessReady=False)
        await place.make()
        message = f"Waiting for operator access of CoderControlPlane {PLANE}; see its condition OperatorAccessReady"
        await place.message("Imported", "OperatorAccessNotReady", message)
        await place.set_plane_status(operatorAccessReady=True)
        await place.ready(operator)
        await place.client.merge(CONTROL_PLANE, place.key_of(PLANE), {"spec": {"replicas": 0}})
        await place.condition("Imported", "ScaledToZero", "True")
        await place.condition("Ready", "AllReady", "True")
        await place.change(source=inline("# two"))
        await place.condition("Ready", "ScaledToZero", "Unknown")
        await place.set_plane_status(update={"image": "coder:v3", "step": "Stop"})
        await place.condition("Ready", "Upgrading", "Unknown")
        await place.set_plane_status(update={"image": "coder:v3", "step": "Window"})
        await place.client.merge(CONTROL_PLANE, place.key_of(PLANE), {"spec": {"replicas": 1}})
        await place.import_next(operator, 2)
        await place.condition("Ready", "AllReady", "True")


async def test_coderd_that_fails(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        place.coderd.state.revoke_token(place.coderd.state.token)
        await operator.later(minutes=2)
        await place.condition("Imported", "CredentialsRejected", "False")


async def test_unknown_organization(place: TemplateNamespace) -> None:
    async with place.operator():
        await place.make(organizationName="nowhere")
        await place.condition("Stalled", "OrganizationNotFound", "True")


async def test_renamed_organization(place: TemplateNamespace) -> None:
    """An organization is identified by its ID once it is found."""
    state = place.coderd.state
    organization = state.add_organization("team")
    state.add_key("key", organization=organization)
    state.connect_daemon("daemon", state.place("key", organization))
    async with place.operator() as operator:
        await place.make(organizationName="team")
        await place.ready(operator)
        state.rename_organization("team", "crew")
    async with place.operator() as operator:
        await operator.later(minutes=2)
        await place.change(source=inline("# two"))
        second = await place.import_next(operator, 2)
        await place.condition("Ready", "AllReady", "True")
        assert (place.template.active, second.organization) == (second.id, organization)


async def test_uploads_are_limited(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        names = [f"t-{number}" for number in range(8)]
        for number, name in enumerate(names):
            await place.make(name, source=inline(f"# {number}"))
        await place.pending_version(6)
        await operator.wait_idle()
        assert len(place.versions) == 6
        place.clock.advance(minutes=1)
        await operator.reconcile(*map(place.key_of, names))
        assert len(place.versions) == 8


async def test_sources_that_cannot_be_used(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(source={"configMapRef": {"name": "files"}})
        message = "ConfigMap files does not exist; create it, or correct source.configMapRef.name"
        await place.message("Stalled", "SourceMissing", message)
        await place.make("other", source={"inline": {"files": {"README.md": "x"}}})
        await place.condition("Stalled", "SourceInvalid", "True", name="other")
        await operator.wait_idle()
        assert place.writes() == 0
