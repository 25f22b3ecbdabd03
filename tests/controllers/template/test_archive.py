"""The archive of a template is deterministic, and files that are no template are rejected."""

import hashlib
import io
import random
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.controllers.template.archive import MAX_ARCHIVE, MAX_FILES, InvalidFiles, archive, content_digest

MAIN = {"main.tf": b"terraform {}\n"}
NAMES = st.lists(st.sampled_from(["a", "b", "modules"]), max_size=3).map(lambda each: "/".join([*each, "x.tf"]))


def test_an_archive_is_ustar_with_fixed_metadata() -> None:
    data = archive({"modules/b/main.tf": b"b", "main.tf": b"a", "binary.png": b"\x00\xff"})

    assert data[257:265] == b"ustar\x0000"
    with tarfile.open(fileobj=io.BytesIO(data)) as found:
        members = found.getmembers()
        contents = {each.name: opened.read() for each in members if (opened := found.extractfile(each))}
    assert [each.name for each in members] == ["binary.png", "main.tf", "modules", "modules/b", "modules/b/main.tf"]
    assert contents == {"binary.png": b"\x00\xff", "main.tf": b"a", "modules/b/main.tf": b"b"}
    assert {(each.isdir(), each.mode) for each in members} == {(True, 0o755), (False, 0o644)}
    assert {(each.mtime, each.uid, each.gid, each.uname, each.gname) for each in members} == {(0, 0, 0, "", "")}
    assert content_digest(data) == hashlib.sha256(data).hexdigest()


@given(st.dictionaries(NAMES, st.binary(max_size=600), max_size=8), st.randoms(use_true_random=False))
def test_equal_files_have_equal_archives(files: dict[str, bytes], rng: random.Random) -> None:
    entries = list({**files, **MAIN}.items())
    shuffled = rng.sample(entries, len(entries))

    data = archive(dict(entries))
    assert archive(dict(shuffled)) == data
    with tarfile.open(fileobj=io.BytesIO(data)) as found:
        contents = {each.name: opened.read() for each in found if (opened := found.extractfile(each))}
    assert contents == dict(entries)


@pytest.mark.parametrize(
    "change",
    [{"main.tf": b"terraform { }\n"}, {"main.tf": b""}, {"other.tf": b""}, {"main.tf": b"", "main.tf.json": b"{}"}],
)
def test_other_files_have_other_archives(change: dict[str, bytes]) -> None:
    assert archive({**MAIN, **change}) != archive(MAIN)


@pytest.mark.parametrize(
    "name",
    [
        ".git/config",
        "modules/.cache/x.tf",
        ".env",
        "terraform.tfstate",
        "modules/a.tfstate.backup",
        "terraform.tfvars",
        "terraform.tfvars.json",
        "prod.auto.tfvars",
        "prod.auto.tfvars.json",
    ],
)
def test_left_out_as_by_the_command_line_of_coder(name: str) -> None:
    assert archive({**MAIN, name: b"x"}) == archive(MAIN)


@pytest.mark.parametrize("name", [".terraform.lock.hcl", "examples/terraform.tfvars", "build/Dockerfile", "ä.md"])
def test_kept_as_by_the_command_line_of_coder(name: str) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive({**MAIN, name: b"x"}))) as found:
        assert name in found.getnames()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"/etc/passwd": b""}, "File name '/etc/passwd' is an absolute path; use a path relative to the template"),
        ({"../main.tf": b""}, "File name '../main.tf' contains '..'; use a path inside the template"),
        ({"a/../../b.tf": b""}, "File name 'a/../../b.tf' contains '..'; use a path inside the template"),
        ({"a//b.tf": b""}, "File name 'a//b.tf' has an empty part or a '.' in its path"),
        ({"./b.tf": b""}, "File name './b.tf' has an empty part or a '.' in its path"),
        ({"a/": b""}, "File name 'a/' has an empty part or a '.' in its path"),
        ({"": b""}, "File name '' has an empty part or a '.' in its path"),
        ({"a\0b.tf": b""}, "File name 'a?b.tf' contains control characters or invalid UTF-8"),
        ({"a\udc80.tf": b""}, "File name 'a?.tf' contains control characters or invalid UTF-8"),
        (
            {"x" * 101: b""},
            f"File name '{'x' * 63}…' is too long for a tar archive;"
            " use at most 100 bytes for the last part and 255 for the path",
        ),
        (
            {"ä" * 60: b""},
            f"File name '{'ä' * 60}' is too long for a tar archive;"
            " use at most 100 bytes for the last part and 255 for the path",
        ),
        ({"a": b"", "a/b": b""}, "'a' is a file and a directory; rename one of them"),
        ({"a/b": b"", "a/b/c/d": b""}, "'a/b' is a file and a directory; rename one of them"),
        (
            {"\u00e4.tf": b"", "a\u0308.tf": b""},
            "Two files have the name 'a\u0308.tf' in different Unicode forms; remove one",
        ),
        (
            {f"{number}.tf": b"" for number in range(MAX_FILES)},
            f"The source has {MAX_FILES + 1} files, and at most {MAX_FILES} are allowed; remove some",
        ),
        (
            {"large.bin": b"x" * MAX_ARCHIVE},
            "The source has 3073 KiB, and at most 3072 KiB are allowed; remove some files",
        ),
        (
            {f"{number}.txt": b"x" * 6000 for number in range(499)},
            "The source has 3251 KiB, and at most 3072 KiB are allowed; remove some files",
        ),
    ],
)
def test_invalid_files(files: dict[str, bytes], message: str) -> None:
    with pytest.raises(InvalidFiles) as raised:
        archive({**MAIN, **files})
    assert str(raised.value) == message


@pytest.mark.parametrize("files", [{}, {"README.md": b""}, {"templates/main.tf": b""}, {".hidden.tf": b""}])
def test_no_template(files: dict[str, bytes]) -> None:
    with pytest.raises(InvalidFiles, match=r"There is no \.tf file at the top of the source; add one"):
        archive(files)
