import base64
import re
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.kube.kubeconfig import ConfigError, ResolvedContext, resolve_context
from tests.kube import kubeconfigs


def named(kind: str, **entries: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, kind: entry} for name, entry in entries.items()]


@pytest.fixture
def two_files(tmp_path: Path) -> list[Path]:
    first = {
        "clusters": named("cluster", shared={"server": "https://first"}, mine={"server": "https://mine"}),
        "users": None,
        "contexts": named("context", mine={"cluster": "mine"}, mixed={"cluster": "shared", "user": "robot"}),
    }
    second = {
        "clusters": named("cluster", shared={"server": "https://second"}),
        "users": named("user", robot={"token": "second"}),
        "contexts": named("context", mine={"cluster": "shared", "namespace": "ignored"}, bad={"cluster": "absent"}),
        "current-context": "mixed",
    }
    return [
        kubeconfigs.write_raw(tmp_path / "first", first),
        kubeconfigs.write_raw(tmp_path / "second", second),
    ]


@pytest.mark.parametrize(
    ("context", "server", "token", "namespace"),
    [
        pytest.param(None, "https://first", "second", "default", id="current context, parts from two files"),
        pytest.param("mine", "https://mine", None, "default", id="first of two with the same name, no user"),
    ],
)
def test_merging(two_files: list[Path], context: str | None, server: str, token: str | None, namespace: str) -> None:
    choice = resolve_context(two_files, context)
    assert (choice.cluster.server, choice.user.token, choice.namespace) == (server, token, namespace)


def test_the_first_current_context_wins(two_files: list[Path], tmp_path: Path) -> None:
    zeroth = kubeconfigs.write_raw(tmp_path / "zeroth", {"current-context": "mine"})
    assert resolve_context([zeroth, *two_files]).cluster.server == "https://mine"


def test_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    user = {
        "client-certificate": "tls/client.crt",
        "client-key": "/etc/client.key",
        "tokenFile": "../token",
        "exec": {"apiVersion": "v", "command": "bin/login"},
    }
    path = kubeconfigs.write(tmp_path / "some" / "config", {"certificate-authority": "ca.crt"}, user)
    choice = resolve_context([path])
    folder = tmp_path / "some"
    assert choice.cluster.certificate_authority == folder / "ca.crt"
    assert choice.user.client_certificate == folder / "tls" / "client.crt"
    assert choice.user.client_key == Path("/etc/client.key")
    assert choice.user.token_file == folder / ".." / "token"
    assert choice.user.exec is not None
    assert choice.user.exec.command == str(folder / "bin" / "login")


def test_a_command_without_a_slash_stays_relative(tmp_path: Path) -> None:
    path = kubeconfigs.write(tmp_path / "config", user={"exec": {"apiVersion": "v", "command": "login"}})
    user = resolve_context([path]).user
    assert user.exec is not None
    assert user.exec.command == "login"


def test_every_field_of_a_cluster(tmp_path: Path) -> None:
    cluster = {
        "server": "https://one.example:6443",
        "tls-server-name": "api",
        "insecure-skip-tls-verify": True,
        "certificate-authority-data": base64.b64encode(b"pem").decode(),
        "proxy-url": "http://proxy",
        "disable-compression": True,
        "extensions": [{"name": "some.tool", "extension": {"last-update": None, "provider": "x"}}],
    }
    choice = resolve_context([kubeconfigs.write(tmp_path / "config", cluster, context={"namespace": "space"})])
    assert choice.namespace == "space"
    read = choice.cluster
    assert (read.tls_server_name, read.insecure_skip_tls_verify, read.proxy_url) == ("api", True, "http://proxy")
    assert read.certificate_authority_data == b"pem"


SECRET = "s3cr3t-t0k3n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(f"users:\n- token: {SECRET}\n  {SECRET}: [", r"is not YAML \(line \d\)", id="broken YAML"),
        pytest.param(f"- {SECRET}", "is not a kubeconfig: Expected `object`", id="a list"),
        pytest.param(SECRET, "is not a kubeconfig: Expected `object`", id="a string"),
        pytest.param(
            f"users: [{{name: u, user: {{client-key-data: '{SECRET}!'}}}}]", "Invalid base64", id="data not base64"
        ),
        pytest.param(
            "users: [{name: u, user: {token: 12345}}]", r"Expected `str.*users\[0\].user.token", id="token a number"
        ),
        pytest.param("", "no current-context; select a context", id="empty"),
        pytest.param("current-context: c", r"context 'c' not found \(found: none\)", id="no such context"),
        pytest.param(
            "current-context: c\ncontexts: [{name: c, context: {cluster: x}}]\nclusters: [{name: y, cluster: {}}]",
            r"context 'c': cluster 'x' not found \(found: y\)",
            id="no such cluster",
        ),
        pytest.param(
            "current-context: c\n"
            "contexts: [{name: c, context: {cluster: x, user: u}}]\nclusters: [{name: x, cluster: {}}]",
            r"context 'c': user 'u' not found",
            id="no such user",
        ),
    ],
)
def test_errors_name_the_file_and_no_secret(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}: .*{message}") as raised:
        resolve_context([path])
    text = f"{raised.value} {raised.value.__cause__}"
    assert SECRET not in text
    assert "\n" not in str(raised.value)


def test_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent: cannot be read"):
        resolve_context([tmp_path / "absent"])
    with pytest.raises(ConfigError, match=f"{tmp_path}: cannot be read"):
        resolve_context([tmp_path])


def test_repr_contains_no_secrets(tmp_path: Path) -> None:
    user = {"token": SECRET, "password": SECRET, "exec": {"apiVersion": "v", "command": "c", "args": [SECRET]}}
    choice: ResolvedContext = resolve_context(
        [kubeconfigs.write(tmp_path / "config", {"proxy-url": f"http://u:{SECRET}@p"}, user)]
    )
    assert SECRET not in repr(choice)
