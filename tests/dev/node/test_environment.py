from typing import Any

import pytest

from coder_k8s.dev.node.environment import Addresses, ConfigError, Sources, environment, expand, sources

ADDRESSES = Addresses(pod="127.5.6.7", host="127.5.6.1")
POD: dict[str, Any] = {
    "metadata": {
        "name": "web-1",
        "namespace": "apps",
        "uid": "u-1",
        "labels": {"app.kubernetes.io/name": "web"},
        "annotations": {"note": "hello"},
    },
    "spec": {
        "nodeName": "here",
        "serviceAccountName": "web",
        "containers": [
            {"name": "web", "resources": {"limits": {"cpu": "1500m", "memory": "2Gi"}, "requests": {"cpu": "250m"}}},
            {"name": "other", "resources": {"limits": {"cpu": "3"}}},
        ],
    },
}
FOUND: Sources = {
    ("Secret", "db"): {"url": b"postgres://", "user": b"coder"},
    ("ConfigMap", "settings"): {"LEVEL": b"debug", "MODE": b"$(LEVEL)"},
    ("Secret", "absent"): None,
    ("ConfigMap", "absent"): None,
}


def resolve(*env: Any, env_from: Any = (), defaults: dict[str, str] | None = None) -> dict[str, str]:
    container = {**POD["spec"]["containers"][0], "env": list(env), "envFrom": list(env_from)}
    return environment(container, POD, ADDRESSES, FOUND, defaults or {})


def source(**value_from: Any) -> str:
    return resolve({"name": "X", "valueFrom": value_from})["X"]


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$(MISSING)", "$(MISSING)"),
        ("$(A", "$(A"),
        ("$A ${A} $", "$A ${A} $"),
        ("a$$b", "a$b"),
        ("$()", "$()"),
    ],
)
def test_references(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expanded


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "web-1"),
        ("metadata.namespace", "apps"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app.kubernetes.io/name']", "web"),
        ("metadata.annotations['note']", "hello"),
        ("metadata.annotations['none']", ""),
        ("spec.nodeName", "here"),
        ("spec.serviceAccountName", "web"),
        ("status.hostIP", "127.5.6.1"),
        ("status.podIP", "127.5.6.7"),
        ("status.podIPs", "127.5.6.7"),
    ],
)
def test_fields_of_the_pod(path: str, value: str) -> None:
    assert source(fieldRef={"fieldPath": path}) == value


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "limits.memory"}, "2147483648"),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "2048"),
        ({"resource": "requests.cpu", "divisor": "1m"}, "250"),
        ({"resource": "requests.memory"}, "0"),
        ({"resource": "limits.ephemeral-storage", "divisor": "1Gi"}, "1024"),
        ({"resource": "limits.cpu", "containerName": "other", "divisor": "0"}, "3"),
    ],
)
def test_resources_of_a_container(reference: dict[str, str], value: str) -> None:
    assert source(resourceFieldRef=reference) == value


def test_keys_of_secrets_and_config_maps() -> None:
    assert source(secretKeyRef={"name": "db", "key": "url"}) == "postgres://"
    assert source(configMapKeyRef={"name": "settings", "key": "MODE"}) == "$(LEVEL)"  # not expanded


@pytest.mark.parametrize("name", ["db", "absent"])
def test_optional_key_that_is_missing_sets_nothing(name: str) -> None:
    entry = {"name": "X", "valueFrom": {"secretKeyRef": {"name": name, "key": "none", "optional": True}}}
    assert resolve(entry) == {}


@pytest.mark.parametrize(
    ("value_from", "message"),
    [
        ({"secretKeyRef": {"name": "absent", "key": "url"}}, 'secret "absent" not found'),
        ({"configMapKeyRef": {"name": "absent", "key": "url"}}, 'configmap "absent" not found'),
        ({"secretKeyRef": {"name": "db", "key": "none"}}, "couldn't find key none in Secret apps/db"),
        ({"fieldRef": {"fieldPath": "status.phase"}}, "unsupported fieldPath: status.phase"),
        ({"fileKeyRef": {}}, "the variable X has an unsupported source: fileKeyRef"),
    ],
)
def test_missing_source_is_reported(value_from: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        source(**value_from)
    assert str(raised.value) == message


def test_variables_of_whole_objects_have_a_prefix_and_can_be_referenced() -> None:
    env_from = [{"configMapRef": {"name": "settings"}}, {"prefix": "DB_", "secretRef": {"name": "db"}}]
    assert resolve({"name": "X", "value": "$(DB_user)-$(LEVEL)"}, env_from=env_from) == {
        "LEVEL": "debug",
        "MODE": "$(LEVEL)",
        "DB_url": "postgres://",
        "DB_user": "coder",
        "X": "coder-debug",
    }


def test_missing_object_is_an_error_unless_it_is_optional() -> None:
    with pytest.raises(ConfigError, match='configmap "absent" not found'):
        resolve(env_from=[{"configMapRef": {"name": "absent"}}])
    assert resolve(env_from=[{"secretRef": {"name": "absent", "optional": True}}]) == {}


def test_later_variables_replace_earlier_ones_and_reference_only_those() -> None:
    resolved = resolve(
        {"name": "EARLY", "value": "$(LATE)"},
        {"name": "LEVEL", "value": "info"},
        {"name": "LATE", "value": "$(LEVEL)"},
        env_from=[{"configMapRef": {"name": "settings"}}],
        defaults={"LEVEL": "image", "MODE": "image", "HOME": "/home/coder"},
    )
    assert resolved == {
        "EARLY": "$(LATE)",
        "LEVEL": "info",
        "LATE": "info",
        "MODE": "$(LEVEL)",
        "HOME": "/home/coder",
    }


def test_all_sources_are_found() -> None:
    container = {
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "two", "key": "k"}}},
        ],
        "envFrom": [{"secretRef": {"name": "three"}}, {"configMapRef": {"name": "four"}}],
    }
    assert sources(container) == {
        ("Secret", "one"),
        ("ConfigMap", "two"),
        ("Secret", "three"),
        ("ConfigMap", "four"),
    }
