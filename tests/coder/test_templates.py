"""Templates in a real Coder, which imports them with Terraform."""

import os
import shutil
from typing import Any

import pytest

from coder_k8s.api import TEMPLATE, CoderTemplate
from coder_k8s.controllers import controlplane, template
from coder_k8s.kube.objects import Key, Manifest
from tests.support import eventually
from tests.support.namespaces import Namespace
from tests.support.real_coder import RealPlane

from .coder_client import CoderClient
from .versions import MOSTLY_LATEST

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("terraform") is None, reason="provisioners of Coder need terraform on PATH"),
]

PROVISIONERS = [
    {"name": "CODER_PROVISIONER_DAEMONS", "value": "1"},
    {"name": "PATH", "value": os.environ["PATH"]},
]
NAME = "hello"


def source(content: str) -> Manifest:
    """A template whose only provider is built into Terraform, because the tests have no registry."""
    files = {"main.tf": f'resource "terraform_data" "it" {{\n  input = "{content}"\n}}\n{VARIABLE}'}
    return {"inline": {"files": {**files, "modules/empty.tf": "# not used\n"}}}


VARIABLE = 'variable "region" {\n  type = string\n  default = "eu"\n}\n'
BROKEN = {"inline": {"files": {"main.tf": 'resource "terraform_data" "it" {\n'}}}


class Human(CoderClient):
    """The first user of Coder, who is an owner."""

    token: str

    async def get(self, path: str) -> Any:
        status, body = await self.request("GET", path, self.token)
        assert status == 200, body
        return body

    async def send(self, method: str, path: str, body: Any = None, expected: int = 200) -> Any:
        status, answer = await self.request(method, path, self.token, body)
        assert status == expected, answer
        return answer

    async def template(self, name: str = NAME) -> Any:
        return await self.get(f"/organizations/default/templates/{name}")

    async def versions(self) -> list[Any]:
        found: list[Any] = await self.get(f"/templates/{(await self.template())['id']}/versions")
        return found

    async def create_workspace(self, name: str) -> Any:
        """Create a workspace of the active version, and wait until its first build ends."""
        body = {"name": name, "template_id": (await self.template())["id"]}
        made = await self.send("POST", "/organizations/default/members/me/workspaces", body, 201)
        return await self.built(made["id"])

    async def built(self, workspace: str) -> Any:
        async def ended() -> Any:
            found = await self.get(f"/workspaces/{workspace}")
            assert found["latest_build"]["job"]["status"] not in ("pending", "running"), found["latest_build"]["job"]
            return found

        return await eventually(ended, 120)

    async def delete_workspace(self, workspace: str) -> None:
        await self.send("POST", f"/workspaces/{workspace}/builds", {"transition": "delete"}, 201)

        async def gone() -> bool:
            return (await self.request("GET", f"/workspaces/{workspace}", self.token))[0] in (404, 410)

        await eventually(gone, 120)


class RealTemplate(Namespace[CoderTemplate]):
    """A template of a real Coder."""

    kind = TEMPLATE
    timeout = 120.0

    def __init__(self, plane: RealPlane) -> None:
        super().__init__(plane.client, plane.kubeconfig, Key(plane.namespace, NAME), plane.clock)
        self.plane = plane

    async def make(self, name: str = "", **spec: Any) -> CoderTemplate:
        return await super().make(name, **{"controlPlaneRef": {"name": self.plane.name}, **spec})

    async def ready(self) -> CoderTemplate:
        await self.condition("Ready", "AllReady", "True")
        return await self.get()


@pytest.mark.parametrize("version", MOSTLY_LATEST)
async def test_the_life_of_a_template(real_coder: RealPlane, version: str) -> None:
    """Import, change, failure, rollback, drift, settings and deletion, with a workspace that uses the template."""
    real_coder.builders = (controlplane.build, template.build)
    made = RealTemplate(real_coder)
    async with real_coder.operator(), Human(real_coder.url) as human:
        await real_coder.make(version=version, replicas=1, extraEnv=[*real_coder.env, *PROVISIONERS])
        await real_coder.ready()
        human.token = await human.create_first_user("human")

        settings = {"displayName": "Hello", "defaultTTL": "8h", "activityBump": "30m", "icon": "/icon/go.svg"}
        await made.make(source=source("one"), settings=settings, deletionPolicy="Delete")
        first = (await made.ready()).status.active_version
        assert first is not None
        found = await human.template()
        assert (found["active_version_id"], found["display_name"]) == (first.id, "Hello")
        assert (found["default_ttl_ms"], found["activity_bump_ms"]) == (8 * 3_600_000, 30 * 60_000)
        assert found["allow_user_cancel_workspace_jobs"]
        workspace = await human.create_workspace("first")
        assert workspace["latest_build"]["status"] == "running"

        await made.change(source=source("two"))
        second = await changed_from(made, first.id)
        pages = [await human.get(f"/templates/{found['id']}/versions?limit=1&offset={number}") for number in range(3)]
        assert [[each["id"] for each in page] for page in pages] == [[first.id], [second], []]

        await made.change(source=BROKEN)
        failed = await made.condition("Imported", "ImportFailed", "False")
        assert "initialize terraform" in failed.message or "template import" in failed.message, failed
        assert "main.tf" in await made.note("VersionImportFailed"), "the event has the end of the log"
        assert (await human.template())["active_version_id"] == second
        assert (await human.create_workspace("second"))["latest_build"]["status"] == "running"

        imported = len(await human.versions())
        await made.change(source=source("one"))
        assert await changed_from(made, second) == first.id
        assert len(await human.versions()) == imported, "earlier content is not imported again"

        await made.change(settings={**settings, "displayName": "Hello again", "description": "x"})
        await made.condition("SettingsApplied", "SettingsApplied", "True")
        found = await human.template()
        assert (found["display_name"], found["description"]) == ("Hello again", "x")
        assert (found["activity_bump_ms"], found["time_til_dormant_ms"]) == (30 * 60_000, 0)
        assert found["allow_user_cancel_workspace_jobs"]

    async with Human(real_coder.url) as human:
        human.token = await human.log_in()
        identifier = (await human.template())["id"]
        await human.send("PATCH", f"/templates/{identifier}/versions", {"id": second})
        await human.send("PATCH", f"/templates/{identifier}", {"display_name": "Mine", "activity_bump_ms": 60_000})
        async with real_coder.operator():
            await made.note("DriftReverted")

            async def reverted() -> bool:
                found = await human.template()
                shown = found["active_version_id"], found["display_name"], found["activity_bump_ms"]
                assert shown == (first.id, "Hello again", 30 * 60_000)
                return True

            await eventually(reverted, 60)

            await made.delete(TEMPLATE, NAME)
            assert "2 workspaces use it" in await made.note("TemplateNotDeleted")
            for each in (await human.get("/workspaces"))["workspaces"]:
                await human.delete_workspace(each["id"])
            await made.gone(TEMPLATE, NAME)
            assert (await human.request("GET", f"/templates/{identifier}", human.token))[0] == 404


@pytest.mark.parametrize("version", MOSTLY_LATEST)
async def test_variables_tags_and_retention(real_coder: RealPlane, version: str) -> None:
    """A variable without a value and tags that no provisioner has are reported; a template is retained by default."""
    real_coder.builders = (controlplane.build, template.build)
    made = RealTemplate(real_coder)
    async with real_coder.operator(), Human(real_coder.url) as human:
        await real_coder.make(version=version, replicas=1, extraEnv=[*real_coder.env, *PROVISIONERS])
        await real_coder.ready()
        human.token = await human.create_first_user("human")

        required = {"inline": {"files": {"main.tf": 'variable "password" {\n  type = string\n  sensitive = true\n}\n'}}}
        await made.make(source=required)
        missing = await made.condition("Imported", "VariablesMissing", "False")
        assert "variables" in missing.message
        await made.put_secret("password", value="a-value-that-is-not-shown")
        reference = {"secretKeyRef": {"name": "password", "key": "value"}}
        await made.change(variables=[{"name": "password", "valueFrom": reference}])
        first = (await made.ready()).status.active_version
        assert first is not None

        await made.put_secret("password", value="another-value-that-is-not-shown")
        await changed_from(made, first.id)
        [variable] = await human.get(f"/templateversions/{(await human.template())['active_version_id']}/variables")
        assert (variable["name"], variable["sensitive"]) == ("password", True)

        await made.change(provisionerTags={"zone": "nowhere"})
        unserved = await made.condition("Imported", "NoMatchingProvisioner", "False")
        assert "zone=nowhere" in unserved.message

        await made.delete(TEMPLATE, NAME)
        await made.gone(TEMPLATE, NAME)
        assert (await human.template())["name"] == NAME


async def changed_from(made: RealTemplate, version: str) -> str:
    """Wait until another version is active and the template is Ready; return it."""

    async def changed() -> str:
        active = (await made.get()).status.active_version
        assert active is not None
        assert active.id != version
        return active.id

    found = await eventually(changed, made.timeout)
    await made.ready()
    return found
