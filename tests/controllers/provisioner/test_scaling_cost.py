"""Requests and writes of idle autoscaled provisioners."""

import pytest

from tests.support.provisioners import ProvisionerNamespace

MINUTES = 4
JOBS, DAEMONS = "provisionerjobs", "provisionerdaemons"


async def measure(place: ProvisionerNamespace, organizations: int, each: int) -> dict[str, float]:
    """Requests per minute to coderd, and status writes, in steady state."""
    state = place.plane.coderd.state
    names = [f"org{index}" for index in range(organizations)]
    for name in names:
        state.add_organization(name)
    made = [f"p-{name}-{index}" for name in names for index in range(each)]
    async with place.operator() as operator:
        for name in made:
            organization = name.split("-")[1]
            await place.make(name, organizationName=organization, autoscaling={"maxReplicas": 5})
        for name in made:
            await place.condition("ProvisionerKeyReady", "KeyReady", "True", name=name, within=300)
        await operator.wait_idle()
        for key in list(state.keys.values()):
            state.log_in(f"{key.name}-0", key.secret)
            await place.roll_out(1, f"provisioner-{key.name}")
        keys = [place.key_of(name) for name in made]
        for _ in range(2):
            place.clock.advance(seconds=61)
            await place.set_plane_status("demo", **place.fresh("entitled"))
            await operator.reconcile(*keys)
        before = {part: place.plane.request_count(part=part) for part in (JOBS, DAEMONS, "")}
        writes = operator.write_requests()
        for _ in range(2 * MINUTES):
            place.clock.advance(seconds=30)
            await operator.reconcile(*keys)
        found = {part: (place.plane.request_count(part=part) - count) / MINUTES for part, count in before.items()}
        return {
            "jobs": found[JOBS],
            "daemons": found[DAEMONS],
            "all": found[""],
            "writes": operator.write_requests() - writes,
        }


async def test_idle_provisioners_share_requests_and_write_nothing(place: ProvisionerNamespace) -> None:
    found = await measure(place, organizations=2, each=3)
    assert found["jobs"] == 2 * 2
    assert found["daemons"] <= 2 * 1
    assert found["all"] <= 2 * 7
    assert found["writes"] == 0


@pytest.mark.campaign
@pytest.mark.timeout(1800)
async def test_100_idle_provisioners_in_10_organizations(place: ProvisionerNamespace) -> None:
    found = await measure(place, organizations=10, each=10)
    print(found)  # noqa: T201
    assert found["jobs"] == 10 * 2
    assert found["all"] <= 10 * 7
    assert found["writes"] == 0
