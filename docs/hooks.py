"""Hooks of mkdocs: reference pages of the kinds in the navigation, and links to the source.

`SOURCE_URL` is the git remote of the repository; `make docs` sets it to the remote `origin`. A page links by relative
path to a file outside `docs/`. In the site, this link leads to the repository. Without an address, it is plain text.
"""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[1]
BRANCH = "main"
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>\.\./[^)\s]+)\)")
REMOTE = re.compile(r"(?:https://|(?:ssh://)?git@)(?P<host>[^/:@]+)[/:](?P<path>[^:]+?)(?:\.git)?/?")


def on_config(config: Any) -> Any:
    if found := REMOTE.fullmatch(os.environ.get("SOURCE_URL", "")):
        config.repo_url, config.repo_name = web_address(found), found["path"]
    pages = sorted(Path(config.docs_dir, "reference").glob("coder*.md"))
    reference = next(section["Reference"] for section in config.nav if "Reference" in section)
    reference[:0] = [{_title(page): f"reference/{page.name}"} for page in pages]
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    return link_to_source(markdown, PurePosixPath(page.file.src_uri).parent, config.repo_url)


def web_address(remote: re.Match[str]) -> str:
    return f"https://{remote['host']}/{remote['path']}"


def link_to_source(markdown: str, folder: PurePosixPath, url: str | None) -> str:
    """Replace relative links to files outside of `docs/`. Fail if a file does not exist."""

    def replace(found: re.Match[str]) -> str:
        path, _, anchor = found["target"].partition("#")
        target = Path(os.path.normpath(ROOT / "docs" / folder / path))
        if target.is_relative_to(ROOT / "docs"):
            return found[0]
        if not target.exists():
            raise FileNotFoundError(f"{folder}: {found['target']} does not exist")
        kind = "tree" if target.is_dir() else "blob"
        place = f"{url}/{kind}/{BRANCH}/{target.relative_to(ROOT).as_posix()}" + (f"#{anchor}" if anchor else "")
        return f"[{found['text']}]({place})" if url else found["text"]

    return LINK.sub(replace, markdown)


def _title(page: Path) -> str:
    return next(line.removeprefix("# ") for line in page.read_text().splitlines() if line.startswith("# "))
