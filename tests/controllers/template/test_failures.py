"""An import that fails leaves the active version alone."""

from datetime import timedelta

from coder_k8s.dev.coderd_server.queue import PENDING
from tests.support.templates import TemplateNamespace, inline

BROKEN = "template import init error: initialize terraform: exit status 1"
LOG = {
    "output": "Error: Invalid block definition",
    "stage": "Planning",
    "log_level": "error",
    "log_source": "provisioner",
}


async def test_failed_import(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        active = place.template.active
        await place.change(source=inline("# broken"))
        version = await place.pending_version(2)
        await place.condition("Imported", "Importing", "False")
        await operator.wait_idle()
        place.coderd.state.queue.change_job(version.job, logs=(LOG,))
        place.finish(version, BROKEN)
        await operator.later(seconds=6)
        message = f"The import of version {version.name} failed; correct the template: {BROKEN}"
        assert (await place.condition("Stalled", "ImportFailed", "True")).message == message
        assert "Error: Invalid block definition" in await place.note("VersionImportFailed")
        assert place.template.active == active
        failed = (await place.get()).status.failed
        assert failed is not None
        assert (failed.name, failed.message) == (version.name, BROKEN)
        await operator.wait_idle()
        requests = place.coderd.state.requests.total()
        for _ in range(10):
            await operator.later(minutes=2)
        assert len(place.versions) == 2, "it is not imported again"
        assert place.coderd.state.requests.total() - requests <= 30
        await place.change(source=inline("# two"))
        await place.import_next(operator, 3)
        await place.condition("Ready", "AllReady", "True")
        assert (await place.get()).status.failed is None


async def test_canceled_import(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        version = await place.pending_version()
        await place.condition("Imported", "Importing", "False")
        await operator.wait_idle()
        place.coderd.state.queue.cancel_job(version.job)
        await operator.later(seconds=6)
        message = (
            f"The import of version {version.name} was canceled in Coder; it is imported again when the source, "
            "variables or provisionerTags change"
        )
        await place.message("Stalled", "ImportFailed", message)
        writes = operator.writes()
        await operator.later(minutes=2)
        assert operator.writes() == writes


async def test_missing_variables(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        version = await place.pending_version()
        await place.condition("Imported", "Importing", "False")
        await operator.wait_idle()
        place.finish(version, "required template variables need values", "REQUIRED_TEMPLATE_VARIABLES")
        await operator.later(seconds=6)
        await place.condition("Stalled", "VariablesMissing", "True")
        await operator.wait_idle()
        await place.put_secret("variables", region="eu-west-1-of-the-secret")
        reference = {"secretKeyRef": {"name": "variables", "key": "region"}}
        await place.change(variables=[{"name": "region", "valueFrom": reference}])
        await place.import_next(operator, 2)
        await place.condition("Ready", "AllReady", "True")
        assert not any("eu-west-1" in each.message for each in place.versions)


async def test_no_provisioner(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(provisionerTags={"env": "gpu"})
        version = await place.pending_version()
        message = (
            f"No connected provisioner of organization default can import version {version.name}; provide one with the "
            "tags env=gpu, or correct provisionerTags"
        )
        await place.message("Imported", "NoMatchingProvisioner", message)
        await operator.wait_idle()
        place.clock.advance(seconds=(PENDING + timedelta(minutes=2)).total_seconds())
        await operator.reconcile()
        assert place.coderd.state.queue.job(version.job).status == "failed"
        for _ in range(3):
            await operator.later(minutes=2)
        await place.message("Imported", "NoMatchingProvisioner", message)
        assert len(place.versions) == 1, "there is no provisioner yet"
        place.coderd.state.add_key("gpu", {"env": "gpu"})
        place.coderd.state.connect_daemon("gpu", "gpu")
        await operator.later(minutes=2)
        await place.import_next(operator, 2)
        await place.condition("Ready", "AllReady", "True")
        assert place.versions[-1].name == version.name.removesuffix("1") + "2"


async def test_lost_provisioner(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        for number in (1, 2, 3):
            version = await place.pending_version(number)
            await place.condition("Imported", "Importing", "False")
            await operator.wait_idle()
            place.finish(
                version,
                "Coder: Build has been detected as hung for 5 minutes and has been terminated by the reaper.",
            )
            await operator.later(seconds=6)
            await operator.later(minutes=3)
        await place.condition("Stalled", "ImportFailed", "True")
        assert len(place.versions) == 3
