"""Every field of every kind, set to anything: the object is refused, or comes to rest, and comes back from it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.objects import Kind, Manifest
from tests.support import eventually
from tests.support.installation import CONFIG

from .examples import examples
from .exemptions import INDISTINCT, INVISIBLE, reason
from .mutations import Mutation, mutations
from .observed_objects import SPECS, TIMEOUT, ObservedObject, State, SteadyState, observing_objects

SLICE, EXAMPLES = 20, 5
"""How many mutations of a kind are tried in every run of the tests: what its schema tells, and what it does not."""
SEED = 10
MOST_PASSES = 10
"""More than any change of a spec needs, which is 4; a loop without a pause makes thousands."""


Choose = Callable[[Kind[Any]], list[Mutation]]


def schema_of(kind: Kind[Any]) -> Manifest:
    crd = yaml.safe_load((CONFIG / "crd" / f"{kind.plural}.yaml").read_text())
    schema: Manifest = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def everything(kind: Kind[Any]) -> list[Mutation]:
    return [*mutations(schema_of(kind)), *examples(kind)]


def some(kind: Kind[Any]) -> list[Mutation]:
    """The same in every run."""
    rng = Random(SEED)  # noqa: S311
    return [*rng.sample(mutations(schema_of(kind)), SLICE), *rng.sample(examples(kind), EXAMPLES)]


async def inject_faults(observed: ObservedObject, mutation: Mutation, before: SteadyState) -> str:
    """Change a field and change it back; what became of the change."""
    start = observed.reconciles
    try:
        if not await observed.put(mutation.applied_to(SPECS[observed.kind])):
            return "changes nothing"
    except errors.Invalid:
        return "refused at admission"
    after = await observed.wait_steady()
    there = observed.reconciles
    await observed.put(SPECS[observed.kind])
    await eventually(partial(is_as, observed, before.state), TIMEOUT)
    assert there - start <= MOST_PASSES, "it does not come to rest"
    assert observed.reconciles - there <= MOST_PASSES, "it does not come to rest on its way back"
    return "stalled" if after.stalled else judged(observed, mutation, before.state, after.state)


async def is_as(observed: ObservedObject, before: State) -> bool:
    now = (await observed.wait_steady()).state
    assert (now - before, before - now) == (frozenset(), frozenset())
    return True


def judged(observed: ObservedObject, mutation: Mutation, before: State, after: State) -> str:
    """What to call a change that was accepted: unlike what was before, and unlike other values of the same field."""
    if exemption := reason(INVISIBLE, mutation):
        observed.exemptions.add(exemption)
        assert after == before, f"shows, although {exemption}: {sorted(after ^ before)}"
        return "without effect"
    assert after != before, "shows nowhere"
    first = observed.first_changes.setdefault((mutation.path, hash(after)), mutation)
    if first is not mutation:
        exemption = reason(INDISTINCT, mutation) or reason(INDISTINCT, first)
        observed.exemptions.add(exemption)
        assert exemption, f"looks like {first}"
    return "followed"


async def drive(observed: ObservedObject, chosen: list[Mutation]) -> list[str]:
    """What went wrong with which mutation."""
    before, differences = await observed.wait_steady(), []
    assert before.state
    for mutation in chosen:
        try:
            observed.outcomes[await inject_faults(observed, mutation, before)] += 1
        except AssertionError as flaw:
            differences.append(f"{observed.kind.name}: {mutation}: {flaw}")
            await observed.put(SPECS[observed.kind])
    return differences


async def drive_all(observed_objects: list[ObservedObject], caplog: pytest.LogCaptureFixture, choose: Choose) -> None:
    with caplog.at_level(logging.ERROR):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(drive(observed, choose(observed.kind))) for observed in observed_objects]
    for observed in observed_objects:
        print(f"{observed.kind.name}: {dict(observed.outcomes)}")  # noqa: T201
    assert not [flaw for task in tasks for flaw in task.result()]
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


async def test_some_of_everything_is_survived(
    observed_objects: list[ObservedObject], caplog: pytest.LogCaptureFixture
) -> None:
    await drive_all(observed_objects, caplog, some)
    seen = {outcome for observed in observed_objects for outcome in observed.outcomes}
    assert seen >= {"refused at admission", "followed", "stalled"}


@pytest.mark.campaign
@pytest.mark.timeout(4 * 3600)
async def test_everything_is_survived(observed_objects: list[ObservedObject], caplog: pytest.LogCaptureFixture) -> None:
    await drive_all(observed_objects, caplog, everything)
    needed = {exemption for observed in observed_objects for exemption in observed.exemptions}
    assert needed == {exemption.why for exemption in (*INVISIBLE, *INDISTINCT)}
