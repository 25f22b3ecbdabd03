"""Tests of the check for secrets outside of Secrets, and of the audit logs that it needs."""

import base64
import json
import logging
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.kinds import SECRET, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key
from coder_k8s.logs import JsonFormatter
from tests.security.audit import OPERATOR, entries, is_operator
from tests.security.secrecy import Records, findings, logs, secret_words, values, visible_part, words
from tests.security.users import client_of, post

TOKEN = "Ab3dEf6hIj-Kl3nOp6rStUvWx9zAb3dEf"
PASSWORD = "correct-horse-battery"
UUID = "01234567-89ab-cdef-0123-456789abcdef"


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def entry(resource: str, body: Any, user: str = OPERATOR, path: str = "/api") -> dict[str, Any]:
    reference = {"resource": resource, "namespace": "place", "name": "demo"}
    asked = {"verb": "patch", "requestURI": path, "objectRef": reference, "requestObject": body}
    return {**asked, "user": {"username": user}}


PLANTED = entry("secrets", {"data": {"token": encoded(TOKEN)}}, "admin")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (TOKEN, f"refused {TOKEN}."),
        (TOKEN, f"refused '{TOKEN.partition('-')[2]}'"),
        (TOKEN, f"path /keys/{TOKEN}/x"),
        (TOKEN, json.dumps({"msg": f"first\n{TOKEN}\tlast"})),
        (TOKEN, f"data: {encoded(TOKEN)}"),
        (f"{UUID}:{PASSWORD}", f"login by {PASSWORD}"),
        (f"postgres://coder:{PASSWORD}@db.example.com/coder", f"login by {PASSWORD}"),
        ("postgres://coder:correct%2Fhorse-battery-staple@db/coder", "login by correct/horse-battery-staple"),
        (f"postgres://coder:{PASSWORD}@db/coder", f"data: {encoded(f'postgres://coder:{PASSWORD}@db/coder')}"),
        (f"first line\n{PASSWORD}\n", f"login by {PASSWORD}"),
    ],
)
def test_a_value_is_detected_by_its_words(value: str, text: str) -> None:
    assert secret_words(value.encode()) & words(text.encode())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (TOKEN, "refused Ab3dEf6hIj"),
        (f"{UUID}:short", f"proxy {UUID}"),
        (f"postgres://coder:{PASSWORD}@database.example.com/coder", "cannot reach database.example.com"),
        ("https://coder.example.com/a-path-of-its-own", "https://coder.example.com/a-path-of-its-own"),
        ("provisioner-key", "the Secret provisioner-key"),
    ],
)
def test_names_and_short_words_are_not_secret(value: str, text: str) -> None:
    assert not secret_words(value.encode()) & words(text.encode())


@pytest.mark.parametrize(
    "body",
    [
        {"data": {"a": encoded(TOKEN)}},
        {"stringData": {"a": TOKEN}},
        {"data": {"broken": "?", "missing": None, "a": encoded(TOKEN)}, "stringData": None},
    ],
)
def test_values_written_into_a_secret(body: Any) -> None:
    assert TOKEN.encode() in set(values(entry("secrets", body)))
    assert not list(values(entry("configmaps", body)))


@pytest.mark.parametrize(
    "seen",
    [
        entry("codercontrolplanes", {"status": {"conditions": [{"message": f"coderd refuses {TOKEN}"}]}}),
        entry("events", {"note": f"refused: {TOKEN}"}),
        entry("secrets", {"metadata": {"annotations": {"last": TOKEN}}, "data": {"token": encoded(TOKEN)}}),
        entry("secrets", None, path=f"/api/v1/namespaces/place/secrets/{TOKEN}"),
    ],
)
def test_a_request_with_a_secret_is_reported_without_it(seen: dict[str, Any]) -> None:
    [finding] = findings([PLANTED, seen], [])
    assert finding == f"patch {seen['objectRef']['resource']} place/demo"


@pytest.mark.parametrize(
    "seen",
    [
        entry("secrets", {"data": {"token": encoded(TOKEN)}}),
        entry("codercontrolplanes", {"spec": {"image": TOKEN}}, "admin"),
    ],
)
def test_secrets_and_requests_of_users_are_not_reported(seen: dict[str, Any]) -> None:
    assert findings([PLANTED, seen], []) == []


def test_a_log_line_with_a_secret_is_reported_without_it(tmp_path: Path) -> None:
    place = tmp_path / "test_something0"
    place.mkdir()
    (place / "operator-0.log").write_text(f'{{"ts":"1","msg":"a"}}\n{{"ts":"2","msg":"got {TOKEN}"}}\n')
    (place / "operator-0.metrics").write_text(f'errors{{cause="{TOKEN}"}} 1\n')
    (place / "console.log").write_text(f"2026-01-01T00:00:00.000Z INFO    app: {TOKEN}\n")
    (place / "kube-apiserver.log").write_text(f"I1116 {TOKEN}\n")
    found = findings([PLANTED], sorted(logs(tmp_path)))
    assert found == [
        "test_something0/console.log:1: ",
        "test_something0/operator-0.log:2: ",
        "test_something0/operator-0.metrics:1: ",
    ]


@pytest.mark.parametrize("value", [TOKEN])
def test_a_log_record_is_reported_with_its_test(tmp_path: Path, value: str) -> None:
    """The report omits the parameters of the test, which can be secret."""
    handler = Records(tmp_path / "worker.records")
    for message in ("got nothing", f"got {value}"):
        handler.emit(logging.makeLogRecord({"msg": message, "levelno": logging.DEBUG}))
    handler.close()
    found = findings([PLANTED], [tmp_path / "worker.records"])
    place = "tests/security/test_secrecy.py::test_a_log_record_is_reported_with_its_test"
    assert found == [f"{tmp_path.name}/worker.records:2: {place}"]


def test_all_log_records_are_written() -> None:
    logger = logging.getLogger("coder_k8s")
    assert logger.level == logging.DEBUG
    assert any(isinstance(handler, Records) for handler in logger.handlers)
    assert any(isinstance(handler.formatter, JsonFormatter) for handler in logger.handlers)


async def test_audit_logs_contain_every_secret_and_all_writes_of_the_operator(
    cluster: ClusterAccess, operator_kubeconfig: Path, namespace: str, audit: Path
) -> None:
    created, merged, applied, typed = (uuid4().hex for _ in range(4))
    metadata = {"namespace": namespace, "name": "demo"}
    post(cluster, f"/api/v1/namespaces/{namespace}/secrets", {"metadata": metadata, "data": {"a": encoded(created)}})
    async with client_of(cluster.kubeconfig) as admin:
        await admin.merge(SECRET, Key(namespace, "demo"), {"data": {"a": encoded(merged)}})
        await admin.apply(SECRET, {"metadata": {**metadata, "name": "other"}, "data": {"a": encoded(applied)}})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {**metadata, "name": "third"}}
    cluster.kubectl("apply", "--filename=-", input=json.dumps({**secret, "stringData": {"a": typed}}))
    async with client_of(operator_kubeconfig) as operator:
        await operator.create(SERVICE_ACCOUNT, {"metadata": {**metadata, "annotations": {"marker": "a-marker"}}})
    here = [each for each in entries(audit) if each.get("objectRef", {}).get("namespace") == namespace]
    written = {value.decode() for each in here for value in values(each)}
    assert {created, merged, applied, typed} <= written
    [account] = [each for each in here if each["objectRef"]["resource"] == "serviceaccounts"]
    assert is_operator(account)
    assert b"a-marker" in visible_part(account)
