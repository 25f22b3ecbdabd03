import pytest

from tests.support.controlplanes import PlaneNamespace
from tests.support.databases import CoderdDatabase
from tests.support.simulated_pods import SimulatedPods

from .site import UpdateSite


@pytest.fixture
async def site(demo: PlaneNamespace, database: CoderdDatabase) -> UpdateSite:
    """A control plane without pods, and a database with the schema of the first image."""
    pods = SimulatedPods(demo, database)
    await pods.create_schema()
    return UpdateSite(demo, pods)
