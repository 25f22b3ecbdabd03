"""Every alert fires under its condition, and only then."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coder_k8s.manifests import alerts
from tests.observability.promql import assert_known, promtool, write

RULES = [rule for group in alerts.groups() for rule in group["rules"]]
Series = dict[str, str]

OPERATOR = 'job="coder-k8s", namespace="coder-system", instance="10.0.0.1:8080"'
OTHER = 'job="coder-k8s", namespace="coder-system", instance="10.0.0.2:8080"'
UNRELATED = 'job="another-operator", namespace="elsewhere", instance="10.0.0.3:8080"'
OBJECT = 'namespace="coder", name="main"'
PROCESS = {"job": "coder-k8s", "instance": "10.0.0.1:8080"}
CONTROLLER = {"job": "coder-k8s", "namespace": "coder-system", "controller": "codercontrolplane"}
OF_OBJECT = {"namespace": "coder", "name": "main"}

WATCH = {f'coder_k8s_watch_age_seconds{{{OPERATOR}, kind="pods"}}': "5x200"}
OPERATOR_OF_OBJECT = f'job="coder-k8s", instance="10.0.0.1:8080", kind="CoderControlPlane", {OBJECT}'
LEASE = 'name="coder-k8s-controller.coder.com"'
LEADING = f"leader_election_master_status{{{OPERATOR}, {LEASE}}}"
STANDING_BY = f"leader_election_master_status{{{OTHER}, {LEASE}}}"
RECONCILES = f'{OPERATOR}, controller="codercontrolplane"'
DEPTH = f'workqueue_depth{{{RECONCILES}, name="codercontrolplane"}}'
DONE = f'controller_runtime_reconcile_total{{{RECONCILES}, result="success"}}'
REQUESTS = "rest_client_requests_total"
EXPIRY = f"coder_k8s_license_expiry_timestamp_seconds{{{OBJECT}}}"
SEVERITIES = {"websocket": "2x200", "derp": "1x200", "database": "0x200"}
UNSERVED_JOBS = f'coder_k8s_unserved_jobs{{{OBJECT}, organization="b"}}'
UNSERVED_TEMPLATES = f'coder_k8s_unserved_templates{{{OBJECT}, organization="b"}}'
DAY = 86400


def daemons(idle: int, busy: int, offline: int) -> Series:
    states = {"idle": idle, "busy": busy, "offline": offline}
    return {f'coder_k8s_provisioner_daemons{{{OBJECT}, state="{state}"}}': f"{n}x200" for state, n in states.items()}


def replicas(desired: int, ready: int, kind: str = "CoderControlPlane") -> Series:
    numbers = {"desired": desired, "ready": ready}
    return {f'coder_k8s_object_{name}_replicas{{kind="{kind}", {OBJECT}}}': f"{n}x200" for name, n in numbers.items()}


def durations(under_5: str, under_30: str) -> Series:
    name = f"controller_runtime_reconcile_time_seconds_bucket{{{RECONCILES}"
    return {f'{name}, le="5"}}': under_5, f'{name}, le="30"}}': under_30, f'{name}, le="+Inf"}}': under_30}


def waits(quick: int, slow: int) -> Series:
    """Jobs per minute that wait for less than 5 minutes, and for more."""
    name = f"coder_k8s_provisioner_queue_wait_seconds_bucket{{{OBJECT}"
    return {
        f'{name}, le="300"}}': f"0+{quick}x200",
        f'{name}, le="600"}}': f"0+{quick + slow}x200",
        f'{name}, le="+Inf"}}': f"0+{quick + slow}x200",
    }


def scaling(desired: int, maximum: int, pending: int) -> Series:
    numbers = {"desired_replicas": desired, "max_replicas": maximum, "pending_jobs": pending}
    return {f"coder_k8s_provisioner_{name}{{{OBJECT}}}": f"{number}x200" for name, number in numbers.items()}


class Case(NamedTuple):
    """Series for which an alert fires after some minutes, its labels, and series for which it does not fire."""

    fires: Series
    labels: dict[str, str]
    quiet: tuple[Series, ...]
    at: int = 60
    observes: str = ""
    """The kind that it observes. The alert does not fire while the object is paused: its metrics have old values."""

    @property
    def paused(self) -> tuple[Series, ...]:
        reason = f'coder_k8s_object_ready{{job="coder-k8s", kind="{self.observes}", {OBJECT}, reason="Paused"}}'
        return ({**self.fires, reason: "0x200"},) if self.observes else ()


CASES = {
    "CoderOperatorAbsent": Case({}, {}, (WATCH,), at=6),
    "CoderOperatorNoLeader": Case(
        {LEADING: "0x200", STANDING_BY: "0x200"},
        {"job": "coder-k8s", "namespace": "coder-system"},
        ({LEADING: "1x200", STANDING_BY: "0x200"}, {LEADING: "0 0 1x200"}, {}),
        at=4,
    ),
    "CoderOperatorSeveralLeaders": Case(
        {LEADING: "1x200", STANDING_BY: "1x200"},
        {"job": "coder-k8s", "namespace": "coder-system"},
        ({LEADING: "1x200", STANDING_BY: "0x200"}, {LEADING: "1 1 1 0x200", STANDING_BY: "0 0 1x200"}),
        at=4,
    ),
    "CoderOperatorRestarts": Case(
        {f"process_start_time_seconds{{{OPERATOR}}}": "1x10 2x10 3x10 4x10 5x20", **WATCH},
        {**PROCESS, "namespace": "coder-system"},
        (
            {f"process_start_time_seconds{{{OPERATOR}}}": "1x10 2x100", **WATCH},
            {f"process_start_time_seconds{{{UNRELATED}}}": "1x10 2x10 3x10 4x10 5x20", **WATCH},
        ),
    ),
    "CoderOperatorWatchSilent": Case(
        {f'coder_k8s_watch_age_seconds{{{OPERATOR}, kind="pods"}}': "200+60x60"},
        {**PROCESS, "kind": "pods"},
        (WATCH, {f'coder_k8s_watch_age_seconds{{{OPERATOR}, kind="pods"}}': "0 60 120 180 240 0x60"}),
        at=10,
    ),
    "CoderOperatorReconcileErrors": Case(
        {f"controller_runtime_reconcile_errors_total{{{RECONCILES}}}": "0+1x12 12+0.2x60"},
        CONTROLLER,
        (
            {f"controller_runtime_reconcile_errors_total{{{RECONCILES}}}": "0+5x10 50x100"},
            {f'controller_runtime_reconcile_errors_total{{{UNRELATED}, controller="another"}}': "0+1x100"},
        ),
    ),
    "CoderOperatorQueueStuck": Case(
        {DEPTH: "3x200", DONE: "7x200"},
        CONTROLLER,
        ({DEPTH: "3x200", DONE: "0+1x200"}, {DEPTH: "0x200", DONE: "7x200"}),
    ),
    "CoderOperatorQueueDeep": Case({DEPTH: "51x200"}, CONTROLLER, ({DEPTH: "50x200"}, {DEPTH: "100x50 0x100"})),
    "CoderOperatorSlow": Case(
        durations("0+1x200", "0+10x200"), CONTROLLER, (durations("0+10x200", "0+10x200"), durations("0x9", "0x9"))
    ),
    "CoderOperatorApiErrors": Case(
        {
            f'{REQUESTS}{{{OPERATOR}, code="200", method="GET"}}': "0+80x100",
            f'{REQUESTS}{{{OPERATOR}, code="503", method="GET"}}': "0+10x100",
            f'{REQUESTS}{{{OPERATOR}, code="<error>", method="GET"}}': "0+10x100",
            **WATCH,
        },
        PROCESS,
        (
            {
                f'{REQUESTS}{{{OPERATOR}, code="200", method="GET"}}': "0+95x100",
                f'{REQUESTS}{{{OPERATOR}, code="503", method="GET"}}': "0+5x100",
                **WATCH,
            },
            {f'{REQUESTS}{{{OPERATOR}, code="404", method="GET"}}': "0+10x100", **WATCH},
            {f'{REQUESTS}{{{UNRELATED}, code="503", method="GET"}}': "0+10x100", **WATCH},
        ),
    ),
    "CoderOperatorForbidden": Case(
        {f'{REQUESTS}{{{OPERATOR}, code="403", method="GET"}}': "0+1x100", **WATCH},
        PROCESS,
        (
            {f'{REQUESTS}{{{OPERATOR}, code="403", method="GET"}}': "0 1 2 2x100", **WATCH},
            {f'{REQUESTS}{{{UNRELATED}, code="403", method="GET"}}': "0+1x100", **WATCH},
        ),
    ),
    "CoderOperatorUndecodableObjects": Case(
        {f'coder_k8s_undecodable_objects_total{{{OPERATOR}, kind="pods"}}': "0x50 1x50"},
        {"job": "coder-k8s", "namespace": "coder-system", "kind": "pods"},
        ({f'coder_k8s_undecodable_objects_total{{{OPERATOR}, kind="pods"}}': "0x10 1x100"},),
    ),
    "CoderOperatorStatusRejected": Case(
        {f'coder_k8s_status_rejected_total{{{OPERATOR}, kind="coderprovisioners.coder.com"}}': "0x50 1x50"},
        {"job": "coder-k8s", "namespace": "coder-system", "kind": "coderprovisioners.coder.com"},
        ({f'coder_k8s_status_rejected_total{{{OPERATOR}, kind="coderprovisioners.coder.com"}}': "0x10 1x100"},),
    ),
    "CoderObjectNotReady": Case(
        {f'coder_k8s_object_ready{{{OPERATOR_OF_OBJECT}, reason="PodsNotReady"}}': "0x200"},
        {**OF_OBJECT, "kind": "CoderControlPlane"},
        (
            {f'coder_k8s_object_ready{{{OPERATOR_OF_OBJECT}, reason="AllReady"}}': "1x200"},
            {f'coder_k8s_object_ready{{{OPERATOR_OF_OBJECT}, reason="PodsNotReady"}}': "0x15 1x200"},
            {f'coder_k8s_object_ready{{{OPERATOR_OF_OBJECT}, reason="Paused"}}': "0x200"},
        ),
    ),
    "CoderControlPlaneDown": Case(
        replicas(desired=2, ready=0),
        OF_OBJECT,
        (
            replicas(desired=2, ready=1),
            replicas(desired=0, ready=0),
            replicas(desired=2, ready=0, kind="CoderProvisioner"),
        ),
        at=6,
    ),
    "CoderUnhealthy": Case(
        {f'coder_k8s_health_severity{{{OBJECT}, section="{section}"}}': value for section, value in SEVERITIES.items()},
        {**OF_OBJECT, "section": "websocket"},
        (
            {f'coder_k8s_health_severity{{{OBJECT}, section="websocket"}}': "1x200"},
            {f'coder_k8s_health_severity{{{OBJECT}, section="websocket"}}': "0 2 2 2 0x200"},
            {},
        ),
        at=11,
        observes="CoderControlPlane",
    ),
    "CoderUpdateStuck": Case(
        {f'coder_k8s_update_step_start_timestamp_seconds{{{OBJECT}, step="Migrate"}}': "0x200"},
        {**OF_OBJECT, "step": "Migrate"},
        (
            {f'coder_k8s_update_step_start_timestamp_seconds{{{OBJECT}, step="Window"}}': "0x200"},
            {f'coder_k8s_update_step_start_timestamp_seconds{{{OBJECT}, step="Migrate"}}': "0+60x200"},
            {},
        ),
        at=55,
    ),
    "CoderLicenseExpiresSoon": Case(
        {EXPIRY: f"{13 * DAY}x200"}, OF_OBJECT, ({EXPIRY: f"{15 * DAY}x200"}, {EXPIRY: f"{2 * DAY}x200"}), at=90
    ),
    "CoderLicenseExpires": Case({EXPIRY: f"{2 * DAY}x200"}, OF_OBJECT, ({EXPIRY: f"{4 * DAY}x200"}, {})),
    "CoderFeatureInGracePeriod": Case(
        {f'coder_k8s_license_entitlement{{{OBJECT}, feature="workspace_proxy"}}': "1x200"},
        {**OF_OBJECT, "feature": "workspace_proxy"},
        (
            {f'coder_k8s_license_entitlement{{{OBJECT}, feature="workspace_proxy"}}': "2x200"},
            {f'coder_k8s_license_entitlement{{{OBJECT}, feature="workspace_proxy"}}': "0x200"},
        ),
        at=90,
    ),
    "CoderJobsUnserved": Case(
        {f'coder_k8s_unserved_jobs{{{OBJECT}, organization="a"}}': "0x200", UNSERVED_JOBS: "2x200"},
        OF_OBJECT,
        ({UNSERVED_JOBS: "0x200"}, {UNSERVED_JOBS: "1x3 0x200"}, {}),
        at=6,
        observes="CoderControlPlane",
    ),
    "CoderSchedulesSkipped": Case(
        {UNSERVED_TEMPLATES: "1x200"},
        OF_OBJECT,
        ({UNSERVED_TEMPLATES: "0x200"}, {UNSERVED_TEMPLATES: "1x10 0x200"}),
        at=20,
        observes="CoderControlPlane",
    ),
    "CoderProvisionerDaemonsLost": Case(
        daemons(0, 0, 2),
        OF_OBJECT,
        (daemons(0, 1, 2), daemons(1, 0, 0), daemons(0, 0, 0)),
        at=15,
        observes="CoderProvisioner",
    ),
    "CoderProvisionerDaemonsOffline": Case(
        daemons(1, 0, 2),
        {**OF_OBJECT, "state": "offline"},
        (daemons(2, 1, 0), daemons(0, 0, 2)),
        at=90,
        observes="CoderProvisioner",
    ),
    "CoderProvisionerKeyRotatesOften": Case(
        {f'coder_k8s_provisioner_key_rotations_total{{{OBJECT}, cause="SecretLost"}}': "0+1x10 10x60"},
        OF_OBJECT,
        ({f'coder_k8s_provisioner_key_rotations_total{{{OBJECT}, cause="Requested"}}': "0x10 1x20 2x60"},),
    ),
    "CoderProvisionerQueueWaitHigh": Case(
        waits(quick=0, slow=1),
        OF_OBJECT,
        (waits(quick=99, slow=1), {}),
    ),
    "CoderProvisionerAtMaximum": Case(
        scaling(desired=5, maximum=5, pending=1),
        OF_OBJECT,
        (scaling(desired=4, maximum=5, pending=1), scaling(desired=5, maximum=5, pending=0)),
        observes="CoderProvisioner",
    ),
    "CoderProvisionerPodsNotStarting": Case(
        {f"coder_k8s_provisioner_pods_not_starting{{{OBJECT}}}": "1x200"},
        OF_OBJECT,
        (
            {f"coder_k8s_provisioner_pods_not_starting{{{OBJECT}}}": "0x200"},
            {f"coder_k8s_provisioner_pods_not_starting{{{OBJECT}}}": "1x55 0 1x200"},
        ),
        observes="CoderProvisioner",
    ),
    "CoderProvisionerBuildsLost": Case(
        {f"coder_k8s_provisioner_builds_lost_total{{{OBJECT}}}": "0x30 1x200"},
        OF_OBJECT,
        ({f"coder_k8s_provisioner_builds_lost_total{{{OBJECT}}}": "0x200"},),
    ),
    "CoderTemplateImportFailed": Case(
        {f'coder_k8s_object_ready{{kind="CoderTemplate", {OBJECT}, reason="ImportFailed"}}': "0x200"},
        {**OF_OBJECT, "reason": "ImportFailed"},
        (
            {f'coder_k8s_object_ready{{kind="CoderTemplate", {OBJECT}, reason="Importing"}}': "0x200"},
            {f'coder_k8s_object_ready{{kind="CoderTemplate", {OBJECT}, reason="AllReady"}}': "1x200"},
        ),
    ),
    "CoderTemplateDriftRevertedOften": Case(
        {f"coder_k8s_template_drift_reverted_total{{{OBJECT}}}": "0+1x10 10x60"},
        OF_OBJECT,
        ({f"coder_k8s_template_drift_reverted_total{{{OBJECT}}}": "0x10 1x20 2x60"},),
    ),
    "CoderWorkspaceProxyUnhealthy": Case(
        {f"coder_k8s_workspace_proxy_healthy{{{OBJECT}}}": "0x200"},
        OF_OBJECT,
        ({f"coder_k8s_workspace_proxy_healthy{{{OBJECT}}}": "1x200"},),
        observes="CoderWorkspaceProxy",
    ),
    "CoderWorkspaceProxyTokenMadeOften": Case(
        {f'coder_k8s_workspace_proxy_tokens_total{{{OBJECT}, cause="Regenerated"}}': "0+1x5 5x60"},
        OF_OBJECT,
        (
            {f'coder_k8s_workspace_proxy_tokens_total{{{OBJECT}, cause="Regenerated"}}': "0x10 1x60"},
            {f'coder_k8s_workspace_proxy_tokens_total{{{OBJECT}, cause="Registered"}}': "0+1x5 5x60"},
        ),
    ),
}


def expectations(rule: dict[str, Any]) -> list[dict[str, Any]]:
    """The promtool tests of a rule: series, and the labels of the expected alerts at some times."""
    name, case = rule["alert"], CASES[rule["alert"]]
    firing = [{"exp_labels": case.labels | rule["labels"]}]
    cases: list[tuple[Series, dict[int, list[Any]]]] = [(case.fires, {case.at: firing} | early(rule))]
    cases += [(series, {case.at: []}) for series in (*case.quiet, *case.paused)]
    return [
        {
            "name": f"{name} with {series}",
            "interval": "1m",
            "input_series": [{"series": one, "values": values} for one, values in series.items()],
            "alert_rule_test": [
                {"eval_time": f"{at}m", "alertname": name, "exp_alerts": expected} for at, expected in alerts.items()
            ],
        }
        for series, alerts in cases
    ]


def early(rule: dict[str, Any]) -> dict[int, list[Any]]:
    """No alert is expected one minute before the end of `for`."""
    lasting = {"h": 60, "m": 1}
    return {int(rule["for"][:-1]) * lasting[rule["for"][-1]] - 1: []} if "for" in rule else {}


def test_promtool_accepts_the_rules() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", alerts.RULES)


def test_every_alert_fires_only_under_its_condition(tmp_path: Path) -> None:
    tests = []
    for rule in RULES:
        # promtool compares complete annotations; they have a separate test below.
        unannotated = {key: rule[key] for key in rule if key != "annotations"}
        rules = write(tmp_path / f"{rule['alert']}.yaml", {"groups": [{"name": "one", "rules": [unannotated]}]})
        content = {"rule_files": [str(rules)], "tests": expectations(rule)}
        tests.append(write(tmp_path / f"{rule['alert']}.test.yaml", content))
    promtool("test", "rules", *tests)


def test_every_alert_has_a_test() -> None:
    assert list(CASES) == [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_annotations_of_an_alert(rule: dict[str, Any]) -> None:
    annotations = rule["annotations"]
    assert set(annotations) == {"summary", "description", "action"}
    assert rule["labels"]["severity"] in ("critical", "warning")
    text = " ".join(annotations.values())
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= set(CASES[rule["alert"]].labels)
    # An alert is read in Alertmanager, a chat or a mail: a link of Markdown does not work there.
    assert not re.search(r"\]\(|\.md\b", text)


def test_alerts_use_only_metrics_and_labels_that_exist(labels: dict[str, set[str]]) -> None:
    for rule in RULES:
        assert_known(rule["expr"], labels)
