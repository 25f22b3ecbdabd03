"""Set every field of every kind to valid and invalid values.

The API server rejects the object, or it reaches a steady state. Restoring the field restores the first state.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.objects import Kind, Manifest
from tests.support import eventually
from tests.support.installation import CONFIG
from tests.support.manifests import parse

from .examples import examples
from .exemptions import NO_EFFECT, SAME_EFFECT, reason
from .mutations import Mutation, mutations
from .observed_objects import SPECS, TIMEOUT, ObservedObject, State, SteadyState, observing_objects

pytestmark = pytest.mark.slow

SLICE, EXAMPLES = 20, 5
"""The number of mutations per kind outside of the campaign: from the schema, and from the examples."""
SEED = 10
MAX_RECONCILES = 10
"""A change of a spec needs at most 4 reconciles; a hot loop has thousands."""


Choose = Callable[[Kind[Any]], list[Mutation]]


def schema_of(kind: Kind[Any]) -> Manifest:
    crd = parse((CONFIG / "crd" / f"{kind.plural}.yaml").read_text())
    schema: Manifest = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def all_mutations(kind: Kind[Any]) -> list[Mutation]:
    return [*mutations(schema_of(kind)), *examples(kind)]


def some_mutations(kind: Kind[Any]) -> list[Mutation]:
    """A deterministic sample of all mutations."""
    rng = Random(SEED)  # noqa: S311
    return [*rng.sample(mutations(schema_of(kind)), SLICE), *rng.sample(examples(kind), EXAMPLES)]


async def apply_mutation(observed: ObservedObject, mutation: Mutation, before: SteadyState) -> str:
    """Change a field and restore it; return the outcome of the change."""
    start = observed.reconciles
    try:
        if not await observed.put(mutation.applied_to(SPECS[observed.kind])):
            return "changes nothing"
    except errors.Invalid:
        return "rejected"
    after = await observed.wait_steady()
    there = observed.reconciles
    await observed.put(SPECS[observed.kind])
    await eventually(partial(is_restored, observed, before.state), TIMEOUT)
    assert there - start <= MAX_RECONCILES, "no steady state after the change"
    assert observed.reconciles - there <= MAX_RECONCILES, "no steady state after the field was restored"
    return "stalled" if after.stalled else outcome_of(observed, mutation, before.state, after.state)


async def is_restored(observed: ObservedObject, before: State) -> bool:
    now = (await observed.wait_steady()).state
    assert (now - before, before - now) == (frozenset(), frozenset())
    return True


def outcome_of(observed: ObservedObject, mutation: Mutation, before: State, after: State) -> str:
    """Check that an accepted change has an effect that differs from those of other values of the same field."""
    if exemption := reason(NO_EFFECT, mutation):
        observed.exemptions.add(exemption)
        assert after == before, f"has an effect, although {exemption}: {sorted(after ^ before)}"
        return "no effect"
    assert after != before, "has no effect"
    first = observed.first_changes.setdefault((mutation.path, hash(after)), mutation)
    if first is not mutation:
        exemption = reason(SAME_EFFECT, mutation) or reason(SAME_EFFECT, first)
        observed.exemptions.add(exemption)
        assert exemption, f"has the same effect as {first}"
    return "applied"


async def run_mutations(observed: ObservedObject, chosen: list[Mutation]) -> list[str]:
    """Apply mutations one by one, and return a message for each failure."""
    before, differences = await observed.wait_steady(), []
    assert before.state
    for mutation in chosen:
        try:
            observed.outcomes[await apply_mutation(observed, mutation, before)] += 1
        except AssertionError as failure:
            differences.append(f"{observed.kind.name}: {mutation}: {failure}")
            await observed.put(SPECS[observed.kind])
    return differences


async def run_all(observed_objects: list[ObservedObject], caplog: pytest.LogCaptureFixture, choose: Choose) -> None:
    with caplog.at_level(logging.ERROR):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run_mutations(observed, choose(observed.kind))) for observed in observed_objects]
    for observed in observed_objects:
        print(f"{observed.kind.name}: {dict(observed.outcomes)}")  # noqa: T201
    assert not [failure for task in tasks for failure in task.result()]
    assert not [record.getMessage() for record in caplog.records if record.exc_info]


@pytest.fixture
async def observed_objects(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[list[ObservedObject]]:
    async with observing_objects(cluster.kubeconfig, operator_kubeconfig, namespace) as made:
        yield made


def test_every_field_is_mutated() -> None:
    for kind in SPECS:
        schema = schema_of(kind)
        assert {each.field for each in mutations(schema)} == set(schema["properties"])


async def test_some_mutations(observed_objects: list[ObservedObject], caplog: pytest.LogCaptureFixture) -> None:
    await run_all(observed_objects, caplog, some_mutations)
    seen = {outcome for observed in observed_objects for outcome in observed.outcomes}
    assert seen >= {"rejected", "applied", "stalled"}


@pytest.mark.campaign
@pytest.mark.timeout(4 * 3600)
async def test_all_mutations(observed_objects: list[ObservedObject], caplog: pytest.LogCaptureFixture) -> None:
    await run_all(observed_objects, caplog, all_mutations)
    needed = {exemption for observed in observed_objects for exemption in observed.exemptions}
    assert needed == {exemption.why for exemption in (*NO_EFFECT, *SAME_EFFECT)}
