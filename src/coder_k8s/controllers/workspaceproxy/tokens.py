"""The Secret with the token of a proxy that the operator registers."""

from coder_k8s.api import CoderWorkspaceProxy
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.secrets import value
from coder_k8s.kube import errors
from coder_k8s.kube.apply import OwnedByOther
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key, PartialObject

from .objects import TOKEN, secret, secret_name


class SecretRefused(Exception):
    """The API server does not let us have the Secret."""


class Tokens:
    """Keeps tokens in Secrets of our own."""

    def __init__(self, children: Children, secrets: Cache[PartialObject]) -> None:
        self._children = children
        self._secrets = secrets

    def name_taken(self, proxy: CoderWorkspaceProxy) -> bool:
        """Whether a Secret of that name is not ours: it would swallow the token of every proxy that we register."""
        key = Key(proxy.metadata.namespace, secret_name(proxy))
        return self._secrets.get(key) is not None and not self._is_ours(proxy, key)

    async def stored(self, proxy: CoderWorkspaceProxy) -> str:
        """The token that we hold, also under the name that the Secret had before; empty when there is none."""
        for key, field in _places(proxy):
            if not self._is_ours(proxy, key):
                continue
            found = await self._children.fetch(SECRET, key, expected=True)
            if found is not None and (token := value(found, field)):
                return token
        return ""

    async def reserve(self, proxy: CoderWorkspaceProxy) -> None:
        """See that there is a Secret before coderd is asked for a token: what it shows once must not get lost."""
        if self._is_ours(proxy, Key(proxy.metadata.namespace, secret_name(proxy))):
            return
        try:
            await self.store(proxy, "")
        except (errors.Forbidden, errors.Invalid, OwnedByOther) as refusal:
            raise SecretRefused(str(refusal)) from refusal

    async def store(self, proxy: CoderWorkspaceProxy, token: str) -> None:
        await self._children.apply(SECRET, proxy, secret(proxy, token))

    async def confirm(self, proxy: CoderWorkspaceProxy) -> None:
        """`Conflict` unless the object and its Secret are as we know them: a token that is replaced works no more."""
        await self._children.confirm(proxy)
        for key in {key for key, _ in _places(proxy)}:
            await self._children.confirm_child(SECRET, key, self._secrets.get(key))

    async def prune(self, proxy: CoderWorkspaceProxy, keep: str) -> None:
        """Remove the Secrets that nobody reads any more."""
        await self._children.prune(SECRET, proxy, keep=[keep])

    def _is_ours(self, proxy: CoderWorkspaceProxy, key: Key) -> bool:
        """By either watch: ours knows at once what we wrote, the other also knows a Secret that lost its labels."""
        seen = (self._children.get(SECRET, key), self._secrets.get(key))
        return any(each is not None and each.is_controlled_by(proxy) for each in seen)


def _places(proxy: CoderWorkspaceProxy) -> list[tuple[Key, str]]:
    """Where the token is kept, and where it was before."""
    places = [(Key(proxy.metadata.namespace, secret_name(proxy)), TOKEN)]
    if (before := proxy.status.proxy_token_secret_ref) is not None:
        places.append((Key(proxy.metadata.namespace, before.name), before.key))
    return places
