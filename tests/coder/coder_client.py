"""Requests of a user to a real Coder."""

from types import TracebackType
from typing import Any, Self

import aiohttp

from tests.support import eventually

EMAIL, PASSWORD = "human@example.com", "A-Long-Passw0rd!"
CONNECT_ERRORS = (aiohttp.ClientError, TimeoutError)


class CoderClient:
    """Sends requests to one Coder, each with a new connection."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def request(self, method: str, path: str, token: str = "", body: Any = None) -> tuple[int, Any]:
        """Send a request, and return the status and the body of its response."""
        headers = {"Coder-Session-Token": token} if token else {}
        async with self._session.request(method, f"{self._url}/api/v2{path}", headers=headers, json=body) as response:
            return response.status, await response.json()

    async def create_first_user(self, name: str) -> str:
        """Create the first user, who is an Owner, and return a token."""
        user = {"username": name, "email": EMAIL, "password": PASSWORD}
        status, answer = await self.request("POST", "/users/first", body=user)
        assert status == 201, answer
        return await self.log_in()

    async def log_in(self) -> str:
        status, answer = await self.request("POST", "/users/login", body={"email": EMAIL, "password": PASSWORD})
        assert status == 201, answer
        return str(answer["session_token"])

    async def user(self, token: str) -> dict[str, Any]:
        """The user of a token, without the time of the last request."""
        status, answer = await self.request("GET", "/users/me", token)
        assert status == 200, answer
        return {name: value for name, value in answer.items() if name not in ("last_seen_at", "updated_at")}

    async def status(self, token: str) -> int:
        """The status of a request with a token, when Coder responds."""

        async def send() -> int:
            try:
                return (await self.request("GET", "/users/me", token))[0]
            except CONNECT_ERRORS as error:
                raise AssertionError(str(error)) from error

        return await eventually(send, 60)

    async def rename(self, token: str, name: str) -> None:
        status, answer = await self.request("PUT", "/users/me/profile", token, {"username": name, "name": ""})
        assert status == 200, answer
