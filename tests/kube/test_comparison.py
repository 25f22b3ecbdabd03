"""Fields that the server or another manager adds are ignored; removed and changed fields are found."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.comparison import KEYED_LISTS, SETS, contains, differences

CHILDREN = {
    "apis/apps/v1": "io.k8s.api.apps.v1.Deployment",
    "api/v1": "io.k8s.api.core.v1.Service",
    "apis/rbac.authorization.k8s.io/v1": "io.k8s.api.rbac.v1.RoleBinding",
    "apis/networking.k8s.io/v1": "io.k8s.api.networking.v1.Ingress",
}
"""Kinds that the operator writes, by their OpenAPI document."""
NOT_WRITTEN = {"schedulingGates", "values", "evictionResponders", "bindMountOptions"}
"""Lists in them that the operator never writes; the last two are new in Kubernetes 1.37."""


@pytest.mark.parametrize(
    ("desired", "live"),
    [
        pytest.param({"a": 1}, {"a": 1, "b": 2}, id="a default next to a desired field"),
        pytest.param({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, id="a default inside a desired field"),
        pytest.param({"value": ""}, {}, id="the server omits an empty string"),
        pytest.param({"tolerations": []}, {}, id="an empty list"),
        pytest.param({"securityContext": {"a": None}}, {}, id="a null"),
        pytest.param({"paused": False}, {}, id="a false"),
        pytest.param(
            {"containers": [{"name": "coder"}]},
            {"containers": [{"name": "istio"}, {"name": "coder", "image": "x"}]},
            id="a sidecar",
        ),
        pytest.param(
            {"ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]},
            {"ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}]},
            id="the keys of ports are number and protocol",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "coder", "env": [{"name": "A"}]}]}},
            {"spec": {"containers": [{"name": "istio"}, {"name": "coder", "env": [{"name": "B"}, {"name": "A"}]}]}},
            id="an additional sidecar and variable",
        ),
        pytest.param({"finalizers": ["a"]}, {"finalizers": ["a"]}, id="only the desired finalizer"),
        pytest.param({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, id="an additional finalizer"),
        pytest.param(
            {"rules": [{"verbs": ["get"]}]},
            {"rules": [{"verbs": ["get"], "apiGroups": [""]}]},
            id="item with defaults",
        ),
        pytest.param({"limits": {"cpu": "1000m"}}, {"limits": {"cpu": "1"}}, id="normal form of a quantity"),
        pytest.param({"requests": {"memory": "1024Mi"}}, {"requests": {"memory": "1Gi"}}, id="in binary"),
        pytest.param({"limits": {"cpu": 2}}, {"limits": {"cpu": "2"}}, id="as a number"),
        pytest.param({"sizeLimit": "1e3k"}, {"sizeLimit": "1e3k"}, id="an invalid quantity is compared as a string"),
        pytest.param({"divisor": "1e3"}, {"divisor": "1k"}, id="with an exponent"),
    ],
)
def test_contains(desired: Any, live: Any) -> None:
    assert contains(live, desired)


@pytest.mark.parametrize(
    ("desired", "live"),
    [
        pytest.param({"a": 1}, {"a": 2}, id="changed"),
        pytest.param({"a": 1}, {}, id="removed"),
        pytest.param({"replicas": 0}, {"replicas": 1}, id="desired empty, live not"),
        pytest.param({"a": False}, {"a": True}, id="another boolean"),
        pytest.param({"a": {"b": 1}}, {"a": "b"}, id="another type"),
        pytest.param({"args": ["x"]}, {"args": ["x", "y"]}, id="an additional item in an atomic list"),
        pytest.param({"args": ["x", "y"]}, {"args": ["y", "x"]}, id="another order in an atomic list"),
        pytest.param(
            {"rules": [{"verbs": ["get"]}]}, {"rules": [{"verbs": ["get"]}, {"verbs": ["*"]}]}, id="an additional rule"
        ),
        pytest.param({"containers": [{"name": "coder"}]}, {"containers": [{"name": "other"}]}, id="another container"),
        pytest.param(
            {"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}]}, id="another value"
        ),
        pytest.param({"finalizers": ["a"]}, {"finalizers": ["b"]}, id="another finalizer only"),
        pytest.param({"limits": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, id="another quantity"),
        pytest.param({"value": "1000m"}, {"value": "1"}, id="a string that looks like a quantity"),
        pytest.param({"limits": {"cpu": "1..2"}}, {"limits": {"cpu": "1"}}, id="not a quantity"),
    ],
)
def test_does_not_contain(desired: Any, live: Any) -> None:
    assert not contains(live, desired)


def test_list_map_keys_match_the_schema_of_the_api_server(cluster: ClusterAccess) -> None:
    keys: dict[str, set[str]] = {}
    sets: set[str] = set()
    for path, root in CHILDREN.items():
        for name, schema in properties(cluster, path, root):
            kind = schema.get("x-kubernetes-list-type")
            if kind == "map":
                keys.setdefault(name, set()).update(schema["x-kubernetes-list-map-keys"])
            elif kind == "set":
                sets.add(name)
    assert {name: found for name, found in keys.items() if name not in NOT_WRITTEN} == {
        name: set(known) for name, known in KEYED_LISTS.items()
    }
    assert sets - NOT_WRITTEN == SETS


def properties(cluster: ClusterAccess, path: str, root: str) -> Iterator[tuple[str, Any]]:
    """Return every field of a kind except its status, with its schema."""
    schemas = json.loads(cluster.kubectl("get", "--raw", f"/openapi/v3/{path}"))["components"]["schemas"]
    waiting, known = [root], {root}
    while waiting:
        for name, schema in schemas[waiting.pop()].get("properties", {}).items():
            if name != "status":
                yield name, schema
                named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(schema)))
                waiting += named - known
                known |= named


@pytest.mark.parametrize(
    ("desired", "live", "same"),
    [
        ("1", "1000m", True),
        ("1.5", "1500m", True),
        ("1500u", "1500000n", True),
        ("2k", "2000", True),
        ("1M", "1000k", True),
        ("3G", "3000M", True),
        ("1T", "1000G", True),
        ("1P", "1000T", True),
        ("1E", "1000P", True),
        ("1Ki", "1024", True),
        ("1Mi", "1024Ki", True),
        ("1Gi", "1024Mi", True),
        ("1Ti", "1024Gi", True),
        ("1Pi", "1024Ti", True),
        ("1Ei", "1024Pi", True),
        ("1e3", "1k", True),
        ("1E3", "1k", True),
        ("5e-1", "500m", True),
        ("-1", "-1000m", True),
        ("1k", "1Ki", False),
        ("1M", "1m", False),
        ("", "0", False),
        ("1", "1 ", False),
        ("many", "more", False),
    ],
)
def test_quantities(desired: str, live: str, same: bool) -> None:
    for field in ("limits", "requests"):
        assert contains({field: {"x": live}}, {field: {"x": desired}}) is same
    for field in ("divisor", "sizeLimit"):
        assert contains({field: live}, {field: desired}) is same
    assert not contains({"image": live}, {"image": desired})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_everything_contains_itself(value: Any) -> None:
    assert contains(value, value)


@given(st.dictionaries(st.sampled_from("abc"), JSON), st.dictionaries(st.sampled_from("xyz"), JSON))
def test_fields_of_other_managers_are_ignored(desired: dict[str, Any], others: dict[str, Any]) -> None:
    assert contains(desired | others, desired)


@given(st.dictionaries(st.sampled_from("abc"), st.integers(min_value=1), min_size=1), st.data())
def test_every_change_is_found(desired: dict[str, int], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(desired)))
    assert not contains(desired | {name: desired[name] + 1}, desired)
    assert not contains({other: value for other, value in desired.items() if other != name}, desired)


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        ({"spec": {"a": 1, "b": {"c": 2}}, "rules": [1], "other": 1}, []),
        ({"spec": {"a": 1, "b": {"c": 3}}, "rules": [1]}, ["spec.b"]),
        ({"spec": {"b": {"c": 2}}, "rules": [2]}, ["spec.a", "rules"]),
        ({}, ["spec.a", "spec.b", "rules"]),
    ],
)
def test_differences(live: dict[str, Any], expected: list[str]) -> None:
    assert differences(live, {"spec": {"a": 1, "b": {"c": 2}}, "rules": [1]}) == expected
