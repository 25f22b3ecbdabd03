"""Objects of any depth are decoded; levels that are too deep are dropped."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.deep_json import MAX_DEPTH, prune
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import SECRET, SECRET_METADATA
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind
from tests.support import eventually
from tests.support.informers import informers, synced

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\[]{}\n\u2028é'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\[{'), inner, max_size=4),
)


@given(JSON)
def test_shallow_json_is_unchanged(value: Any) -> None:
    assert prune(json.dumps(value).encode()) == json.dumps(value).encode()


@given(JSON, st.integers(MAX_DEPTH, 3 * MAX_DEPTH), st.integers(0, MAX_DEPTH // 2))
def test_only_deep_levels_become_null(value: Any, depth: int, above: int) -> None:
    deep = b'{"a":' * depth + b'"}]"' + b"}" * depth
    beside = json.dumps(value).encode()
    text = b"[" * above + b"[" + deep + b"," + beside + b"]" + b"]" * above
    found = json.loads(prune(text))
    for _ in range(above):
        [found] = found
    pruned, kept = found
    assert json.dumps(pruned).count('{"a": ') == MAX_DEPTH - above - 2
    assert kept == value


def deep_fields(depth: int) -> bytes:
    return b'{"f:a":' * depth + b"{}" + b"}" * depth


def secret(namespace: str, name: str, depth: int) -> bytes:
    """A Secret with deep managedFields, as any client with write access can create it."""
    entry = b'{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":%s}'
    metadata = b'{"name":"%s","namespace":"%s","managedFields":[%s]}'
    fields = entry % deep_fields(depth)
    return b'{"metadata":%s}' % (metadata % (name.encode(), namespace.encode(), fields))


@pytest.mark.parametrize("kind", [SECRET, SECRET_METADATA], ids=str)
@pytest.mark.parametrize("depth", [900, 990, 2000, 9000])
async def test_lists_and_watches_decode_objects_of_any_depth(
    cluster: ClusterAccess, namespace: str, kind: Kind[Any], depth: int
) -> None:
    config = load(cluster.kubeconfig)
    async with Http(config, "test", Metrics()) as http, informers(config) as make:

        async def create(name: str, depth: int) -> None:
            path, headers = SECRET.path(Key(namespace, "")), {"Content-Type": "application/json"}
            await http.send("POST", path, {}, headers, secret(namespace, name, depth))

        await create("before", depth)
        await create("plain", 1)
        informer = make(kind, namespace)
        async with synced(informer):
            assert {item.key.name for item in informer} == {"before", "plain"}
            await create("after", depth)
            await eventually(lambda: len(informer) == 3)
        assert (await Client(http, "test").get(kind, Key(namespace, "before"))).metadata.name == "before"
