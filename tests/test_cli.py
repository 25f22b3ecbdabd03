import dataclasses
import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from coder_k8s.cli import flags_of, main
from coder_k8s.dev.certificates import Authority
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.settings import Settings, flag_of
from tests.kube import kubeconfigs

NO_SERVERS = ("--health-probe-bind-address=0", "--metrics-bind-address=0")


def parse(*args: str, **environ: str) -> Settings:
    """Return the settings for these flags and environment variables."""
    parsed: list[Settings] = []

    @click.command()
    @flags_of(Settings)
    def command(**flags: object) -> None:
        parsed.append(Settings(**flags))  # type: ignore[arg-type]

    done = CliRunner(env=environ).invoke(command, args, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return parsed[0]


def run(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process, with no cluster configured by default."""
    home = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "CODER_K8S"))}
    home |= {"HOME": "/nonexistent", **environ}
    command = [sys.executable, "-m", "coder_k8s", *args]
    return subprocess.run(command, capture_output=True, text=True, env=home, timeout=60)


def error_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the only line that a failed command printed."""
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


def test_defaults() -> None:
    assert parse() == Settings()


def test_every_flag_type() -> None:
    settings = parse(
        "--kubeconfig=/tmp/config",
        "--watch-namespaces=a, b,,c",
        "--no-leader-elect",
        "--leader-election-lease-duration=1m30s",
        "--leader-election-renew-deadline=20",
        "--leader-election-retry-period=500ms",
        "--workers=3",
        "--log-format=console",
    )
    assert settings == Settings(
        kubeconfig=Path("/tmp/config"),
        watch_namespaces=("a", "b", "c"),
        leader_elect=False,
        leader_election_lease_duration=90.0,
        leader_election_renew_deadline=20.0,
        leader_election_retry_period=0.5,
        workers=3,
        log_format="console",
    )


def test_flags_override_the_environment() -> None:
    environ = {"CODER_K8S_LOG_LEVEL": "debug", "CODER_K8S_WATCH_NAMESPACES": "a,b", "CODER_K8S_LEADER_ELECT": "false"}
    assert parse(**environ) == Settings(log_level="debug", watch_namespaces=("a", "b"), leader_elect=False)
    assert parse("--log-level=error", **environ).log_level == "error"


def test_help_lists_every_flag() -> None:
    output = CliRunner().invoke(main, ["controller", "--help"]).output
    assert all(flag_of(field.name) in output for field in dataclasses.fields(Settings))
    assert "Run the operator." in output
    assert "controller" in CliRunner().invoke(main, ["--help"]).output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--nonsense"], "No such option"),
        (["--workers=many"], "--workers"),
        (["--log-format=xml"], "--log-format"),
        (["--leader-election-lease-duration=soon"], "write it like 15s"),
        (["--shutdown-grace="], "write it like 15s"),
        (["--shutdown-grace=-1s"], "write it like 15s"),
        (["--leader-election-renew-deadline=15s"], "a leader must stop before another replica may lead"),
        (["--metrics-bind-address=8080"], "write HOST:PORT"),
    ],
)
def test_an_invalid_flag_is_explained(args: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["controller", *args])
    assert done.exit_code == 2
    assert message in done.stderr


def test_an_invalid_flag_exits_with_2() -> None:
    done = run("controller", "--workers=0")
    assert done.returncode == 2
    assert "--workers must be at least 1" in done.stderr
    assert "Traceback" not in done.stderr


def test_version() -> None:
    done = run("version")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["coder-k8s", "python", "platform"]


ON_DEMAND = {f"coder_k8s.controllers.{kind}.reconcile" for kind in ("provisioner", "template", "workspaceproxy")}


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("coder_k8s.cli", {"httptools", "msgspec", "uvloop", "yaml", "coder_k8s.console", "coder_k8s.dev"}),
        ("coder_k8s.app", {"aiohttp", "asyncpg", "yaml", *ON_DEMAND}),
    ],
)
def test_imports_without_heavy_modules(module: str, heavy: set[str]) -> None:
    check = f"import sys, {module}; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_a_shell(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert "_CODER_K8S_COMPLETE" in done.stdout
    assert "coder-k8s" in done.stdout


def test_bash_completion() -> None:
    script = "source <(coder-k8s completion bash); COMP_WORDS=(coder-k8s sta); COMP_CWORD=1"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", "--norc", "-c", f"{script}; _coder_k8s_completion coder-k8s; echo ${{COMPREPLY[*]}}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": path})
    assert done.stdout.split() == ["status"], done.stderr


def test_name_completion_without_a_cluster_is_empty() -> None:
    complete = ShellComplete(main, {}, "coder-k8s", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", "/nonexistent")
        assert complete.get_completions(["rotate"], "") == []


def test_no_cluster_configured() -> None:
    assert "no cluster" in error_line(run("controller"))


def test_a_missing_kubeconfig(tmp_path: Path) -> None:
    assert str(tmp_path / "absent") in error_line(run("controller", f"--kubeconfig={tmp_path / 'absent'}"))


def test_an_unreachable_server(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{unused.getsockname()[1]}"
        started = time.monotonic()
        line = error_line(run("controller", *NO_SERVERS, KUBECONFIG=str(kubeconfig(tmp_path, url))))
    assert url in line
    assert "cannot connect" in line
    assert "check the kubeconfig" in line
    assert 10 <= time.monotonic() - started < 20, "it waits for an API server that restarts"


def test_an_untrusted_certificate(cluster: ClusterAccess, tmp_path: Path) -> None:
    Authority(tmp_path, "other", datetime.now(UTC))
    config = kubeconfigs.write(
        tmp_path / "config", {"server": cluster.url, "certificate-authority": str(tmp_path / "other.crt")}
    )
    started = time.monotonic()
    line = error_line(run("controller", *NO_SERVERS, KUBECONFIG=str(config)))
    assert "is not trusted: check certificate-authority" in line
    assert time.monotonic() - started < 10, "it does not retry"


def test_rejected_credentials(cluster: ClusterAccess, tmp_path: Path) -> None:
    trusted = {"server": cluster.url, "certificate-authority": str(cluster.ca_path)}
    config = kubeconfigs.write(tmp_path / "config", trusted, {"token": "not-a-real-token"})
    line = error_line(run("controller", *NO_SERVERS, KUBECONFIG=str(config)))
    assert "rejects the credentials" in line
    assert "not-a-real-token" not in line


def test_a_port_in_use(operator_kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
        done = run(
            "controller",
            f"--health-probe-bind-address={address}",
            "--metrics-bind-address=0",
            "--log-level=error",
            KUBECONFIG=str(operator_kubeconfig),
        )
    assert done.returncode == 1
    assert f"Error: cannot serve health on {address}: " in done.stderr
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr


def kubeconfig(folder: Path, url: str) -> Path:
    return kubeconfigs.write(folder / "config", {"server": url})


def commands() -> list[tuple[str, ...]]:
    return [(), *((name,) for name in main.list_commands(click.Context(main)))]


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_help_fits_in_80_columns_and_has_examples(path: tuple[str, ...]) -> None:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(main, [*path, "--help"], terminal_width=80)
    assert done.exit_code == 0
    assert [line for line in done.output.splitlines() if len(line) > 80] == []
    examples = done.output.partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
    assert examples
    assert all("coder-k8s" in line for line in examples)


def test_no_summary_of_a_command_is_cut() -> None:
    output = CliRunner().invoke(main, ["--help"], terminal_width=80).output
    lines = output.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == sorted(main.commands), "one line per command"
    assert [line for line in lines if line.endswith("...")] == []


def test_the_version_option() -> None:
    done = CliRunner().invoke(main, ["--version"])
    assert done.output == f"coder-k8s {metadata.version('coder-k8s')}\n"
