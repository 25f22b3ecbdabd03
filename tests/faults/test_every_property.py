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
from tests.support.operator import CONFIG

from .examples import examples
from .mutations import Mutation, mutations
from .patients import PATIENCE, SPECS, Patient, Rest, State, admitted
from .quiet import ALIKE, QUIET, reason

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


async def suffer(patient: Patient, mutation: Mutation, before: Rest) -> str:
    """Change a field and change it back; what became of the change."""
    start = patient.reconciles
    try:
        if not await patient.put(mutation.applied_to(SPECS[patient.kind])):
            return "changes nothing"
    except errors.Invalid:
        return "refused at admission"
    after = await patient.rest()
    there = patient.reconciles
    await patient.put(SPECS[patient.kind])
    await eventually(partial(is_as, patient, before.state), PATIENCE)
    assert there - start <= MOST_PASSES, "it does not come to rest"
    assert patient.reconciles - there <= MOST_PASSES, "it does not come to rest on its way back"
    return "stalled" if after.stalled else judged(patient, mutation, before.state, after.state)


async def is_as(patient: Patient, before: State) -> bool:
    now = (await patient.rest()).state
    assert (now - before, before - now) == (frozenset(), frozenset())
    return True


def judged(patient: Patient, mutation: Mutation, before: State, after: State) -> str:
    """What to call a change that was accepted: unlike what was before, and unlike other values of the same field."""
    if excuse := reason(QUIET, mutation):
        patient.excuses.add(excuse)
        assert after == before, f"shows, although {excuse}: {sorted(after ^ before)}"
        return "without effect"
    assert after != before, "shows nowhere"
    first = patient.looks.setdefault((mutation.path, hash(after)), mutation)
    if first is not mutation:
        excuse = reason(ALIKE, mutation) or reason(ALIKE, first)
        patient.excuses.add(excuse)
        assert excuse, f"looks like {first}"
    return "followed"


async def drive(patient: Patient, chosen: list[Mutation]) -> list[str]:
    """What went wrong with which mutation."""
    before, flaws = await patient.rest(), []
    assert before.state
    for mutation in chosen:
        try:
            patient.outcomes[await suffer(patient, mutation, before)] += 1
        except AssertionError as flaw:
            flaws.append(f"{patient.kind.name}: {mutation}: {flaw}")
            await patient.put(SPECS[patient.kind])
    return flaws


async def drive_all(patients: list[Patient], caplog: pytest.LogCaptureFixture, choose: Choose) -> None:
    with caplog.at_level(logging.ERROR):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(drive(patient, choose(patient.kind))) for patient in patients]
    for patient in patients:
        print(f"{patient.kind.name}: {dict(patient.outcomes)}")  # noqa: T201
    assert not [flaw for task in tasks for flaw in task.result()]
    assert not [record.getMessage() for record in caplog.records if record.exc_info]


@pytest.fixture
async def patients(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[list[Patient]]:
    async with admitted(cluster.kubeconfig, operator_kubeconfig, namespace) as made:
        yield made


def test_every_field_is_mutated() -> None:
    for kind in SPECS:
        schema = schema_of(kind)
        assert {each.field for each in mutations(schema)} == set(schema["properties"])


async def test_some_of_everything_is_survived(patients: list[Patient], caplog: pytest.LogCaptureFixture) -> None:
    await drive_all(patients, caplog, some)
    seen = {outcome for patient in patients for outcome in patient.outcomes}
    assert seen >= {"refused at admission", "followed", "stalled"}


@pytest.mark.campaign
@pytest.mark.timeout(4 * 3600)
async def test_everything_is_survived(patients: list[Patient], caplog: pytest.LogCaptureFixture) -> None:
    await drive_all(patients, caplog, everything)
    needed = {excuse for patient in patients for excuse in patient.excuses}
    assert needed == {excuse.why for excuse in (*QUIET, *ALIKE)}
