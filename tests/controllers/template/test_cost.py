"""The requests of templates in steady state depend on the number of organizations, and not on that of templates."""

from collections.abc import Sequence
from uuid import uuid4

import pytest

from coder_k8s.controllers.template.archive import archive, content_digest
from coder_k8s.controllers.template.identity import message_of
from coder_k8s.kube.objects import Key
from tests.support.operators import Operator
from tests.support.templates import TemplateNamespace, inline

ORGANIZATIONS = 5
PHASES = 4
"""Groups of templates that are reconciled at different times."""
LICENSED = {"access": {}, "settings": {"displayName": "Go", "requireActiveVersion": True}}


async def add_templates(place: TemplateNamespace, number: int, *, licensed: bool) -> list[Key]:
    """Create templates that Coder has already, as after a loss of all statuses."""
    state = place.coderd.state
    names = ["default", *(f"team-{index}" for index in range(1, ORGANIZATIONS))]
    ids = [state.default_organization(), *(state.add_organization(name) for name in names[1:])]
    keys = []
    for index in range(number):
        name, content, where = f"t-{index}", f"# {index}", index % ORGANIZATIONS
        packed, file = archive({"main.tf": content.encode()}), str(uuid4())
        digest = content_digest(packed)
        state.templates.files[file] = (state.owner.id, digest)
        state.templates.archives[file] = packed
        made = await place.make(
            name, source=inline(content), organizationName=names[where], **(LICENSED if licensed else {})
        )
        template = state.templates.add_template(name, organization=ids[where])
        message = message_of(made, digest, "generation 1")
        version = state.templates.add_version(
            f"{digest[:12]}-1", organization=ids[where], template=template, message=message, file=file
        )
        place.finish(version)
        state.templates.activate_version(template, version.id)
        keys.append(made.key)
    return keys


async def idle(place: TemplateNamespace, operator: Operator, keys: Sequence[Key], minutes: int) -> int:
    """Reconcile each template every two minutes; return the number of requests to coderd."""
    before = place.coderd.state.requests.total()
    for turn in range(minutes * PHASES // 2):
        place.clock.advance(seconds=120 / PHASES)
        await operator.reconcile(*keys[turn % PHASES :: PHASES])
    return place.coderd.state.requests.total() - before


async def measure(place: TemplateNamespace, number: int, minutes: int, *, licensed: bool) -> float:
    """Requests per minute in steady state, in which nothing is written, also after a restart."""
    if licensed:
        place.coderd.state.install_license()
    keys = await add_templates(place, number, licensed=licensed)
    async with place.operator() as operator:
        for _ in range(2 + number // 50):
            await idle(place, operator, keys, 2)
        for key in keys:
            await place.condition("Ready", "AllReady", "True", name=key.name)
        writes, coderd_writes = operator.writes(), place.writes()
        requests = await idle(place, operator, keys, minutes)
        assert (operator.writes(), place.writes()) == (writes, coderd_writes)
    async with place.operator() as operator:
        await idle(place, operator, keys, minutes // 3)
        assert (operator.writes(), place.writes()) == (0, coderd_writes)
    return requests / minutes


LISTS = ORGANIZATIONS / 2
"""Per minute."""
ENTITLEMENTS = 1 / 2


@pytest.mark.parametrize("licensed", [False, True])
async def test_requests_in_steady_state(place: TemplateNamespace, licensed: bool) -> None:
    """For an hour, and for 20 minutes after a restart."""
    measured = await measure(place, 10, 60, licensed=licensed)
    assert measured <= LISTS + (ENTITLEMENTS + 10 / 10 if licensed else 0)


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("licensed", [False, True])
async def test_requests_of_200_templates(place: TemplateNamespace, licensed: bool) -> None:
    measured = await measure(place, 200, 60, licensed=licensed)
    print(f"{measured} requests per minute")  # noqa: T201
    assert measured <= LISTS + (ENTITLEMENTS + 200 / 10 if licensed else 0)
