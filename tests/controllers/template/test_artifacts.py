"""Only complete artifacts of Services in the cluster are used, and only the files in their path."""

import gzip
import hashlib
import tarfile
import tracemalloc

import pytest

from coder_k8s.controllers.template.archive import MAX_ARCHIVE, InvalidFiles
from coder_k8s.controllers.template.artifacts import MAX_ENTRIES, MAX_EXPANDED, check_digest, extract, service_of
from coder_k8s.kube.objects import Key

from .flux_artifacts import artifact, bomb, link, sha256, with_entries

FILES = {"main.tf": b"a", "modules/x/main.tf": b"b"}


@pytest.mark.parametrize(
    "url",
    [
        "http://source-controller.flux-system.svc.cluster.local./gitrepository/a/b/c.tar.gz",
        "http://source-controller.flux-system.svc.cluster.local/gitrepository/a/b/c.tar.gz",
        "http://source-controller.flux-system.svc/x",
        "https://source-controller.flux-system.svc:8443/x?y=z",
    ],
)
def test_urls_of_services(url: str) -> None:
    assert service_of(url) == Key("flux-system", "source-controller")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://169.254.169.254/latest/meta-data", "at host '169.254.169.254', which is not a Service"),
        ("http://[::1]/x", "at host '::1', which is not a Service"),
        ("http://localhost:8080/x", "at host 'localhost', which is not a Service"),
        ("http://example.com/x", "at host 'example.com', which is not a Service"),
        ("http://a.b.svc.example.com/x", "at host 'a.b.svc.example.com', which is not a Service"),
        ("http://a.b.svc.cluster.local.example.com/x", "which is not a Service"),
        ("http://svc/x", "at host 'svc', which is not a Service"),
        ("http://a.b.svc@example.com/x", "at host 'example.com', which is not a Service"),
        ("http://example.com#a.b.svc/x", "at host 'example.com', which is not a Service"),
        ("http://user:secret@a.b.svc/x", "contains credentials"),
        ("file:///etc/passwd", "not valid: the URL is not an http or https URL"),
        ("gopher://a.b.svc/x", "not valid: the URL is not an http or https URL"),
        ("http://a.b.svc/x\r\nHost: x", "not valid: the URL contains invalid characters"),
        ("", "not valid: the URL is not an http or https URL"),
    ],
)
def test_other_urls(url: str, message: str) -> None:
    with pytest.raises(InvalidFiles) as raised:
        service_of(url)
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
def test_digests(algorithm: str) -> None:
    digest = f"{algorithm}:{hashlib.new(algorithm, b'data').hexdigest()}"
    check_digest(b"data", digest)
    with pytest.raises(InvalidFiles, match="does not match its digest"):
        check_digest(b"date", digest)


@pytest.mark.parametrize("digest", ["", "blake3:00", "md5:8d777f385d3dfec8815d20f7496026dc", "sha256"])
def test_unknown_digests(digest: str) -> None:
    with pytest.raises(InvalidFiles, match=r"does not match|none of sha256, sha384, sha512"):
        check_digest(b"data", digest)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", FILES),
        (".", FILES),
        ("./", FILES),
        ("modules", {"x/main.tf": b"b"}),
        ("./modules/x/", {"main.tf": b"b"}),
        ("/modules//x", {"main.tf": b"b"}),
    ],
)
@pytest.mark.parametrize("prefix", ["", "./"])
def test_files_in_a_path(path: str, expected: dict[str, bytes], prefix: str) -> None:
    data = artifact({f"{prefix}{name}": content for name, content in FILES.items()}, [tarfile.TarInfo("modules/.git")])
    assert extract(data, path) == expected


def test_links_outside_of_the_path_are_ignored() -> None:
    assert extract(artifact(FILES, [link("current"), link("mod")]), "modules/x") == {"main.tf": b"b"}


@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        (artifact(FILES), "../x", "path '../x' contains '..'; use a path inside the artifact"),
        (artifact(FILES), "mod", "The artifact has no files in the directory 'mod'; correct path"),
        (artifact({}), "modules", "The artifact has no files in the directory 'modules'; correct path"),
        (artifact({"../x.tf": b""}), "", "The artifact has the entry '../x.tf', which is outside of it"),
        (artifact({"a/../../x.tf": b""}), "b", "The artifact has the entry 'a/../../x.tf', which is outside of it"),
        (artifact({"/etc/x.tf": b""}), "", "The artifact has the entry '/etc/x.tf', which is outside of it"),
        (artifact({"main.tf": b"a", "./main.tf": b"b"}), "", "The artifact has two files 'main.tf'; it is not used"),
        (artifact(FILES, [link("x.tf")]), "", "'x.tf' in the artifact is a link or a device; replace it by a file"),
        (artifact(FILES, [link("x.tf", tarfile.LNKTYPE)]), "", "'x.tf' in the artifact is a link or a device"),
        (artifact(FILES, [link("null", tarfile.CHRTYPE)]), "", "'null' in the artifact is a link or a device"),
        (artifact(FILES, [link("pipe", tarfile.FIFOTYPE)]), "", "'pipe' in the artifact is a link or a device"),
        (b"", "", "The artifact is not a complete tar archive that is compressed with gzip"),
        (b"<html>not found</html>", "", "The artifact is not a complete tar archive"),
        (gzip.compress(b"not a tar archive" * 100), "", "The artifact is not a complete tar archive"),
        (artifact(FILES)[:-40], "", "The artifact is not a complete tar archive"),
        (artifact({"a.bin": bytes(MAX_ARCHIVE + 1)}), "", "File 'a.bin' in the artifact is too large; remove it"),
        (
            artifact({f"{number}.bin": bytes(2**20) for number in range(4)}),
            "",
            "The files of the artifact are too large, at most 3072 KiB are allowed; set path, or remove some files",
        ),
    ],
    ids=lambda value: "artifact" if isinstance(value, bytes) else None,  # an artifact contains the current time
)
def test_invalid_artifacts(data: bytes, path: str, message: str) -> None:
    with pytest.raises(InvalidFiles) as raised:
        extract(data, path)
    assert str(raised.value).startswith(message)


def test_a_bomb_does_not_expand() -> None:
    data = bomb(MAX_EXPANDED + 2**20)
    assert len(data) < 1_000_000
    with pytest.raises(InvalidFiles, match="The artifact expands to more than 100 MiB; it is not used"):
        extract(data, "templates")


def extension(kind: bytes, content: bytes) -> bytes:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, len(content)
    return header.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)


def test_names_in_headers() -> None:
    long, file = "a" * 120 + ".tf", tarfile.TarInfo("b.tf").tobuf(tarfile.USTAR_FORMAT)
    pax = extension(tarfile.XHDTYPE, b"%d path=%s\n" % (len(long) + 10, long.encode()))
    gnu = extension(tarfile.GNUTYPE_LONGNAME, b"c/" + long.encode() + b"\0")
    ignored = extension(tarfile.XGLTYPE, b"52 comment=0000000000000000000000000000000000000000\n")
    assert extract(gzip.compress(ignored + pax + file + gnu + file + file), "") == {
        long: b"",
        f"c/{long}": b"",
        "b.tf": b"",
    }


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (extension(tarfile.XHDTYPE, b"x" * 9000), "has a header of more than 8 KiB"),
        (extension(tarfile.XGLTYPE, b"x" * 9000), "has a header of more than 8 KiB"),
        (extension(tarfile.GNUTYPE_LONGNAME, b"x" * 9000), "has a header of more than 8 KiB"),
        (extension(tarfile.GNUTYPE_SPARSE, b""), "an entry that is sparse"),
        (extension(tarfile.XHDTYPE, b"22 GNU.sparse.major=1\n"), "an entry that is sparse"),
        (extension(tarfile.XHDTYPE, b"11 size=-1\n"), "has an invalid size"),
        (extension(tarfile.XHDTYPE, b"99 path=x\n"), "not a complete tar archive"),
        (extension(tarfile.XHDTYPE, b"path"), "not a complete tar archive"),
    ],
)
def test_headers_that_are_not_used(header: bytes, message: str) -> None:
    data = gzip.compress(header + tarfile.TarInfo("main.tf").tobuf(tarfile.USTAR_FORMAT))
    with pytest.raises(InvalidFiles, match=message):
        extract(data, "")


def test_many_headers_use_little_memory() -> None:
    records = b"".join(b"14 k%05d=vvv\n" % number for number in range(500))
    data = gzip.compress(extension(tarfile.XGLTYPE, records) * 2000 + artifact_entries(2000))
    tracemalloc.start()
    try:
        assert extract(data, "templates") == {"main.tf": b""}
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


def artifact_entries(number: int) -> bytes:
    directories = b"".join(extension(tarfile.DIRTYPE, b"") for _ in range(number))
    return directories + tarfile.TarInfo("templates/main.tf").tobuf(tarfile.USTAR_FORMAT)


def test_too_many_entries() -> None:
    data = with_entries(MAX_ENTRIES + 1)
    with pytest.raises(InvalidFiles, match="The artifact has more than 20000 entries; it is not used"):
        extract(data, "templates")


def test_the_digest_of_a_test_artifact() -> None:
    check_digest(artifact(FILES), sha256(artifact(FILES)))
