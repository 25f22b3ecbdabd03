"""A client for the routes of coderd's API that the operator uses."""

from collections.abc import Mapping

from coder_k8s.coderd.caller import checked, decode, error_response, fits_header, response_time
from coder_k8s.coderd.errors import Conflict, TimedOut, sanitize
from coder_k8s.coderd.health import HealthReport, HealthSettings
from coder_k8s.coderd.templates import TemplateCalls
from coder_k8s.coderd.types import (
    BuildInfo,
    CreatedKey,
    Entitlements,
    License,
    Organization,
    ProvisionerDaemon,
    ProvisionerJob,
    ProvisionerKey,
    ProvisionerKeyList,
    ProxyRegistration,
    Regions,
    User,
    Workspace,
    WorkspaceProxy,
)

_KEYS = "/api/v2/organizations/{}/provisionerkeys"
_PROXIES = "/api/v2/workspaceproxies"
DAEMON_LIMIT = 1000
"""The maximum number of listed daemons with those that are offline."""


class Client(TemplateCalls):
    """A client for one URL and one token."""

    async def build_info(self) -> BuildInfo:
        """Return the version of coderd."""
        return await self.call(BuildInfo, "GET", "/api/v2/buildinfo")

    async def me(self) -> User:
        """Return the user of the token; raise `Unauthorized` if the token is invalid."""
        return await self.call(User, "GET", "/api/v2/users/me")

    async def revoke_own_token(self) -> None:
        """Delete the token of this client."""
        await self.execute("DELETE", "/api/v2/users/me/keys/{}", self._token.partition("-")[0])

    async def entitlements(self) -> Entitlements:
        """Return what the licenses allow."""
        return await self.call(Entitlements, "GET", "/api/v2/entitlements")

    async def licenses(self) -> list[License]:
        """Return the stored licenses, valid or not."""
        return await self.call(list[License], "GET", "/api/v2/licenses")

    async def add_license(self, jwt: str) -> License:
        """Store a license; raise `Conflict` if it is already stored."""
        route, secrets = "/api/v2/licenses", (self._token, jwt)
        response = await self.send("POST", route, body={"license": jwt})
        if response.status == 500 and "duplicate key" in error_response(response).detail:
            raise Conflict("coderd already has this license")
        return decode(License, route, checked(route, response, secrets))

    async def health(self) -> HealthReport:
        """Return the result of the last run of the health check; the check runs if the result is too old.

        Texts of the check may contain the token, because it sends requests with it.
        """
        route = "/api/v2/debug/health"
        response = await self.send("GET", route)
        if response.status == 503 or (response.status == 404 and b"did not complete in time" in response.body):
            raise TimedOut(sanitize(error_response(response).text(), (self._token,)))
        body = checked(route, response, (self._token,))
        secret = self._token.encode()
        return decode(HealthReport, route, body.replace(secret, b"[redacted]") if secret else body)

    async def health_settings(self) -> HealthSettings:
        """Return which sections of the health check an administrator dismissed."""
        return await self.call(HealthSettings, "GET", "/api/v2/debug/health/settings")

    async def organization(self, name: str) -> Organization:
        """Return an organization by name or ID, or the `default` one."""
        return await self.call(Organization, "GET", "/api/v2/organizations/{}", name)

    async def organizations(self) -> list[Organization]:
        """Return the organizations that the user can see."""
        return await self.call(list[Organization], "GET", "/api/v2/organizations")

    async def provisioner_keys(self, organization: str) -> list[ProvisionerKey]:
        """Return the keys of an organization."""
        return (await self.list_provisioner_keys(organization)).keys

    async def list_provisioner_keys(self, organization: str) -> ProvisionerKeyList:
        """Return the keys of an organization and when coderd listed them, by the clock that sets `created_at`."""
        response = await self.send("GET", _KEYS, organization)
        found = decode(list[ProvisionerKey], _KEYS, checked(_KEYS, response, (self._token,)))
        return ProvisionerKeyList(found, response_time(response))

    async def create_provisioner_key(self, organization: str, name: str, tags: Mapping[str, str]) -> str:
        """Create a key and return its secret, which coderd does not return again."""
        body = {"name": name, "tags": dict(tags)}
        return (await self.call(CreatedKey, "POST", _KEYS, organization, body=body)).key

    async def delete_provisioner_key(self, organization: str, name: str) -> None:
        """Delete a key by name."""
        await self.execute("DELETE", _KEYS + "/{}", organization, name)

    async def look_up_provisioner_key(self, secret: str) -> ProvisionerKey | None:
        """Return the key with this secret, or None if it does not exist."""
        if not secret or not fits_header(secret):
            return None
        route = "/api/v2/provisionerkeys/{}"
        response = await self.send("GET", route, secret, headers={"Coder-Provisioner-Daemon-Key": secret})
        if response.status in (400, 401) and error_response(response).message == "provisioner daemon key invalid":
            return None
        return decode(ProvisionerKey, route, checked(route, response, (self._token, secret)))

    async def provisioner_daemons(self, organization: str, *, offline: bool = True) -> list[ProvisionerDaemon]:
        """Return the connected daemons of an organization, or up to `DAEMON_LIMIT` daemons with those offline.

        coderd keeps daemons that are offline for days.
        """
        query = {"limit": str(DAEMON_LIMIT if offline else 0), "offline": str(offline).lower()}
        route = "/api/v2/organizations/{}/provisionerdaemons"
        return await self.call(list[ProvisionerDaemon], "GET", route, organization, query=query)

    async def provisioner_jobs(self, organization: str) -> list[ProvisionerJob]:
        """Return all jobs of an organization that wait or run, the newest first."""
        query = {"status": "pending,running,canceling", "limit": "0"}  # by default the oldest would be left out
        route = "/api/v2/organizations/{}/provisionerjobs"
        return await self.call(list[ProvisionerJob], "GET", route, organization, query=query)

    async def find_provisioner_job(self, organization: str, job: str) -> ProvisionerJob | None:
        """Return a job by ID, whatever its status is; None if the organization does not have it."""
        route = "/api/v2/organizations/{}/provisionerjobs"
        found = await self.call(list[ProvisionerJob], "GET", route, organization, query={"ids": job})
        return next(iter(found), None)

    async def workspace(self, owner: str, name: str) -> Workspace:
        """Return a workspace of a user, by name."""
        return await self.call(Workspace, "GET", "/api/v2/users/{}/workspace/{}", owner, name)

    async def workspace_proxies(self) -> list[WorkspaceProxy]:
        """Return all workspace proxies, coderd itself first."""
        return (await self.call(Regions, "GET", _PROXIES)).regions

    async def create_workspace_proxy(self, name: str, display_name: str, icon: str) -> ProxyRegistration:
        """Register a workspace proxy and return it with its token."""
        body = {"name": name, "display_name": display_name, "icon": icon}
        return await self.call(ProxyRegistration, "POST", _PROXIES, body=body)

    async def update_workspace_proxy(
        self, proxy_id: str, name: str, display_name: str, icon: str, *, regenerate_token: bool = False
    ) -> ProxyRegistration:
        """Update a workspace proxy and, if requested, its token; coderd requires all fields."""
        body = {
            "id": proxy_id,
            "name": name,
            "display_name": display_name,
            "icon": icon,
            "regenerate_token": regenerate_token,
        }
        return await self.call(ProxyRegistration, "PATCH", _PROXIES + "/{}", proxy_id, body=body)

    async def delete_workspace_proxy(self, name: str) -> None:
        """Delete a workspace proxy by name or ID."""
        await self.execute("DELETE", _PROXIES + "/{}", name)
