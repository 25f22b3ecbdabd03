from pathlib import Path
from typing import Any

import pytest

from coder_k8s.settings import InvalidSettings, Settings, lease_namespace


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "--workers"),
        ({"watch_namespaces": ("fine", "Not_Fine")}, "--watch-namespaces: 'Not_Fine'"),
        ({"leader_election_lease_duration": 0.5}, "--leader-election-lease-duration"),
        ({"leader_election_lease_duration": 15.5}, "--leader-election-lease-duration"),
        ({"leader_election_renew_deadline": 15.0}, "--leader-election-renew-deadline must be shorter"),
        ({"leader_election_retry_period": 10.0}, "--leader-election-retry-period must be shorter"),
        ({"leader_election_retry_period": 0.0}, "--leader-election-retry-period"),
        ({"health_probe_bind_address": "8081"}, "--health-probe-bind-address: '8081' is not a listen address"),
        ({"metrics_bind_address": "here"}, "--metrics-bind-address: 'here' is not a listen address"),
        ({"metrics_bind_address": ":8081"}, "must differ"),
        ({"watch_silence_limit": 0.0}, "--watch-silence-limit"),
        ({"shutdown_grace": -1.0}, "--shutdown-grace"),
        ({"coderd_connect_to": ("coder",)}, "--coderd-connect-to: 'coder' is not of the form"),
    ],
)
def test_invalid_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        Settings(**settings)
    assert message in str(error.value)


def test_the_defaults_are_valid() -> None:
    assert Settings().leader_elect


def test_both_servers_may_use_a_free_port_or_be_disabled() -> None:
    for address in ("127.0.0.1:0", "0"):
        Settings(health_probe_bind_address=address, metrics_bind_address=address)


def test_lease_namespace(tmp_path: Path) -> None:
    mounted, absent = tmp_path / "namespace", tmp_path / "absent"
    mounted.write_text("from-account\n")
    environ = {"POD_NAMESPACE": "from-pod"}
    assert lease_namespace(Settings(leader_election_namespace="chosen"), environ, mounted) == "chosen"
    assert lease_namespace(Settings(), environ, mounted) == "from-pod"
    assert lease_namespace(Settings(), {}, mounted) == "from-account"
    assert lease_namespace(Settings(), {}, absent) == "kube-system"
