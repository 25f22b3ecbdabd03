import json
import socket
from pathlib import Path

import pytest

from coder_k8s.dev.home import FolderUnusable, Home, claim, default_folders


def test_a_locked_folder_is_skipped(tmp_path: Path) -> None:
    folders = list(default_folders("dev", {"XDG_STATE_HOME": str(tmp_path)}))
    with claim(folders) as first, claim(folders) as second:
        assert first.folder == tmp_path / "coder-k8s" / "dev"
        assert second.folder == tmp_path / "coder-k8s" / "dev-2"
    with claim(folders) as third:
        assert third.folder == first.folder


def test_the_error_names_the_folder_in_use(tmp_path: Path) -> None:
    with (
        claim([tmp_path / "one"]),
        pytest.raises(FolderUnusable, match=str(tmp_path / "one")),
        claim([tmp_path / "one"]),
    ):
        pass


def test_a_folder_with_other_files_is_not_used(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("content")
    with pytest.raises(FolderUnusable, match="contains other files"), claim([tmp_path]) as home:
        home.wipe()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_ports_and_passwords_are_saved(tmp_path: Path) -> None:
    first, second = Home(tmp_path), Home(tmp_path)
    made = first.port("apiserver"), first.port("postgres"), first.password("coder")
    again = Home(tmp_path)
    assert (again.port("apiserver"), again.port("postgres"), again.password("coder")) == made
    assert len(set(made)) == 3
    assert second.password("coder") != made[2]
    assert (tmp_path / "memory.json").stat().st_mode & 0o777 == 0o600


def test_a_port_in_use_is_replaced(tmp_path: Path) -> None:
    port = Home(tmp_path).port("apiserver")
    with socket.create_server(("127.0.0.1", port)):
        other = Home(tmp_path).port("apiserver")
    assert other != port
    assert json.loads((tmp_path / "memory.json").read_text()) == {"apiserver": other}


def test_wipe_deletes_all_state_and_linked_folders(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "dev", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with claim([folder]) as home:
        old = home.password("coder")
        (folder / "etcd").mkdir()
        (folder / "etcd" / "data").touch()
        (folder / "postgres").symlink_to(elsewhere)
        home.wipe()
        assert [path.name for path in folder.iterdir()] == ["coder-k8s-dev.lock"]
        assert not elsewhere.exists()
        assert home.password("coder") != old
