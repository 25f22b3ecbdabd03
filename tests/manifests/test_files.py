"""Writing generated files, and detecting stale ones."""

from pathlib import Path

from click.testing import CliRunner

from coder_k8s.manifests.__main__ import main
from coder_k8s.manifests.files import generated, outdated, write

ROOT = Path(__file__).parents[2]


def check(root: Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["--check", "--root", str(root)])
    return done.exit_code, done.output


def test_generation_is_deterministic() -> None:
    files = generated()
    assert files == generated()
    assert outdated(ROOT, files) == []
    assert all("do not edit" in text.splitlines()[0] for text in files.values())


def test_check_lists_stale_files_and_the_remedy(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["--root", str(tmp_path)]).exit_code == 0
    assert check(tmp_path) == (0, "")

    (tmp_path / "config/crd/codercontrolplanes.yaml").write_text("edited")
    (tmp_path / "docs/reference/coderprovisioner.md").unlink()
    obsolete = tmp_path / "config/crd/coderthings.yaml"
    obsolete.write_text((tmp_path / "config/crd/kustomization.yaml").read_text())
    code, output = check(tmp_path)
    assert code == 1
    assert "make generate" in output
    assert output.split("\n")[1:-1] == [
        "  config/crd/codercontrolplanes.yaml",
        "  config/crd/coderthings.yaml",
        "  docs/reference/coderprovisioner.md",
    ]
    assert obsolete.exists()


def test_writing_deletes_obsolete_generated_files_only(tmp_path: Path) -> None:
    files = generated()
    write(tmp_path, files | {"config/rbac/old.yaml": files["config/rbac/operator.yaml"]})
    handwritten = tmp_path / "docs/reference/environment.md"
    handwritten.write_text("# Environment\n")
    assert outdated(tmp_path, files) == ["config/rbac/old.yaml"]
    write(tmp_path, files)
    assert outdated(tmp_path, files) == []
    assert handwritten.exists()
