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
    """The API server rejects the Secret."""


class Tokens:
    """Stores the tokens of proxies in Secrets that the objects own."""

    def __init__(self, children: Children, secrets: Cache[PartialObject]) -> None:
        self._children = children
        self._secrets = secrets

    def name_taken(self, proxy: CoderWorkspaceProxy) -> bool:
        """Whether a Secret of another owner has the name, so that no token can be stored."""
        key = Key(proxy.metadata.namespace, secret_name(proxy))
        return self._secrets.get(key) is not None and not self._is_owned(proxy, key)

    async def stored(self, proxy: CoderWorkspaceProxy) -> str:
        """The token in the Secret, or in the Secret under its previous name; empty if there is none."""
        for key, field in _locations(proxy):
            if not self._is_owned(proxy, key):
                continue
            found = await self._children.fetch(SECRET, key, expected=True)
            if found is not None and (token := value(found, field)):
                return token
        return ""

    async def reserve(self, proxy: CoderWorkspaceProxy) -> None:
        """Ensure that the Secret exists before coderd issues a token, which it returns only once."""
        if self._is_owned(proxy, Key(proxy.metadata.namespace, secret_name(proxy))):
            return
        try:
            await self.store(proxy, "")
        except (errors.Forbidden, errors.Invalid, OwnedByOther) as error:
            raise SecretRefused(str(error)) from error

    async def store(self, proxy: CoderWorkspaceProxy, token: str) -> None:
        await self._children.apply(SECRET, proxy, secret(proxy, token))

    async def confirm(self, proxy: CoderWorkspaceProxy) -> None:
        """Raise `Conflict` if the cached object or Secret is stale: a replaced token stops working."""
        await self._children.confirm(proxy)
        for key in {key for key, _ in _locations(proxy)}:
            await self._children.confirm_child(SECRET, key, self._secrets.get(key))

    async def prune(self, proxy: CoderWorkspaceProxy, keep: str) -> None:
        """Delete unused Secrets."""
        await self._children.prune(SECRET, proxy, keep=[keep])

    def _is_owned(self, proxy: CoderWorkspaceProxy, key: Key) -> bool:
        """Check both caches: that of children has own writes at once, the other also has Secrets without labels."""
        seen = (self._children.get(SECRET, key), self._secrets.get(key))
        return any(each is not None and each.is_controlled_by(proxy) for each in seen)


def _locations(proxy: CoderWorkspaceProxy) -> list[tuple[Key, str]]:
    """The Secret and field of the token, now and previously."""
    locations = [(Key(proxy.metadata.namespace, secret_name(proxy)), TOKEN)]
    if (before := proxy.status.proxy_token_secret_ref) is not None:
        locations.append((Key(proxy.metadata.namespace, before.name), before.key))
    return locations
