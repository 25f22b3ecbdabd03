"""The operator's access to a real Coder: its token, and a human with its user name."""

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.coderd.access_db import USERNAME
from coder_k8s.kube.kinds import SECRET
from tests.support.real_coder import RealPlane

from .coder_client import CoderClient
from .versions import VERSIONS

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("version", VERSIONS)
async def test_human_keeps_the_account_and_tokens_are_revoked(real_coder: RealPlane, version: str) -> None:
    async with real_coder.operator(), CoderClient(real_coder.url) as coder:
        await real_coder.make(version=version, operatorAccess={"disabled": True})
        await real_coder.ready()
        human = await coder.create_first_user(USERNAME)
        before = await coder.user(human)

        await real_coder.change(operatorAccess={"disabled": False})
        taken = await real_coder.condition("OperatorAccessReady", "UsernameTaken", "False")
        assert taken.message == f"User {USERNAME} in Coder does not belong to the operator; rename that user"
        assert await coder.user(human) == before
        assert await coder.log_in(), "the password still works"

        await coder.rename(human, "human")
        await real_coder.touch()
        await real_coder.condition("OperatorAccessReady", "TokenReady", "True")
        token = await real_coder.token()
        assert (await coder.user(token))["username"] == USERNAME
        assert (await coder.user(human))["email"] == before["email"]

        await real_coder.change(operatorAccess={"disabled": True})
        await real_coder.condition("OperatorAccessReady", "Disabled")
        assert await coder.status(token) == 401
        await real_coder.gone(SECRET, f"{real_coder.name}-operator-token")

        await real_coder.change(operatorAccess={"disabled": False})
        await real_coder.condition("OperatorAccessReady", "TokenReady", "True")
        second = await real_coder.token()
        assert await coder.status(second) == 200
        await real_coder.delete(CONTROL_PLANE, real_coder.name)
        await real_coder.gone(CONTROL_PLANE, real_coder.name)

        await real_coder.make(version=version)  # with the same database
        await real_coder.ready()
        assert await coder.status(second) == 401
        assert await coder.status(await real_coder.token()) == 200
        assert await coder.log_in()
