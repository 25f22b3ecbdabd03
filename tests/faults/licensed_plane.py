"""A control plane with operator access through its database and a license, and users who change both."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

from coder_k8s.coderd.access_db import token_name
from coder_k8s.dev.coderd_server import make_license
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import SECRET
from tests.support.controlplanes import PlaneNamespace, env, operator_tokens
from tests.support.databases import CoderdDatabase

LICENSE = "license"


@dataclass
class LicensedPlane:
    """Random changes of that control plane, and its expected steady state."""

    site: PlaneNamespace
    database: CoderdDatabase
    rng: Random
    done: int = 0
    license: str = ""

    async def make(self, database_url: str) -> None:
        await self.renew_license()
        await self.site.make(extraEnv=env(database_url), licenseSecretRef={"name": LICENSE})

    async def run(self, seconds: float, pause: float = 2.0) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        acts: list[Callable[[], Awaitable[None]]] = [
            self.renew_license,
            self.delete_token_secret,
            self.rename_token,
            self.scale,
        ]
        while loop.time() < end:
            await self.rng.choice(acts)()
            self.done += 1
            await asyncio.sleep(self.rng.uniform(0, pause))

    async def renew_license(self) -> None:
        """Change the license in the Secret, and delete it in coderd."""
        self.license = make_license(datetime.now(UTC), jti=str(self.rng.random()))
        self.site.coderd.state.remove_licenses()
        await self.site.put_secret(LICENSE, license=self.license)

    async def delete_token_secret(self) -> None:
        """Delete the Secret with the operator's token, unless the operator has already deleted it."""
        for name in await self._token_secrets():
            with suppress(errors.NotFound):
                await self.site.delete(SECRET, name)

    async def rename_token(self) -> None:
        name = self.rng.choice((None, "renamed-1", "renamed-2"))
        await self.site.change(operatorAccess={"generatedTokenSecretName": name})

    async def scale(self) -> None:
        await self.site.change(replicas=self.rng.randint(1, 4))

    async def differences(self) -> list[str]:
        """Every difference from the steady state."""
        plane = await self.site.get()
        conditions = {each.type: each for each in plane.status.conditions}
        ready = conditions.get("Ready")
        where = plane.status.operator_token_secret_ref
        token = await self.site.token(where.name) if where else ""
        own = token_name(self.site.key.namespace, self.site.key.name)
        tokens = [each for each, name in await operator_tokens(self.database) if name in (own, f"{own}-2")]
        licenses = [each.jwt for each in self.site.coderd.state.licenses]
        secrets = await self._token_secrets()
        compared = {
            "Ready": (ready and (ready.status, ready.observed_generation), ("True", plane.metadata.generation)),
            "the number of Secrets with a token": (len(secrets), 1),
            "that the token is the only one in the database": (tokens == [token.partition("-")[0]], True),
            "that coderd has the license": (self.license in licenses, True),
        }
        return [f"{what} is {is_!r}, not {must!r}" for what, (is_, must) in compared.items() if is_ != must]

    async def _token_secrets(self) -> list[str]:
        names = (f"{self.site.key.name}-operator-token", "renamed-1", "renamed-2")
        return [name for name in names if await self.site.find(SECRET, name)]
