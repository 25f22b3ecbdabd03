"""Tables of the decisions of a node: delays, probes, phase and status of a pod."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coder_k8s.dev.node.delays import Delays, restart_failures, retry_delay
from coder_k8s.dev.node.instance import log_message
from coder_k8s.dev.node.probes import Probe, Verdict, judge, parse
from coder_k8s.dev.node.status import (
    ContainerState,
    PodState,
    Running,
    Terminated,
    Waiting,
    phase,
    pod_status,
    should_restart,
)
from coder_k8s.dev.node.unsupported import unsupported
from coder_k8s.dev.node.volumes import files, paths

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DELAYS = Delays()


@pytest.mark.parametrize(("failures", "delay"), [(0, 0), (1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (900, 300)])
def test_delay_doubles_up_to_a_limit(failures: int, delay: float) -> None:
    assert retry_delay(failures, DELAYS) == delay


@pytest.mark.parametrize(
    ("before", "ran", "after"), [(None, 0, 0), (None, 700, 0), (0, 5, 1), (4, 599, 5), (4, 600, 0)]
)
def test_first_restart_has_no_delay(before: int | None, ran: float, after: int) -> None:
    assert restart_failures(before, ran, DELAYS) == after


@pytest.mark.parametrize(
    ("results", "verdicts"),
    [
        ("+", "?"),
        ("++", "?H"),
        ("+-+-", "????"),
        ("++--", "?HHH"),
        ("++---", "?HHHU"),
        ("---+-++", "??UUUUH"),
        ("---", "??U"),
    ],
)
def test_thresholds_of_a_probe(results: str, verdicts: str) -> None:
    probe = Probe("http://x", success_threshold=2, failure_threshold=3)
    verdict, seen = Verdict(), ""
    for result in results:
        verdict = judge(verdict, result == "+", probe)
        seen += {None: "?", True: "H", False: "U"}[verdict.healthy]
    assert seen == verdicts


def test_probe_has_the_named_port_and_the_defaults_of_kubernetes() -> None:
    container = {
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}},
        "livenessProbe": {"exec": {"command": ["true"]}},
    }
    assert parse(container, "readinessProbe", "127.5.6.7") == Probe(
        "http://127.5.6.7:8080/healthz", {}, 0, 10, 1, 1, 3, None
    )
    assert parse(container, "livenessProbe", "127.5.6.7") is None
    assert parse(container, "startupProbe", "127.5.6.7") is None


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
def test_restart_policy(policy: str, code: int, again: bool) -> None:
    assert should_restart(policy, code) is again


NEW = ContainerState()
RUNNING = ContainerState(Running(NOW), started=True, ready=True)
DONE = ContainerState(Terminated(0, NOW, NOW))
CRASHED = ContainerState(Terminated(3, NOW, NOW, "boom"))
BACKING_OFF = ContainerState(Waiting("CrashLoopBackOff", "wait"), last=Terminated(3, NOW, NOW, "boom"), restarts=2)


@pytest.mark.parametrize(
    ("policy", "init", "containers", "expected"),
    [
        ("Always", [NEW], [NEW], "Pending"),
        ("Always", [RUNNING], [NEW], "Pending"),
        ("Always", [CRASHED], [NEW], "Pending"),
        ("Never", [CRASHED], [NEW], "Failed"),
        ("Always", [DONE], [NEW], "Pending"),
        ("Always", [DONE], [RUNNING], "Running"),
        ("Always", [], [RUNNING, NEW], "Pending"),
        ("Always", [], [RUNNING, CRASHED], "Running"),
        ("Always", [], [CRASHED], "Running"),
        ("Always", [], [BACKING_OFF], "Running"),
        ("Always", [], [DONE], "Running"),
        ("OnFailure", [], [DONE], "Succeeded"),
        ("OnFailure", [], [CRASHED, DONE], "Running"),
        ("OnFailure", [], [BACKING_OFF], "Running"),
        ("Never", [], [DONE, DONE], "Succeeded"),
        ("Never", [], [DONE, CRASHED], "Failed"),
        ("Never", [], [RUNNING, CRASHED], "Running"),
    ],
)
def test_phase(policy: str, init: list[ContainerState], containers: list[ContainerState], expected: str) -> None:
    assert phase(policy, dict(zip("ab", init, strict=False)), dict(zip("xy", containers, strict=False))) == expected


def status(container: ContainerState, before: Any = None, now: datetime = NOW) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": "web", "image": "web:1"}]}, "status": before or {}}
    return pod_status(pod, PodState({}, {"web": container}, "10.5.6.7", "127.5.6.1", NOW), now)


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def test_status_of_a_ready_pod() -> None:
    ready = status(RUNNING)
    assert conditions(ready) == {"Initialized": "True", "ContainersReady": "True", "Ready": "True"}
    assert (ready["phase"], ready["podIP"], ready["hostIP"]) == ("Running", "10.5.6.7", "127.5.6.1")
    [container] = ready["containerStatuses"]
    assert (container["name"], container["image"], container["ready"]) == ("web", "web:1", True)
    assert container["state"] == {"running": {"startedAt": "2026-01-02T03:04:05Z"}}


def test_status_of_a_container_that_is_restarted() -> None:
    crashing = status(BACKING_OFF)
    [container] = crashing["containerStatuses"]
    assert container["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "wait"}}
    assert container["lastState"]["terminated"]["message"] == "boom"
    assert container["lastState"]["terminated"]["reason"] == "Error"
    assert container["restartCount"] == 2
    assert crashing["conditions"][-1]["message"] == "containers with unready status: [web]"


def test_conditions_keep_their_transition_time_and_those_of_others() -> None:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    first = status(RUNNING, {"conditions": [scheduled]})
    later = status(RUNNING, first, NOW + timedelta(minutes=1))
    assert later == first
    assert scheduled in later["conditions"]
    crashed = status(CRASHED, first, NOW + timedelta(minutes=1))
    assert [each["lastTransitionTime"][11:] for each in crashed["conditions"]] == [
        "00:00:00Z",
        "03:04:05Z",
        "03:05:05Z",
        "03:05:05Z",
    ]


def test_message_from_the_log_has_a_limit_for_lines_and_bytes() -> None:
    assert log_message("one\ntwo\n") == "one\ntwo\n"
    assert log_message("".join(f"{number}\n" for number in range(100))).splitlines()[0] == "20"
    assert log_message("x" * 5000) == "x" * 2048


FOUND = {("Secret", "tls"): {"tls.crt": b"C", "tls.key": b"K"}, ("ConfigMap", "none"): None}


@pytest.mark.parametrize(
    ("volume", "content"),
    [
        ({"emptyDir": {}}, {}),
        ({"secret": {"secretName": "tls"}}, {"tls.crt": b"C", "tls.key": b"K"}),
        ({"secret": {"secretName": "tls", "items": [{"key": "tls.crt", "path": "a/c"}]}}, {"a/c": b"C"}),
        ({"configMap": {"name": "none", "optional": True}}, {}),
    ],
)
def test_files_of_a_volume(volume: dict[str, Any], content: dict[str, bytes]) -> None:
    assert files(volume, FOUND) == content


def test_mount_paths(tmp_path: Any) -> None:
    mounts = [
        {"name": "tls", "mountPath": "/etc/tls/"},
        {"name": "ca", "mountPath": "/etc/ca/one.crt", "subPath": "ca.crt"},
    ]
    assert paths({"volumeMounts": mounts}, tmp_path) == {
        "/etc/tls": str(tmp_path / "tls"),
        "/etc/ca/one.crt": str(tmp_path / "ca" / "ca.crt"),
    }


def test_unsupported_features_are_named() -> None:
    probe = {"exec": {"command": ["true"]}}
    spec = {
        "initContainers": [{"name": "side", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "web",
                "args": ["--config=/etc/web/config.yaml"],
                "livenessProbe": probe,
                "lifecycle": {},
                "readinessProbe": {"httpGet": {}},
                "volumeMounts": [
                    {"name": "scratch", "mountPath": "/etc/web"},
                    {"name": "data", "mountPath": "/data"},
                    {"name": "kube-api-access-x", "mountPath": "/var/run/secrets"},
                ],
            }
        ],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "kube-api-access-x", "projected": {}},
        ],
        "readinessGates": [{"conditionType": "x"}],
        "activeDeadlineSeconds": 60,
    }
    assert unsupported({"spec": spec}) == [
        "volume data (persistentVolumeClaim)",
        "readinessGates",
        "activeDeadlineSeconds",
        "restartPolicy of container side",
        "livenessProbe of container web without httpGet",
        "mount /data of container web",
        "lifecycle of container web",
    ]
