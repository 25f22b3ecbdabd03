import http
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

import pytest

from coder_k8s.dev import binaries
from coder_k8s.dev.cluster import Cluster, ClusterAccess, KubectlFailed
from coder_k8s.dev.processes import ProcessFailed, poll
from tests.support import alive

pytestmark = pytest.mark.slow

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"

# Starts a cluster as a run of tests would, prints the pids of its programs, and waits to be killed.
OWNER = """
import sys, time
from pathlib import Path
from coder_k8s.dev.cluster import Cluster
with Cluster(Path(sys.argv[1])) as cluster:
    print(*(component.pid for component in cluster.components), flush=True)
    time.sleep(60)
"""


def test_ready(cluster: ClusterAccess) -> None:
    assert cluster.request("GET", "/readyz") == (http.HTTPStatus.OK, b"ok")


@pytest.mark.skipif("KUBEBUILDER_ASSETS" in os.environ, reason="the programs were given")
def test_programs_report_their_version(cluster: ClusterAccess) -> None:
    versions = json.loads(cluster.kubectl("version", "--output=json"))

    assert versions["serverVersion"]["gitVersion"] == binaries.version("kube-apiserver")
    assert versions["clientVersion"]["gitVersion"] == binaries.version("kubectl")


def test_kubectl_reads_its_input_and_reports_errors(cluster: ClusterAccess, namespace: str) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "given"}, "data": {"a": "1"}}
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=json.dumps(manifest))

    assert cluster.kubectl("get", "configmap", "given", "-n", namespace, "-o", "jsonpath={.data.a}") == "1"
    with pytest.raises(KubectlFailed, match='configmaps "absent" not found'):
        cluster.kubectl("get", "configmap", "absent", "-n", namespace)


def test_a_service_account_token_is_valid_without_permissions(
    cluster: ClusterAccess, namespace: str, tmp_path: Path
) -> None:
    cluster.kubectl("create", "serviceaccount", "nobody", "-n", namespace)
    token = cluster.kubectl("create", "token", "nobody", "-n", namespace).strip()
    kubeconfig = cluster.write_kubeconfig(tmp_path / "nobody", {"token": token}, namespace)
    assert kubeconfig.stat().st_mode & 0o777 == 0o600

    whoami = cluster.kubectl("--kubeconfig", kubeconfig, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert whoami == f"system:serviceaccount:{namespace}:nobody"
    with pytest.raises(
        KubectlFailed, match=f'"system:serviceaccount:{namespace}:nobody" cannot list resource "secrets"'
    ):
        cluster.kubectl("--kubeconfig", kubeconfig, "get", "secrets")


def test_a_killed_apiserver_restarts_with_its_port_and_data(module_cluster: Cluster) -> None:
    url = module_cluster.url
    module_cluster.kubectl("create", "configmap", "kept", "--from-literal=a=1")

    module_cluster.kill_apiserver()
    assert not module_cluster.ready()
    with pytest.raises(ConnectionRefusedError):
        module_cluster.request("GET", "/readyz")

    module_cluster.start_apiserver()
    assert module_cluster.url == url
    assert module_cluster.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "1"


def test_history_is_gone_after_compaction_and_restart(module_cluster: Cluster) -> None:
    old = json.loads(module_cluster.request("GET", CONFIGMAPS)[1])["metadata"]["resourceVersion"]
    for name in "abc":
        module_cluster.request("POST", CONFIGMAPS, {"metadata": {"name": name}})

    assert module_cluster.compact() > int(old)
    module_cluster.kill_apiserver()
    module_cluster.start_apiserver()

    watch = urlencode({"watch": "true", "resourceVersion": old, "timeoutSeconds": 1})
    status, answer = module_cluster.request("GET", f"{CONFIGMAPS}?{watch}")
    assert http.HTTPStatus.GONE in (status, json.loads(answer)["object"]["code"])


def test_a_suspended_apiserver_responds_when_resumed(module_cluster: Cluster) -> None:
    module_cluster.pause_apiserver()
    with pytest.raises(TimeoutError):
        module_cluster.request("GET", "/readyz", timeout=0.5)
    module_cluster.resume_apiserver()
    assert module_cluster.request("GET", "/readyz") == (http.HTTPStatus.OK, b"ok")


def test_a_bad_flag_fails_the_start_with_the_log_and_no_process_is_left(scratch: Path) -> None:
    cluster = Cluster(scratch, apiserver_args=["--no-such-flag"])
    with pytest.raises(ProcessFailed, match=r"(?s)kube-apiserver exited with 1; .*unknown flag: --no-such-flag"):
        cluster.start()
    assert not any(component.running for component in cluster.components)


def test_the_cluster_stops_with_its_owner(scratch: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(scratch)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert [alive(pid) for pid in pids] == [True, True]
        owner.kill()
    assert poll(lambda: not any(alive(pid) for pid in pids), timeout=5)
