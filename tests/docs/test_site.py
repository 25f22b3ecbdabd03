"""The hooks of mkdocs that link the site to the source."""

from pathlib import PurePosixPath

import pytest

from docs.hooks import REMOTE, link_to_source, web_address

HOW_TO = PurePosixPath("how-to")
URL = "https://git.example.com/team/coder-k8s"


@pytest.mark.parametrize(
    "remote", [URL, f"{URL}.git", "git@git.example.com:team/coder-k8s.git", "ssh://git@git.example.com/team/coder-k8s"]
)
def test_remote_with_a_web_address(remote: str) -> None:
    found = REMOTE.fullmatch(remote)
    assert found
    assert web_address(found) == URL


@pytest.mark.parametrize("remote", ["", "/srv/git/coder-k8s.git", "../coder-k8s", "https://user@git.example.com/x"])
def test_remote_without_a_web_address(remote: str) -> None:
    assert REMOTE.fullmatch(remote) is None


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("[policy](../../SECURITY.md)", f"[policy]({URL}/blob/main/SECURITY.md)"),
        ("[policy](../../SECURITY.md#known-limits)", f"[policy]({URL}/blob/main/SECURITY.md#known-limits)"),
        ("[`examples`](../../examples)", f"[`examples`]({URL}/tree/main/examples)"),
        ("[reference](../reference/flags.md#x)", "[reference](../reference/flags.md#x)"),
        ("![picture](../assets/dev.svg)", "![picture](../assets/dev.svg)"),
    ],
)
def test_link_to_a_file_of_the_repository(markdown: str, expected: str) -> None:
    assert link_to_source(markdown, HOW_TO, URL) == expected


def test_link_without_an_address_is_text() -> None:
    assert link_to_source("See [`examples`](../../examples).", HOW_TO, None) == "See `examples`."


def test_link_to_a_missing_file_fails() -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        link_to_source("[x](../../nothing.md)", HOW_TO, URL)
