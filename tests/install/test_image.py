"""Tests of the image that need no container engine."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest

from tests.install import dockerfile
from tests.install.rendering import ROOT, objects

DOCKERFILE = ROOT / "Dockerfile"


@pytest.fixture(scope="module")
def stages() -> list[dockerfile.Stage]:
    return dockerfile.read(DOCKERFILE)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with a plain Python and pip, like the base image, and with the build context."""
    venv.create(tmp_path / "python", with_pip=True)
    context = tmp_path / "context"
    context.mkdir()
    for path in (ROOT / name for name in build_context()):
        if path.is_dir():
            shutil.copytree(path, context / path.name)
        else:
            shutil.copy(path, context)
    return tmp_path


def build(stages: list[dockerfile.Stage], base: Path) -> Path:
    """Run the build stage; return the folder of the application, which is always the same."""
    app, work = base / "app", base / "src"
    subprocess.run(["rm", "-rf", app, work], check=True)
    arguments = {"APP": str(app), "SOURCE_DATE_EPOCH": "0"}
    dockerfile.build(stages[0], base / "context", work, base / "python" / "bin", arguments)
    return app


def build_context() -> set[str]:
    """The files that `.dockerignore` includes in a build."""
    return {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}


def contents(folder: Path) -> dict[str, str]:
    """A digest of every file with its mode and time."""
    found = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        what = os.readlink(path) if path.is_symlink() else "" if path.is_dir() else _digest(path)  # noqa: PTH115
        found[str(path.relative_to(folder))] = f"{state.st_mode:o} {state.st_mtime:.0f} {what}"
    return found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(app: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the image without other files, as a user without write access."""
    subprocess.run(["chmod", "-R", "a-w", app], check=True)
    without_capabilities = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.getuid() == 0 else []
    return subprocess.run(
        [*without_capabilities, app / "bin" / command[0], *command[1:]],
        env={"PATH": f"{app / 'bin'}:{os.defpath}", "HOME": "/nowhere", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def test_hadolint() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "--no-color", DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_user_ports_and_command_match_the_deployment(stages: list[dockerfile.Stage]) -> None:
    last = stages[-1]
    plain = objects((ROOT / "install.yaml").read_text())
    spec = plain["Deployment", "coder-system/coder-k8s"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    user = spec["securityContext"]
    assert last.all("USER") == [f"{user['runAsUser']}:{user['runAsGroup']}"]
    assert last.all("EXPOSE") == [" ".join(str(port["containerPort"]) for port in container["ports"])]
    assert [json.loads(text) for text in last.all("ENTRYPOINT")] == [["coder-k8s"]]
    assert [json.loads(text) for text in last.all("CMD")] == [container["args"][:1]]


def test_the_image_contains_no_build_tools(stages: list[dockerfile.Stage]) -> None:
    build_stage, last = stages
    assert build_stage.base == last.base == "python:${PYTHON}"
    assert re.search(r"^ARG PYTHON=3\.13\.\d+-slim-trixie$", DOCKERFILE.read_text(), re.MULTILINE)
    assert last.all("COPY") == ["--from=build ${APP} ${APP}"]
    (command,) = last.all("RUN")
    assert command.startswith("pip uninstall --yes pip")


def test_copied_files_match_the_build_context(stages: list[dockerfile.Stage]) -> None:
    """Files that `.dockerignore` excludes cannot be copied, and all others are copied."""
    copied = {name.partition("/")[0] for text in stages[0].all("COPY") for name in text.split()[:-1]}
    assert copied == build_context()


def test_every_installed_package_is_locked(stages: list[dockerfile.Stage]) -> None:
    installs = [part for text in stages[0].all("RUN") for part in text.split("&&") if " install " in part]
    assert len(installs) == 3
    assert all("--require-hashes" in part or "--no-index" in part for part in installs)


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_the_build_is_reproducible_and_runs_read_only(stages: list[dockerfile.Stage], base: Path) -> None:
    before = contents(build(stages, base))
    app = build(stages, base)
    assert contents(app) == before

    sources = {path for path in app.rglob("*.py") if "site-packages" in path.parts}
    compiled = {path.parent.parent / f"{path.name.split('.')[0]}.py" for path in app.rglob("__pycache__/*.pyc")}
    assert sources == compiled
    assert not [path for path in app.rglob("*") if path.name in ("pip", "setuptools", "hatchling")]

    assert run(app, "python", "-c", f"open({str(app / 'new')!r}, 'w')").stderr.count("PermissionError") == 1
    version = run(app, "coder-k8s", "version")
    assert version.stdout.splitlines()[0] == f"coder-k8s {metadata.version('coder-k8s')}", version.stderr
    where = run(app, "python", "-c", "import coder_k8s.app, httptools; print(coder_k8s.__file__, httptools.__file__)")
    assert all(path.startswith(f"{app}/") for path in where.stdout.split())
    alone = run(app, "coder-k8s", "controller", "--kubeconfig=/nowhere/config")
    assert (alone.returncode, "Traceback" in alone.stderr) == (1, False)
    assert "/nowhere/config" in alone.stderr


@pytest.mark.campaign
@pytest.mark.parametrize("platform", ["x86_64", "aarch64"])
def test_every_dependency_has_a_wheel_for_the_image(platform: str, tmp_path: Path) -> None:
    python = re.search(r"^ARG PYTHON=(\d+\.\d+)", DOCKERFILE.read_text(), re.MULTILINE)
    assert python is not None
    platforms = [f"--platform=manylinux{glibc}_{platform}" for glibc in ("2014", "_2_28")]
    flags = ["--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:", f"--python-version={python[1]}"]
    locked = f"--requirement={ROOT / 'requirements' / 'runtime.txt'}"
    command = [sys.executable, "-m", "pip", "download", *flags, *platforms, locked, f"--dest={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
