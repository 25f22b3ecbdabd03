import asyncio
import base64
import json
import os
import signal
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.dev.certificates import Authority
from coder_k8s.dev.processes import poll
from coder_k8s.kube.config import Config, ConfigError, load
from coder_k8s.kube.credentials import StaticCredentials
from coder_k8s.kube.exec_plugin import ExecPlugin
from coder_k8s.kube.kubeconfig import Cluster, Exec
from tests.kube import kubeconfigs
from tests.support import alive, eventually

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
SECRET = "s3cr3t-t0k3n"


def credential(version: str = V1, **status: Any) -> str:
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


class Plugin:
    """A script that counts its runs, and a clock that lets credentials expire."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "plugin"
        self.marks = folder / "marks"
        self.now = datetime(2026, 2, 3, 12, tzinfo=UTC).timestamp()

    def set_script(self, body: str) -> None:
        self.path.write_text(f"#!/bin/sh\necho run >> {self.marks}\n{body}\n")
        self.path.chmod(stat.S_IRWXU)

    def set_output(self, text: str) -> None:
        self.set_script(f"cat <<'END'\n{text}\nEND")

    @property
    def runs(self) -> int:
        return len(self.marks.read_text().splitlines()) if self.marks.exists() else 0

    def config(self, cluster: dict[str, Any] | None = None, **spec: Any) -> Config:
        user = {"exec": {"apiVersion": V1, "command": "./plugin", "interactiveMode": "IfAvailable", **spec}}
        path = kubeconfigs.write(self.folder / "config", cluster, user)
        return load(path, environ={"PATH": "/usr/bin:/bin"}, clock=lambda: self.now)


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_a_token(plugin: Plugin, version: str) -> None:
    plugin.set_output(credential(version, token=SECRET))
    credentials = await plugin.config(apiVersion=version).credentials()
    assert credentials.authorization == f"Bearer {SECRET}"


async def test_environment_and_cluster_info(plugin: Plugin, tmp_path: Path) -> None:
    plugin.set_script(
        f"printenv KUBERNETES_EXEC_INFO > info; echo \"$1,$2,$COLOUR\" > arguments; echo '{credential(token='t')}'"
    )
    plugin.path.write_text(plugin.path.read_text().replace("printenv", f"cd {tmp_path}; printenv"))
    cluster = {
        "server": "https://one.example",
        "certificate-authority": "ca.crt",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}],
    }
    Authority(tmp_path, "ca", datetime.now(UTC))
    env = [{"name": "COLOUR", "value": "blue"}]

    await plugin.config(cluster, args=["a b", "c"], env=env).credentials()
    assert (tmp_path / "arguments").read_text() == "a b,c,blue\n"
    info = {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False}}
    assert json.loads((tmp_path / "info").read_text()) == info

    await plugin.config(cluster, provideClusterInfo=True).credentials()
    assert json.loads((tmp_path / "info").read_text())["spec"]["cluster"] == {
        "server": "https://one.example",
        "certificate-authority-data": base64.b64encode((tmp_path / "ca.crt").read_bytes()).decode(),
        "config": {"audience": "x"},
    }


@pytest.mark.parametrize(
    ("expires", "fresh", "stale"),
    [
        pytest.param("2026-02-03T13:00:00Z", 3569, 3571, id="an hour: 30 seconds early"),
        pytest.param("2026-02-03T12:00:20Z", 9, 11, id="20 seconds: after half of them"),
        pytest.param("2026-02-03T14:00:00+01:00", 3569, 3571, id="in another time zone"),
    ],
)
async def test_refresh_shortly_before_the_expiration(plugin: Plugin, expires: str, fresh: float, stale: float) -> None:
    plugin.set_output(credential(token="old", expirationTimestamp=expires))
    config = plugin.config()
    start = plugin.now
    assert (await config.credentials()).authorization == "Bearer old"
    plugin.set_output(credential(token="new"))
    plugin.now = start + fresh
    assert (await config.credentials()).authorization == "Bearer old"
    plugin.now = start + stale
    assert (await config.credentials()).authorization == "Bearer new"
    plugin.now = start + 1e9
    assert (await config.credentials()).authorization == "Bearer new"
    assert plugin.runs == 2


async def test_refresh_after_rejection(plugin: Plugin) -> None:
    plugin.set_output(credential(token="old"))
    config = plugin.config()
    await config.credentials()
    plugin.set_output(credential(token="new"))
    assert (await config.credentials(renew=True)).authorization == "Bearer new"


async def test_many_requests_share_one_run_and_its_failure(plugin: Plugin) -> None:
    plugin.set_output(credential(token="t"))
    config = plugin.config()
    await asyncio.gather(*(config.credentials() for _ in range(10)))
    assert plugin.runs == 1
    await asyncio.gather(*(config.credentials(renew=True) for _ in range(10)))
    assert plugin.runs == 2
    plugin.set_script("exit 3")
    answers = await asyncio.gather(*(config.credentials(renew=True) for _ in range(10)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {ConfigError}
    assert plugin.runs == 3
    plugin.set_output(credential(token="again"))
    assert (await config.credentials()).authorization == "Bearer again"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param("exit 3", "plugin exited with 3:$", id="fails without output"),
        pytest.param(
            f"echo {SECRET}; echo please >&2; echo log in >&2; exit 1", "exited with 1: please log in$", id="stderr"
        ),
        pytest.param("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1", "exited with 1: x{300}$", id="long stderr"),
        pytest.param(f"echo {SECRET}", "printed no ExecCredential", id="a bare token"),
        pytest.param("", "printed no ExecCredential", id="nothing"),
        pytest.param(f"echo '{credential(V1BETA1, token=SECRET)}'", f"{V1BETA1}, not {V1}", id="another version"),
        pytest.param(f"echo '{credential()}'", "neither a token nor a client certificate", id="empty status"),
        pytest.param(f"echo '{credential(clientKeyData=SECRET)}'", "without its certificate", id="key alone"),
        pytest.param(
            f"echo '{credential(token=SECRET + ' x')}'", "does not contain a token", id="token with white space"
        ),
        pytest.param(
            f"echo '{credential(clientKeyData=SECRET, clientCertificateData=SECRET)}'", "not a PEM pair", id="no PEM"
        ),
    ],
)
async def test_errors_name_the_user_and_omit_the_output(plugin: Plugin, body: str, message: str) -> None:
    plugin.set_script(body)
    with pytest.raises(ConfigError, match=message) as raised:
        await plugin.config().credentials()
    text = str(raised.value)
    assert text.startswith(f"{plugin.folder}/config: user 'one': ")
    assert SECRET not in text
    assert "\n" not in text


async def test_a_missing_plugin_shows_its_install_hint(plugin: Plugin) -> None:
    config = plugin.config(command="no-such-plugin", installHint="Install it\nfrom example.com.")
    message = "no-such-plugin cannot be run: No such file or directory. Install it from example.com."
    with pytest.raises(ConfigError, match=message):
        await config.credentials()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1; supported:"),
        ({"interactiveMode": "Always"}, "needs a terminal"),
    ],
)
def test_unsupported_plugins_are_rejected_before_they_run(plugin: Plugin, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plugin.config(**spec)


def open_files() -> set[Path]:
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.add(link.readlink())
    return found


def hanging(plugin: Plugin) -> ExecPlugin:
    spec = Exec(api_version=V1, command=str(plugin.path))
    static = StaticCredentials("file", lambda: 0.0)
    return ExecPlugin(spec, "file", Cluster(), static, {"PATH": "/usr/bin:/bin"}, lambda: 0.0, timeout=0.5)


async def test_a_daemon_that_a_plugin_leaves_behind_does_not_block(plugin: Plugin, tmp_path: Path) -> None:
    plugin.set_script("sleep 100")
    with pytest.raises(ConfigError, match=r"did not exit within 0.5 s"):
        await hanging(plugin)()  # the event loop opens files for its first process
    plugin.set_script(f"setsid sleep 100 & echo $! > {tmp_path}/child; sleep 100")
    before = open_files()
    with pytest.raises(ConfigError, match=r"did not exit within 0.5 s"):
        async with asyncio.timeout(10):
            await hanging(plugin)()
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    await eventually(lambda: open_files() <= before)


@pytest.mark.parametrize("then", ["wait", "exit 0"])
async def test_a_plugin_that_hangs_is_killed_with_its_children(plugin: Plugin, tmp_path: Path, then: str) -> None:
    plugin.set_script(f"sleep 100 & echo $! > {tmp_path}/child; {then}")
    with pytest.raises(ConfigError, match=r"did not exit within 0.5 s"):
        await hanging(plugin)()
    child = int((tmp_path / "child").read_text())
    await eventually(lambda: not alive(child))


@pytest.mark.parametrize("steps", [*range(1, 8), None])
async def test_a_cancelled_request_leaves_no_process(plugin: Plugin, tmp_path: Path, steps: int | None) -> None:
    """Also if it is cancelled while the process starts, which takes several steps of the event loop."""
    child = tmp_path / "child"
    plugin.set_script(f"sleep 100 & echo $! > {child}.part; mv {child}.part {child}; wait")
    request = asyncio.create_task(plugin.config().credentials())
    if steps is None:
        await eventually(child.exists)
    for _ in range(steps or 0):
        await asyncio.sleep(0)
    poll(child.exists, timeout=0.3)  # the event loop does not run meanwhile
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await eventually(lambda: not child.exists() or not alive(int(child.read_text())))


async def test_a_static_client_certificate_is_used_with_the_token(plugin: Plugin, tmp_path: Path) -> None:
    pair = Authority(tmp_path, "ca", datetime.now(UTC)).client("client", "robot")
    plugin.set_output(credential(token="t"))
    user = {
        "client-certificate": str(pair.certificate),
        "client-key": str(pair.key),
        "exec": {"apiVersion": V1, "command": str(plugin.path)},
    }
    config = load(kubeconfigs.write(tmp_path / "config", user=user))
    assert (await config.credentials()).authorization == "Bearer t"
    pair.key.unlink()
    with pytest.raises(ConfigError, match=r"client\.key"):
        await config.credentials(renew=True)
