"""Every field of every kind, set to anything: the object is refused, or comes to rest, and comes back from it."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.controllers import controlplane, provisioner, workspaceproxy
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.objects import Key, Kind, Manifest
from tests.controllers.controlplane.planes import Observer, observing
from tests.controllers.controlplane.test_fields import flat, rolling_out
from tests.support import eventually
from tests.support.controllers import running
from tests.support.idle import passes
from tests.support.operator import CONFIG
from tests.support.rotations import site

from .mutations import Mutation, mutations

PATIENCE = 60.0
SLICE = 25
"""How many mutations of a kind are tried in every run of the tests."""
SEED = 10
MOST_PASSES = 40
"""More than any change of a spec needs; a loop without a pause makes thousands."""
VOLATILE = re.compile(
    r"\.metadata\.(uid|resourceVersion|generation|creationTimestamp|labels\.coder\.com/applied-digest)\b"
    r"|\.(status|apiVersion|kind)\b|checksum|\.data\b|clusterIP|nodePort"
)

SPECS: dict[Kind[Any], Manifest] = {
    CONTROL_PLANE: {"operatorAccess": {"disabled": True}},
    PROVISIONER: {"controlPlaneRef": {"name": "one"}},
    WORKSPACE_PROXY: {"controlPlaneRef": {"name": "one"}},
}


def schema_of(kind: Kind[Any]) -> Manifest:
    crd = yaml.safe_load((CONFIG / "crd" / f"{kind.plural}.yaml").read_text())
    schema: Manifest = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


@dataclass
class Patient:
    """An object that is changed and changed back, with the operator that cares for it."""

    runtime: Runtime
    observer: Observer
    kind: Kind[Any]
    key: Key
    outcomes: dict[str, int]

    async def suffer(self, mutation: Mutation, before: set[tuple[str, str]]) -> None:
        spec = {**SPECS[self.kind], mutation.field: mutation.value}
        if mutation.value is None:
            del spec[mutation.field]
        start = passes(self.runtime)
        try:
            await self._put(spec)
        except errors.Invalid:
            return self._count("refused at admission")
        verdict = await self._rest()
        await self._put(SPECS[self.kind])
        await self._rest()
        await eventually(lambda: self._is_as(before), PATIENCE)
        assert passes(self.runtime) - start <= MOST_PASSES, "it does not come to rest"
        return self._count(verdict)

    def state(self) -> set[tuple[str, str]]:
        """All that the operator decides about the children of this object."""
        children = [
            child
            for child in self.observer.children().items()
            if (owner := child[1].controller) is None or (owner.kind, owner.name) == (self.kind.name, self.key.name)
        ]
        entries = (entry for (kind, key), child in children for entry in flat(child.manifest, f"{kind} {key}"))
        return {entry for entry in entries if not VOLATILE.search(entry[0])}

    async def _put(self, spec: Manifest) -> None:
        await self.observer.client.patch(self.kind, self.key, [{"op": "replace", "path": "/spec", "value": spec}])

    async def _rest(self) -> str:
        """Wait until the operator has spoken about the present spec; what it says."""

        async def told() -> str:
            live = await self.observer.client.get_manifest(self.kind, self.key)
            status = live.get("status", {})
            assert status.get("observedGeneration") == live["metadata"]["generation"], status
            conditions = {each["type"]: each for each in status["conditions"]}
            if conditions["Stalled"]["status"] == "True":
                assert conditions["Stalled"]["reason"]
                assert conditions["Stalled"]["message"]
                return "stalled"
            return "followed"

        return await eventually(told, PATIENCE)

    def _is_as(self, before: set[tuple[str, str]]) -> bool:
        now = self.state()
        assert (now - before, before - now) == (set(), set())
        return True

    def _count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


@pytest.fixture
async def patients(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[list[Patient]]:
    """One object of each kind, at rest."""
    builders = (controlplane.build, provisioner.build, workspaceproxy.build)
    async with (
        site(cluster.kubeconfig, namespace, lambda: datetime.now(UTC)) as place,
        running(operator_kubeconfig, [namespace], *builders, connect_to=place.routes) as runtime,
        observing(cluster.kubeconfig, [namespace]) as observer,
        rolling_out(observer),
    ):
        made = []
        for kind, spec in SPECS.items():
            key = Key(namespace, f"demo-{kind.name.lower()}")
            await observer.client.create(kind, {"metadata": {"namespace": namespace, "name": key.name}, "spec": spec})
            made.append(Patient(runtime, observer, kind, key, {}))
        for patient in made:
            await eventually(partial(_is_up, patient), PATIENCE)
        yield made


async def _is_up(patient: Patient) -> bool:
    live = await patient.observer.client.get_manifest(patient.kind, patient.key)
    conditions = {each["type"]: each["status"] for each in live.get("status", {}).get("conditions", [])}
    assert "True" in (conditions.get("Available"), conditions.get("DeploymentReady")), conditions
    return not live["status"].get("retiringKeys")


async def drive(patient: Patient, chosen: list[Mutation]) -> list[str]:
    """What went wrong with which mutation."""
    before, flaws = patient.state(), []
    assert before
    for mutation in chosen:
        try:
            await patient.suffer(mutation, before)
        except AssertionError as flaw:
            flaws.append(f"{patient.kind.name}: {mutation}: {flaw}")
    return flaws


async def drive_all(patients: list[Patient], caplog: pytest.LogCaptureFixture, size: int | None) -> None:
    tasks = []
    with caplog.at_level(logging.ERROR):
        async with asyncio.TaskGroup() as group:
            for patient in patients:
                every = mutations(schema_of(patient.kind))
                chosen = Random(SEED).sample(every, size) if size else every  # noqa: S311 - the same in every run
                tasks.append(group.create_task(drive(patient, chosen)))
    for patient in patients:
        print(f"{patient.kind.name}: {patient.outcomes}")  # noqa: T201
    assert not [flaw for task in tasks for flaw in task.result()]
    assert not [record.getMessage() for record in caplog.records if record.exc_info]


def test_every_field_is_mutated() -> None:
    for kind in SPECS:
        schema = schema_of(kind)
        assert {each.field for each in mutations(schema)} == set(schema["properties"])


async def test_some_of_everything_is_survived(patients: list[Patient], caplog: pytest.LogCaptureFixture) -> None:
    await drive_all(patients, caplog, SLICE)
    seen = {outcome for patient in patients for outcome in patient.outcomes}
    assert seen == {"refused at admission", "followed", "stalled"}


@pytest.mark.campaign
@pytest.mark.timeout(4 * 3600)
async def test_everything_is_survived(patients: list[Patient], caplog: pytest.LogCaptureFixture) -> None:
    await drive_all(patients, caplog, None)
