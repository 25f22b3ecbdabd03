"""Writing generated files, and noticing that they are stale."""

from pathlib import Path

from click.testing import CliRunner

from coder_k8s.manifests.__main__ import main
from coder_k8s.manifests.files import generated, outdated, write

ROOT = Path(__file__).parents[2]


def check(root: Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["--check", "--root", str(root)])
    return done.exit_code, done.output


def test_the_files_of_the_project_are_fresh() -> None:
    assert outdated(ROOT, generated()) == []


def test_the_same_code_gives_the_same_files() -> None:
    assert generated() == generated()


def test_every_file_says_that_it_is_generated() -> None:
    assert all("do not edit" in text.splitlines()[0] for text in generated().values())


def test_check_names_what_is_stale_and_what_to_do(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["--root", str(tmp_path)]).exit_code == 0
    assert check(tmp_path) == (0, "")

    (tmp_path / "config/crd/codercontrolplanes.yaml").write_text("edited")
    (tmp_path / "docs/reference/coderprovisioner.md").unlink()
    left_over = tmp_path / "config/crd/coderthings.yaml"
    left_over.write_text((tmp_path / "config/crd/kustomization.yaml").read_text())
    code, said = check(tmp_path)
    assert code == 1
    assert "make generate" in said
    assert said.split("\n")[1:-1] == [
        "  config/crd/codercontrolplanes.yaml",
        "  config/crd/coderthings.yaml",
        "  docs/reference/coderprovisioner.md",
    ]
    assert left_over.exists()


def test_writing_removes_what_is_left_over_and_nothing_else(tmp_path: Path) -> None:
    files = generated()
    write(tmp_path, files | {"config/rbac/old.yaml": files["config/rbac/operator.yaml"]})
    by_hand = tmp_path / "docs/reference/environment.md"
    by_hand.write_text("# Environment\n")
    assert outdated(tmp_path, files) == ["config/rbac/old.yaml"]
    write(tmp_path, files)
    assert outdated(tmp_path, files) == []
    assert by_hand.exists()
