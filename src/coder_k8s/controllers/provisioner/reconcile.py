"""What is done about a CoderProvisioner: nothing yet but to see it."""

import logging

from coder_k8s.api import CoderProvisioner
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.objects import Key
from coder_k8s.kube.rules import Rule

log = logging.getLogger(__name__)

RULES = (Rule(groups=("coder.com",), resources=("coderprovisioners",), verbs=("get", "list", "watch")),)


class Reconciler:
    """Brings one CoderProvisioner at a time to rest."""

    def __init__(self, provisioners: Cache[CoderProvisioner]) -> None:
        self._provisioners = provisioners

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns when to look again."""
        found = self._provisioners.get(key)
        log.debug("seen" if found else "gone", extra={"namespace": key.namespace, "object": key.name})
        return None
