"""The Job of the preflight, and what its result means."""

import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.controllers.controlplane.updates import preflight
from coder_k8s.controllers.controlplane.updates.observations import Schema, Verdict
from coder_k8s.controllers.controlplane.updates.preflight import Preflight
from coder_k8s.kube.objects import Unstructured
from tests.controllers.controlplane.planes import plane

VERSION = '{\n  "version": "v2.36.1+6cb386f",\n  "agpl": false,\n  "slim": false\n}\n'
FAILED = "error: dial postgres: migrations in database: database needs migration: "
MESSAGES = {
    "same": (VERSION + "error: retrieving user: sql: no rows in result set", Schema.SAME),
    "older": (VERSION + FAILED + "current version is 412, but later version 413 exists", Schema.OLDER),
    "newer": (VERSION + FAILED + "get previous migration: prev for version 556 .: file does not exist", Schema.NEWER),
    "empty": (
        VERSION + "error: dial postgres: migrations in database: get migration version: no migration",
        Schema.EMPTY,
    ),
    "not asked": ("no URL of a database\n" + VERSION, Schema.UNKNOWN),
}


@pytest.mark.parametrize(("message", "schema"), MESSAGES.values(), ids=MESSAGES)
def test_result(message: str, schema: Schema) -> None:
    assert preflight.parse(message) == Verdict("v2.36.1+6cb386f", schema)


def test_errors() -> None:
    refused = preflight.parse(VERSION + "error: dial postgres: dial tcp: connection refused\n")
    assert refused == Verdict("v2.36.1+6cb386f", error="error: dial postgres: dial tcp: connection refused")
    last = preflight.parse("error: dial postgres: dial tcp: lookup db: no such host\n" + VERSION)
    assert last.error == "error: dial postgres: dial tcp: lookup db: no such host"
    assert preflight.parse("exec /bin/sh: exec format error") == Verdict()
    assert preflight.parse("") == Verdict()
    assert preflight.parse(VERSION).error == "the check of the database printed nothing"


def pod(state: dict[str, Any]) -> Unstructured:
    status = {"containerStatuses": [{"name": "preflight", "state": state}]}
    return Unstructured.decode(
        msgspec.json.encode({"metadata": {"name": "p", "namespace": "n"}, "spec": {}, "status": status})
    )


def test_runs_until_a_container_exits_or_the_job_fails() -> None:
    waiting = pod({"waiting": {"reason": "ImagePullBackOff"}})
    late = {"status": {"conditions": [{"type": "Failed", "status": "True", "message": "deadline"}]}}
    assert preflight.read({}, []) is None
    assert preflight.read({}, [waiting]) is None
    assert preflight.read(late, [waiting]) == Verdict(error="the Job failed: deadline")
    exited = pod({"terminated": {"exitCode": 1, "message": MESSAGES["same"][0]}})
    assert preflight.read(late, [exited]) == Verdict("v2.36.1+6cb386f", Schema.SAME)


def test_pod_of_the_job() -> None:
    """It has the environment of the server, and nothing that could keep it from being scheduled beside it."""
    url = {"name": "CODER_PG_CONNECTION_URL", "valueFrom": {"secretKeyRef": {"name": "db", "key": "url"}}}
    made = Preflight(
        plane(
            image="coder:v2",
            extraEnv=[url],
            imagePullSecrets=[{"name": "registry"}],
            nodeSelector={"disk": "ssd"},
            affinity={"nodeAffinity": {"x": 1}, "podAntiAffinity": {"y": 2}},
            topologySpreadConstraints=[{"maxSkew": 1}],
            resources={"requests": {"cpu": "4"}, "limits": {"memory": "8Gi"}},
            volumes=[{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}, {"name": "b", "emptyDir": {}}],
            volumeMounts=[{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b"}],
            certs={"secrets": [{"name": "ca", "key": "ca.crt"}]},
            securityContext={"runAsNonRoot": True},
            serviceAccount={"name": "account"},
        ),
        True,
    ).job
    template = made["spec"]["template"]
    spec = template["spec"]
    [container] = spec["containers"]
    assert template["metadata"]["labels"]["app.kubernetes.io/name"] == "coder-preflight"
    assert (spec["restartPolicy"], made["spec"]["backoffLimit"]) == ("Never", 0)
    assert spec["serviceAccountName"] == "account"
    assert (spec["imagePullSecrets"], spec["nodeSelector"]) == ([{"name": "registry"}], {"disk": "ssd"})
    assert spec["affinity"] == {"nodeAffinity": {"x": 1}}
    assert "topologySpreadConstraints" not in spec
    assert [each["name"] for each in spec["volumes"]] == ["ca-cert-ca", "b"]
    assert [each["name"] for each in container["volumeMounts"]] == ["ca-cert-ca", "b"]
    assert url in container["env"]
    assert container["securityContext"] == {"runAsNonRoot": True}
    assert container["resources"] == {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "8Gi"}}
    assert spec["automountServiceAccountToken"] is False
    assert not container.keys() & {"ports", "readinessProbe", "livenessProbe", "args"}


PROGRAM = """#!/bin/sh
[ "$1" = version ] || echo "another line"
echo "$@" "url=$CODER_PG_CONNECTION_URL auth=$CODER_PG_CONNECTION_AUTH"
"""
URL = "postgres://coder@db/coder"
NOT_ASKED = "no URL of a database"
DATABASES: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    # spec, variables of the container, arguments and variables of the second command
    "none": ({}, {}, NOT_ASKED),
    "none, other variables": ({"envFrom": [{"secretRef": {"name": "oidc"}}]}, {"A": "b"}, NOT_ASKED),
    "variable": ({}, {"CODER_PG_CONNECTION_URL": URL}, f"reset-password USER url={URL} auth=password"),
    "cloud": (
        {},
        {"CODER_PG_CONNECTION_URL": URL, "CODER_PG_AUTH": "awsiamrds"},
        f"reset-password USER url={URL} auth=awsiamrds",
    ),
    "argument": (
        {"extraArgs": ["--verbose", f"--postgres-url={URL}"]},
        {},
        f"reset-password --postgres-url={URL} USER url= auth=password",
    ),
    "two arguments": (
        {"extraArgs": ["--postgres-url", URL, "--postgres-auth", "awsiamrds"]},
        {},
        f"reset-password --postgres-url={URL} --postgres-connection-auth=awsiamrds USER url= auth=password",
    ),
    "argument without URL": ({"extraArgs": ["--postgres-auth=awsiamrds"]}, {}, NOT_ASKED),
}


@pytest.mark.parametrize(("spec", "variables", "expected"), DATABASES.values(), ids=DATABASES)
def test_database_is_checked_if_its_url_is_known(
    spec: dict[str, Any], variables: dict[str, str], expected: str, tmp_path: Path
) -> None:
    program = tmp_path / "coder"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    [container] = Preflight(plane(**spec), True).job["spec"]["template"]["spec"]["containers"]
    words = [word.replace("/opt/coder", str(program)) for word in container["command"]]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    *rest, version = done.stdout.splitlines()
    assert (done.returncode, version.split(" url=")[0], done.stderr) == (1, "version -o json", "")
    assert [re.sub(r"preflight-\w+", "USER", line) for line in rest] == [expected]


URLS = (
    'parse "postgres://coder:s3/cret@localhost:54x2/x": invalid port',
    "cannot connect to postgres://coder:s3/cret@localhost:5432",
    'missing "=" after "coder:s3/cret@localhost" in connection info string',
)


@pytest.mark.parametrize("cause", URLS)
def test_error_does_not_contain_the_url(cause: str) -> None:
    found = preflight.parse(f"error: dial postgres: last error: {cause}\n{VERSION}").error
    assert found.startswith("error: dial postgres: last error: ")
    assert "s3" not in found
    assert "cret" not in found


def test_name_changes_with_what_the_preflight_depends_on() -> None:
    def name(**spec: Any) -> str:
        return Preflight(plane(**spec), True).name

    base = name()
    assert base == name(replicas=3)
    others = [
        name(image="coder:v2"),
        name(extraEnv=[{"name": "A", "value": "b"}]),
        name(update={"strategy": "Recreate"}),
    ]
    assert len({base, *others}) == 4
