"""Plain objects for tests of the cache."""

from coder_k8s.kube.cache import Cache
from coder_k8s.kube.objects import Object, ObjectMeta


def obj(name: str, version: int, namespace: str = "ns", uid: str = "", **labels: str) -> Object:
    meta = ObjectMeta(name=name, namespace=namespace, uid=uid, resource_version=str(version), labels=labels)
    return Object(metadata=meta)


def versions(cache: Cache[Object]) -> dict[str, str]:
    return {item.metadata.name: item.metadata.resource_version for item in cache}
