"""Credentials made by a program, the way kubectl's exec plugins do it."""

import asyncio
import base64
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from coder_k8s.kube.credentials import Clock, Content, Identity, StaticCredentials, bearer, read
from coder_k8s.kube.kubeconfig import Cluster, ConfigError, Exec

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
TIMEOUT = 30.0
GRACE = 1.0
MARGIN = 30.0
"""Seconds before they expire at which credentials are made anew."""
TAIL = 300
"""Characters of what a plugin complained about that are worth repeating."""


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    status: _Status


@dataclass(frozen=True, repr=False)
class ExecPlugin:
    """Runs the plugin of a user, who may have a client certificate besides; what it prints goes into no message."""

    exec: Exec
    origin: str
    cluster: Cluster
    written: StaticCredentials
    environ: Mapping[str, str]
    clock: Clock
    timeout: float = TIMEOUT

    def __post_init__(self) -> None:
        if self.exec.api_version not in VERSIONS:
            raise ConfigError(f"{self.origin}: exec plugin of {self.exec.api_version}; known are {', '.join(VERSIONS)}")
        if self.exec.interactive_mode == "Always":
            raise ConfigError(f"{self.origin}: its exec plugin needs a terminal (interactiveMode Always), here is none")

    async def __call__(self) -> Identity:
        status = self._decode(await self._run())
        authorization = bearer(status.token.encode(), self.origin) if status.token else None
        until = self._until(status.expiration_timestamp)
        if status.client_certificate_data and status.client_key_data:
            pair = status.client_certificate_data.encode(), status.client_key_data.encode()
            return Identity(self.origin, until, authorization, *pair)
        written = await self.written()
        return Identity(self.origin, until, authorization, written.certificate, written.key)

    def _until(self, expiration: datetime | None) -> float:
        """A little before they expire, but not so soon that a short life were none."""
        if expiration is None:
            return float("inf")
        now = self.clock()
        life = expiration.timestamp() - now
        return now + max(life - MARGIN, life / 2)

    def _decode(self, printed: bytes) -> _Status:
        try:
            credential = msgspec.json.decode(printed, type=_ExecCredential)
        except msgspec.DecodeError as trouble:
            # What it printed may be a token, and the exception holds no more than where it stopped making sense.
            raise self._error(f"printed no ExecCredential: {trouble}") from None
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
        except OSError as trouble:
            raise self._error(f"cannot be run: {trouble.strerror}. {self.exec.install_hint}") from trouble
        try:
            async with asyncio.timeout(self.timeout):
                printed, complaint = await process.communicate()
        except TimeoutError:
            await _end(process)
            raise self._error(f"did not end within {self.timeout:g} s") from None
        except asyncio.CancelledError:
            await _end(process)
            raise
        if process.returncode != 0:
            raise self._error(f"ended with {process.returncode}: {complaint.decode(errors='replace')[-TAIL:]}")
        return printed

    async def _start(self) -> asyncio.subprocess.Process:
        """Begins, and is not stopped half-way: the library would then wait for whoever holds the pipes."""
        variables = {variable.name: variable.value for variable in self.exec.env}
        starting = asyncio.create_task(
            asyncio.create_subprocess_exec(
                self.exec.command,
                *self.exec.args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**self.environ, **variables, "KUBERNETES_EXEC_INFO": self._info()},
                start_new_session=True,  # so that it can be ended with whatever it starts
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(OSError):
                await _end(await starting)
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


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # One that left the group may hold the pipes, and their end is part of what is waited for.
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE):
            await process.wait()
