"""Gets credentials from an exec plugin, as kubectl does."""

import asyncio
import base64
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from coder_k8s.kube.credentials import Clock, Confidential, Content, Identity, StaticCredentials, bearer, read
from coder_k8s.kube.kubeconfig import Cluster, ConfigError, Exec

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
TIMEOUT = 30.0
KILL_TIMEOUT = 1.0
REFRESH_MARGIN = 30.0
"""Seconds before their expiration at which credentials are refreshed."""
MAX_STDERR = 300
"""Characters of a plugin's stderr in an error message."""


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    status: _Status


class ExecPlugin(Confidential, frozen=True):
    """Runs the plugin of a user, who may also have a static client certificate. No message contains its stdout."""

    exec: Exec
    origin: str
    cluster: Cluster
    static: StaticCredentials
    environ: Mapping[str, str]
    clock: Clock
    timeout: float = TIMEOUT

    def __post_init__(self) -> None:
        if self.exec.api_version not in VERSIONS:
            raise ConfigError(
                f"{self.origin}: exec plugin of {self.exec.api_version}; supported: {', '.join(VERSIONS)}"
            )
        if self.exec.interactive_mode == "Always":
            raise ConfigError(f"{self.origin}: its exec plugin needs a terminal (interactiveMode Always)")

    async def __call__(self) -> Identity:
        status = self._decode(await self._run())
        authorization = bearer(status.token.encode(), self.origin) if status.token else None
        expires = self._expiry(status.expiration_timestamp)
        if status.client_certificate_data and status.client_key_data:
            pair = status.client_certificate_data.encode(), status.client_key_data.encode()
            return Identity(self.origin, expires, authorization, *pair)
        static = await self.static()
        return Identity(self.origin, expires, authorization, static.certificate, static.key)

    def _expiry(self, expiration: datetime | None) -> float:
        """Return when to refresh: `REFRESH_MARGIN` before the expiration, or after half of a short lifetime."""
        if expiration is None:
            return float("inf")
        now = self.clock()
        lifetime = expiration.timestamp() - now
        return now + max(lifetime - REFRESH_MARGIN, lifetime / 2)

    def _decode(self, stdout: bytes) -> _Status:
        try:
            credential = msgspec.json.decode(stdout, type=_ExecCredential)
        except msgspec.DecodeError as error:
            # The output may be a token. The decode error names only a position.
            raise self._error(f"printed no ExecCredential: {error}") from None
        if credential.api_version != self.exec.api_version:
            raise self._error(f"printed an ExecCredential of {credential.api_version}, not {self.exec.api_version}")
        status = credential.status
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._error("printed a client certificate without its key, or a key without its certificate")
        if not status.token and not status.client_key_data:
            raise self._error("printed neither a token nor a client certificate")
        return status

    async def _run(self) -> bytes:
        try:
            process = await self._start()
        except OSError as error:
            raise self._error(f"cannot be run: {error.strerror}. {self.exec.install_hint}") from error
        try:
            async with asyncio.timeout(self.timeout):
                stdout, stderr = await process.communicate()
        except TimeoutError:
            await _kill(process)
            raise self._error(f"did not exit within {self.timeout:g} s") from None
        except asyncio.CancelledError:
            await _kill(process)
            raise
        if process.returncode != 0:
            raise self._error(f"exited with {process.returncode}: {stderr.decode(errors='replace')[-MAX_STDERR:]}")
        return stdout

    async def _start(self) -> asyncio.subprocess.Process:
        """Start the plugin. A cancellation waits for the start: otherwise asyncio waits until the pipes are closed."""
        variables = {variable.name: variable.value for variable in self.exec.env}
        starting = asyncio.create_task(
            asyncio.create_subprocess_exec(
                self.exec.command,
                *self.exec.args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**self.environ, **variables, "KUBERNETES_EXEC_INFO": self._info()},
                start_new_session=True,  # to kill its child processes too
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(OSError):
                await _kill(await starting)
            raise

    def _info(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self.exec.provide_cluster_info:
            spec["cluster"] = self._cluster_info()
        return msgspec.json.encode(
            {"apiVersion": self.exec.api_version, "kind": "ExecCredential", "spec": spec}
        ).decode()

    def _cluster_info(self) -> dict[str, Any]:
        authority: Content | None = self.cluster.certificate_authority_data or self.cluster.certificate_authority
        extensions = {extension.name: extension.extension for extension in self.cluster.extensions}
        info = {
            "server": self.cluster.server,
            "tls-server-name": self.cluster.tls_server_name,
            "insecure-skip-tls-verify": self.cluster.insecure_skip_tls_verify,
            "certificate-authority-data": base64.b64encode(read(authority, self.origin)).decode()
            if authority
            else None,
            "proxy-url": self.cluster.proxy_url,
            "config": extensions.get("client.authentication.k8s.io/exec"),
        }
        return {name: value for name, value in info.items() if value}

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"{self.origin}: exec plugin {self.exec.command} " + " ".join(what.split()))


async def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # A child in another session may keep the pipes open, and `wait` includes their end.
    with suppress(TimeoutError):
        async with asyncio.timeout(KILL_TIMEOUT):
            await process.wait()
