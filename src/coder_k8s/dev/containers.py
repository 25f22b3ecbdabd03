"""Simulates the provisioner daemons and workspace proxies of pods that run nothing."""

from collections import Counter

from coder_k8s.controllers.secrets import value
from coder_k8s.dev.coderd_server import State
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Unstructured

from .kubelet import Stop, secret_of

KEY = "CODER_PROVISIONER_DAEMON_KEY"
TOKEN = "CODER_PROXY_SESSION_TOKEN"  # noqa: S105 - a name, not a token


class Containers:
    """Connects daemons with the keys, and proxies with the tokens, in the Secrets of their pods."""

    def __init__(self, client: Client, coderd: State) -> None:
        self._client = client
        self._coderd = coderd
        self._proxies: Counter[str] = Counter()

    async def start(self, pod: Unstructured) -> Stop:
        if key := await self._value(pod, KEY):
            return self._daemon(pod.metadata.name, key)
        if token := await self._value(pod, TOKEN):
            return self._proxy(token)
        return lambda: None

    def _daemon(self, name: str, key: str) -> Stop:
        daemon = self._coderd.log_in(name, key)

        def disconnect() -> None:
            self._coderd.daemons.pop(daemon, None)

        return disconnect

    def _proxy(self, token: str) -> Stop:
        def count(change: int) -> None:
            self._proxies[token] += change
            for name in [name for name, proxy in self._coderd.proxies.items() if proxy.token == token]:
                self._coderd.set_proxy(name, "ok" if self._proxies[token] else "unreachable")

        count(+1)
        return lambda: count(-1)

    async def _value(self, pod: Unstructured, variable: str) -> str:
        if (source := secret_of(pod, variable)) is None:
            return ""
        secret, key = source
        try:
            found = await self._client.get(SECRET, secret)
        except errors.NotFound:
            return ""  # a real container would wait for the Secret
        return value(found, key)
