"""Requests of a command to Services of the cluster, such as that of a control plane, through the API server's proxy.

The command needs no network access to them, only a kubeconfig whose user may `get` `services/proxy`.
"""

import os
from collections.abc import Mapping

import msgspec

from coder_k8s.api import CoderControlPlane
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.connections import Response
from coder_k8s.controllers.resolver import token_reference
from coder_k8s.controllers.secrets import value
from coder_k8s.http.urls import PORTS, parse_url
from coder_k8s.kube import errors
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key

from .session import CommandFailed, Session

TOKEN_VARIABLE = "CODER_SESSION_TOKEN"  # noqa: S105 - a name, not a token


class ServiceProxy:
    """Sends requests to the Service that a URL names."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Send a request to a Service. Errors of the API server itself end the command."""
        origin, path, _ = parse_url(url)
        name, namespace, *_ = origin.host.split(".")
        port = origin.port if origin.port != PORTS["http"] else "http"
        proxied = f"/api/v1/namespaces/{namespace}/services/{name}:{port}/proxy{path}"
        response = await self._http.exchange(method, proxied, headers, body)
        if (status := _kubernetes_status(response)) is None:
            return response
        if response.status == 403:
            raise CommandFailed(
                f"not allowed: {status.message}. You need the permission to get services/proxy in namespace {namespace}"
            )
        raise CommandFailed(f"the API server cannot reach Service {name} in namespace {namespace}: {status.message}")


async def coderd_of(session: Session, plane: CoderControlPlane, *, use_session_token: bool = False) -> Coderd:
    """Return a client for the coderd of a control plane, with the token of the operator, or that of the user.

    The token of a user is sent only on request: it may belong to another Coder, and nothing proves which one is behind
    a Service.
    """
    token = _session_token() if use_session_token else await _operator_token(session, plane)
    return Coderd(ServiceProxy(session.http), f"http://{plane.metadata.name}.{plane.metadata.namespace}.svc", token)


def _session_token() -> str:
    if token := os.environ.get(TOKEN_VARIABLE):
        return token
    raise CommandFailed(f"the environment variable {TOKEN_VARIABLE} is not set")


async def _operator_token(session: Session, plane: CoderControlPlane) -> str:
    where, name = token_reference(plane), plane.metadata.name
    hint = f"With --use-session-token, the token in {TOKEN_VARIABLE} is used instead, of a user with the role Owner"
    if where is None:
        raise CommandFailed(f"the operator has no access to the Coder of control plane {name}. {hint}")
    key = Key(plane.metadata.namespace, where.name)
    try:
        secret = await session.client.get(SECRET, key)
    except errors.Forbidden:
        raise CommandFailed(
            f"you may not read Secret {key.name} in namespace {key.namespace}, which has the operator's token. {hint}"
        ) from None
    except errors.NotFound:
        raise CommandFailed(f"Secret {key.name} in namespace {key.namespace} does not exist. {hint}") from None
    if not (token := value(secret, where.key)):
        raise CommandFailed(f"Secret {key.name} in namespace {key.namespace} has no key {where.key}. {hint}")
    return token


class _Status(msgspec.Struct):
    """The body of an error of the API server."""

    kind: str = ""
    message: str = ""


def _kubernetes_status(response: Response) -> _Status | None:
    """Return the error of the API server; None if the response is from coderd."""
    if response.status < 300:
        return None
    try:
        status = msgspec.json.decode(response.body, type=_Status)
    except ValueError:
        return None
    return status if status.kind == "Status" else None
