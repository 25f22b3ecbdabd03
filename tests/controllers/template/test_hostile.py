"""What other users of Coder and of the namespace do neither reveals values nor takes over templates."""

from dataclasses import replace

import pytest

from coder_k8s.api import TEMPLATE
from coder_k8s.dev.coderd_server import User
from coder_k8s.dev.coderd_server.templates import Version
from tests.support import objects
from tests.support.templates import PLANE, TemplateNamespace, inline

VALUE = "value-of-the-secret"
OTHER_DATABASE = "11111111-1111-4111-8111-111111111111"


async def test_error_of_an_import_with_a_secret(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.put_secret("variables", token=VALUE)
        reference = {"secretKeyRef": {"name": "variables", "key": "token"}}
        await place.make(variables=[{"name": "token", "valueFrom": reference}])
        version = await place.pending_version()
        await place.condition("Imported", "Importing", "False")
        await operator.wait_idle()
        log = {"output": f"var.token is {VALUE}", "stage": "Plan", "log_level": "error", "log_source": "provisioner"}
        place.coderd.state.queue.change_job(version.job, logs=(log,))
        place.finish(version, f"exit status 1: {VALUE}")
        await operator.later(seconds=6)
        await place.condition("Stalled", "ImportFailed", "True")
        withheld = "the error is not shown here, because it can contain values of Secrets; read it in Coder"
        assert (await place.note("VersionImportFailed")).endswith(withheld)
        found = await place.get()
        assert found.status.failed is not None
        assert found.status.failed.message == withheld
        assert VALUE not in str(found.status)


async def test_version_of_another_user_with_the_message(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        [own] = place.versions
        copied = copy_version(place, own)
        place.coderd.state.templates.activate_version(place.template.id, copied.id)
        await operator.later(minutes=2)
        await place.note("DriftReverted")
        assert place.template.active == own.id


async def test_message_of_an_old_version_that_was_changed(place: TemplateNamespace) -> None:
    """A template administrator of Coder can change the message, so that it has the digest of another version."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.change(source=inline("# two"))
        second = await place.import_next(operator, 2)
        await place.condition("Ready", "AllReady", "True")
        first = place.versions[0]
        messages = {first.id: second.message, second.id: first.message}
        relabel(place, messages)
        await place.change(source=inline("# one"))
        third = await place.import_next(operator, 3)
        await place.condition("Ready", "AllReady", "True")
        assert place.template.active == third.id, "the version with the content, and none with the digest"
        files = [place.coderd.state.queue.job(each.job).file for each in (first, third)]
        assert files[0] == files[1]


async def test_active_version_with_a_changed_message(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.change(source=inline("# two"))
        second = await place.import_next(operator, 2)
        await place.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        relabel(place, {place.versions[0].id: second.message})
        place.coderd.state.templates.activate_version(place.template.id, place.versions[0].id)
        await operator.later(minutes=2)
        await place.note("DriftReverted")
        assert (place.template.active, len(place.versions)) == (second.id, 2)


def relabel(place: TemplateNamespace, messages: dict[str, str]) -> None:
    """Change messages of versions."""
    versions = place.coderd.state.templates.versions
    for version, message in messages.items():
        versions[version] = replace(versions[version], message=message)


def copy_version(place: TemplateNamespace, version: Version) -> Version:
    author = User(username="someone")
    found = place.coderd.state.templates.add_version(
        "by-hand", template=version.template, message=version.message, author=author
    )
    place.finish(found)
    return found


async def test_two_objects_of_one_template(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        key = place.key_of("other")
        spec = {"controlPlaneRef": {"name": PLANE}, "name": "go", "source": inline("# other")}
        await objects.create(place.client, TEMPLATE, key, spec)
        await place.client.merge(TEMPLATE, key, {"metadata": {"annotations": {"coder.com/adopt": "true"}}})
        message = (
            "CoderTemplate go manages template go in Coder; rename this object's template, or delete one of the objects"
        )
        await place.message("Imported", "NameTaken", message, name="other")
        writes = place.writes()
        await operator.later(minutes=2)
        await operator.reconcile(key)
        assert (place.writes(), len(place.versions)) == (writes, 1)


async def test_another_database(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        found = await place.ready(operator)
    assert found.status.source is not None
    digest = found.status.source.digest
    status = {"organizationID": OTHER_DATABASE, "templateID": OTHER_DATABASE, "promotedVersion": OTHER_DATABASE}
    importing = {"id": OTHER_DATABASE, "name": "x-1", "digest": digest, "since": "2026-03-01T00:00:00Z"}
    await place.client.merge(TEMPLATE, place.key_of("go"), {"status": {**status, "importing": importing}}, "status")
    async with place.operator() as operator:
        await operator.reconcile()
        again = (await place.get()).status
        assert (again.template_id, again.organization_id) == (found.status.template_id, found.status.organization_id)
        assert (await place.conditions())["Ready"] == ("True", "AllReady")


async def test_promotion_without_effect(place: TemplateNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        templates = place.coderd.state.templates
        monkeypatch.setattr(templates, "put", lambda _: None)
        before = place.writes()
        await place.change(source=inline("# two"))
        await place.import_next(operator, 2)
        message = (
            f"CoderControlPlane {PLANE} accepted a change of template go but did not apply it: it made a version "
            "active, and it does not return that"
        )
        await place.message("Stalled", "VersionRejected", message)
        for _ in range(5):
            await operator.later(minutes=2)
        assert place.writes() - before == 3, "an upload, a version and a promotion"
        assert len(await place.events("VersionPromoted")) == 1
