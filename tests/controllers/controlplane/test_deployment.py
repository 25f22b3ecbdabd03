"""The Deployment of a control plane."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.controllers.controlplane.deployment import PodInputs, defines, deployment, volume_name
from coder_k8s.controllers.names import hashed
from coder_k8s.kube.objects import Manifest

from .planes import plane

DEFAULT = PodInputs()
TLS = {"secretNames": ["coder-tls", "other.tls", "coder-tls"]}
OWN_ENV = [
    {"name": "KUBE_POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
    {"name": "CODER_DERP_SERVER_RELAY_URL", "value": "http://$(KUBE_POD_IP):8080"},
]
ACCESS_URL = {"name": "CODER_ACCESS_URL", "value": "http://demo.golden.svc.cluster.local"}


def template(around: PodInputs = DEFAULT, **spec: Any) -> Manifest:
    made: Manifest = deployment(plane(**spec), around)["spec"]["template"]
    return made


def pod(**spec: Any) -> Manifest:
    made: Manifest = template(**spec)["spec"]
    return made


def container(around: PodInputs = DEFAULT, **spec: Any) -> Manifest:
    (only,) = template(around, **spec)["spec"]["containers"]
    made: Manifest = only
    return made


def test_minimal_spec() -> None:
    made = deployment(plane(), PodInputs())
    assert made["spec"]["replicas"] == 1
    assert made["spec"]["selector"]["matchLabels"] == made["spec"]["template"]["metadata"]["labels"]
    assert made["spec"]["template"]["metadata"].keys() == {"labels"}
    assert made["spec"]["template"]["spec"].keys() == {
        "serviceAccountName",
        "containers",
        "terminationGracePeriodSeconds",
    }
    assert container() == {
        "name": "coder",
        "image": "ghcr.io/coder/coder:latest",
        "imagePullPolicy": "Always",
        "args": ["--http-address=0.0.0.0:8080"],
        "env": [*OWN_ENV, ACCESS_URL],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "readinessProbe": {
            "httpGet": {"path": "/healthz", "port": "http"},
            "initialDelaySeconds": 0,
            "periodSeconds": 10,
            "timeoutSeconds": 1,
            "successThreshold": 1,
            "failureThreshold": 3,
        },
    }


PASSED_THROUGH: dict[str, tuple[str, str, Any]] = {
    "imagePullSecrets": ("pod", "imagePullSecrets", [{"name": "regcred"}]),
    "volumes": ("pod", "volumes", [{"name": "data", "emptyDir": {}}]),
    "nodeSelector": ("pod", "nodeSelector", {"disktype": "ssd"}),
    "tolerations": ("pod", "tolerations", [{"key": "dedicated", "operator": "Exists"}]),
    "affinity": ("pod", "affinity", {"nodeAffinity": {}}),
    "topologySpreadConstraints": ("pod", "topologySpreadConstraints", [{"maxSkew": 1, "topologyKey": "zone"}]),
    "podSecurityContext": ("pod", "securityContext", {"fsGroup": 1000}),
    "volumeMounts": ("container", "volumeMounts", [{"name": "data", "mountPath": "/data"}]),
    "resources": ("container", "resources", {"limits": {"memory": "4Gi"}}),
    "securityContext": ("container", "securityContext", {"runAsNonRoot": True}),
    "envFrom": ("container", "envFrom", [{"secretRef": {"name": "coder"}}]),
    "image": ("container", "image", "coder:1"),
}


@pytest.mark.parametrize(("field", "where"), PASSED_THROUGH.items(), ids=PASSED_THROUGH)
def test_passed_through(field: str, where: tuple[str, str, Any]) -> None:
    place, name, value = where
    made = pod(**{field: value}) if place == "pod" else container(**{field: value})
    assert made[name] == value


def test_replicas_may_be_zero() -> None:
    assert deployment(plane(replicas=0), PodInputs())["spec"]["replicas"] == 0


def test_extra_arguments_are_appended() -> None:
    assert container(extraArgs=["--verbose", "--trace"])["args"] == [
        "--http-address=0.0.0.0:8080",
        "--verbose",
        "--trace",
    ]


def test_checksum_is_in_the_pod_template_once_there_is_one() -> None:
    made = template(PodInputs(checksum="abc"))
    assert made["metadata"]["annotations"] == {"coder.com/config-checksum": "abc"}


MINE = {"name": "MINE", "value": "1"}
OTHER_URL = {"name": "CODER_ACCESS_URL", "value": "https://coder.example.com"}
RELAY = {"name": "CODER_DERP_SERVER_RELAY_URL", "value": ""}


@pytest.mark.parametrize(
    ("inject", "extra", "expected"),
    [
        pytest.param(True, [MINE], [*OWN_ENV, ACCESS_URL, MINE], id="after the operator's"),
        pytest.param(False, [MINE], [*OWN_ENV, MINE], id="no access URL"),
        pytest.param(False, [OTHER_URL], [*OWN_ENV, OTHER_URL], id="own access URL"),
        pytest.param(True, [RELAY], [OWN_ENV[0], RELAY, ACCESS_URL], id="replaces the operator's in its place"),
        pytest.param(True, [MINE, MINE | {"value": "2"}], [*OWN_ENV, ACCESS_URL, MINE | {"value": "2"}], id="twice"),
    ],
)
def test_environment(inject: bool, extra: list[Manifest], expected: list[Manifest]) -> None:
    assert container(PodInputs(inject_access_url=inject), extraEnv=extra)["env"] == expected


def test_which_variables_the_spec_defines() -> None:
    made = plane(extraEnv=[MINE])
    assert (defines(made, "MINE"), defines(made, "CODER_ACCESS_URL")) == (True, False)


def test_tls() -> None:
    made = container(tls=TLS)
    folders = ["/etc/ssl/certs/coder/coder-tls", "/etc/ssl/certs/coder/other.tls"]
    assert made["env"][2:] == [
        {"name": "CODER_ACCESS_URL", "value": "https://demo.golden.svc.cluster.local"},
        {"name": "CODER_TLS_ENABLE", "value": "true"},
        {"name": "CODER_TLS_ADDRESS", "value": "0.0.0.0:8443"},
        {"name": "CODER_TLS_CERT_FILE", "value": ",".join(f"{folder}/tls.crt" for folder in folders)},
        {"name": "CODER_TLS_KEY_FILE", "value": ",".join(f"{folder}/tls.key" for folder in folders)},
    ]
    assert [(port["name"], port["containerPort"]) for port in made["ports"]] == [("http", 8080), ("https", 8443)]
    assert [(mount["mountPath"], mount["readOnly"]) for mount in made["volumeMounts"]] == [
        (folder, True) for folder in folders
    ]
    assert [volume["secret"]["secretName"] for volume in pod(tls=TLS)["volumes"]] == ["coder-tls", "other.tls"]


@pytest.mark.parametrize(
    ("secrets", "expected"),
    [
        pytest.param([("ca", "a.pem")], {"ca.crt": ("ca", "a.pem")}, id="one"),
        pytest.param([("ca", "a.pem"), ("ca", "a.pem")], {"ca-a.pem.crt": ("ca", "a.pem")}, id="the same twice"),
        pytest.param(
            [("ca", "a"), ("ca", "b"), ("other", "a")],
            {"ca-a.crt": ("ca", "a"), "ca-b.crt": ("ca", "b"), "other.crt": ("other", "a")},
            id="two keys of one Secret",
        ),
        pytest.param(
            [("a-b", "c"), ("a", "b"), ("a", "x")],
            {"a-b.crt": ("a-b", "c"), "a-b-2.crt": ("a", "b"), "a-x.crt": ("a", "x")},
            id="two that would have the same name",
        ),
        pytest.param(
            [("a", "b"), ("a", "b.crt"), ("a-b", "c"), ("a-b-2", "d")],
            {
                "a-b.crt": ("a", "b"),
                "a-b-2.crt": ("a", "b.crt"),
                "a-b-3.crt": ("a-b", "c"),
                "a-b-2-2.crt": ("a-b-2", "d"),
            },
            id="several that would have the same name",
        ),
        pytest.param([("ca.crt", "a.pem")], {"ca.crt": ("ca.crt", "a.pem")}, id="a Secret that ends with it"),
        pytest.param(
            [("ca", "a.crt"), ("ca", "b.pem")],
            {"ca-a.crt": ("ca", "a.crt"), "ca-b.pem.crt": ("ca", "b.pem")},
            id="a key that ends with it",
        ),
        pytest.param([("ca.crt", "a"), ("ca", "a")], {"ca.crt": ("ca.crt", "a"), "ca-2.crt": ("ca", "a")}, id="both"),
    ],
)
def test_certificates(secrets: list[tuple[str, str]], expected: dict[str, tuple[str, str]]) -> None:
    spec = {"secrets": [{"name": name, "key": key} for name, key in secrets]}
    volumes = {volume["name"]: volume["secret"]["secretName"] for volume in pod(certs=spec)["volumes"]}
    mounts = container(certs=spec)["volumeMounts"]
    assert len(volumes) == len(set(volumes.values()))
    assert {
        mount["mountPath"].removeprefix("/etc/ssl/certs/"): (volumes[mount["name"]], mount["subPath"])
        for mount in mounts
    } == expected
    assert len(mounts) == len(expected)
    assert all(mount["readOnly"] for mount in mounts)


def test_volumes_of_the_spec_are_appended() -> None:
    data = {"name": "data", "emptyDir": {}}
    names = [volume["name"] for volume in pod(tls={"secretNames": ["coder-tls"]}, volumes=[data])["volumes"]]
    assert names == ["tls-coder-tls", "data"]


@pytest.mark.parametrize(
    ("secret", "expected"),
    [
        ("coder-tls", "tls-coder-tls"),
        ("other.tls", "tls-other-tls-56319d17"),
        ("x" * 59, "tls-" + "x" * 59),
    ],
)
def test_volume_names(secret: str, expected: str) -> None:
    assert volume_name("tls", secret) == expected


@pytest.mark.parametrize(
    ("secret", "kept"),
    [
        ("s" * 60, "s" * 50),
        ("s" * 200, "s" * 50),
        ("s" * 49 + "-" + "t" * 20, "s" * 49),
        ("s" * 48 + ".-" + "t" * 20, "s" * 48),
        ("X" * 60, "X" * 50),
    ],
)
def test_long_volume_names_are_cut(secret: str, kept: str) -> None:
    assert volume_name("tls", secret) == f"tls-{kept}-{hashed('tls', secret)}"
    assert volume_name("tls", "s" * 59) == "tls-" + "s" * 59


SECRET_NAMES = st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,250}[a-z0-9])?", fullmatch=True)


@given(SECRET_NAMES, SECRET_NAMES)
def test_volume_names_fit_and_are_unique(one: str, other: str) -> None:
    names = [volume_name("tls", secret) for secret in (one, other)]
    assert all(len(name) <= 63 and "." not in name and name[-1] != "-" for name in names)
    assert (names[0] == names[1]) == (one == other)


NUMBERS = {
    "initialDelaySeconds": 5,
    "periodSeconds": 7,
    "timeoutSeconds": 3,
    "successThreshold": 1,
    "failureThreshold": 9,
}


@pytest.mark.parametrize("probe", ["readinessProbe", "livenessProbe"])
def test_probes(probe: str) -> None:
    enabled: dict[str, Any] = {probe: {"enabled": True, **NUMBERS}}
    disabled: dict[str, Any] = {probe: {"enabled": False, **NUMBERS}}
    assert container(**enabled)[probe] == {"httpGet": {"path": "/healthz", "port": "http"}, **NUMBERS}
    assert probe not in container(**disabled)


def test_by_default_only_the_readiness_probe_is_enabled() -> None:
    assert container().keys() & {"readinessProbe", "livenessProbe"} == {"readinessProbe"}
