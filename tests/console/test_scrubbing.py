"""Redaction of free text and of objects."""

import base64
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.api import RESOURCES
from coder_k8s.api.markers import Resource
from coder_k8s.console.redaction import SHOWN, Redaction
from coder_k8s.console.scrubbing import Scrubber
from coder_k8s.console.text_search import occurring
from coder_k8s.manifests import crd, embedded

NOTHING = Scrubber((), (), "")


def scrubbed(text: str, *secrets: str, names: tuple[str, ...] = ()) -> str:
    return Scrubber(secrets, names, text).text(text)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("found hunter2-hunter2!", "found <redacted>!"),
        ("found hunter2%2Fa", "found <redacted>"),
        ('{"a":"quo\\"ted"}', '{"a":"<redacted>"}'),
        (f"data: {base64.b64encode(b'hunter2-hunter2').decode()}", "data: <redacted>"),
        ("the second line of a key", "the <redacted> of a key"),
        ("login as inner-password", "login as <redacted>"),
        ("login as url-pass/word", "login as <redacted>"),
        ("login as url-pass%2Fword", "login as <redacted>"),
        ("{'a': 'Tr0ub4\\u003cdor\\u003e\\u00263x'}", "{'a': '<redacted>'}"),
        ('"{\\"a\\":\\"quo\\\\\\"ted\\"}"', '"{\\"a\\":\\"<redacted>\\"}"'),
        ("form Tr0ub4%3Cdor%3E%263x", "form <redacted>"),
        ("form Tr0ub4%3cdor%3e%263x", "form <redacted>"),
        ("form two+w%2Fords", "form <redacted>"),
        ("in Go Tr0ub4%3Cdor%3E&3x", "in Go <redacted>"),
        ("rejected S3cretP4ss", "rejected <redacted>"),
        ("rejected 3nvF1leP4ss", "rejected <redacted>"),
        ("rejected y4mlP4ssword", "rejected <redacted>"),
        ("a short word", "a short word"),
        ("the name coder-gpu", "the name coder-gpu"),
    ],
)
def test_known_secrets(text: str, left: str) -> None:
    secrets = (
        "hunter2-hunter2",
        "hunter2/a",
        'quo"ted',
        "first line\nsecond line\n",
        '{"auths":{"r":{"password":"inner-password"}}}',
        "postgres://u:url-pass%2Fword@db/coder",
        "Tr0ub4<dor>&3x",
        "two w/ords",
        "host=db user=coder password=S3cretP4ss",
        "# settings\nCODER_PG_PASSWORD='3nvF1leP4ss'\n",
        "oidc:\n  client_secret: y4mlP4ssword\n",
        "short",
        "coder-gpu",
    )
    assert scrubbed(text, *secrets, names=("coder-gpu",)) == left


@pytest.mark.parametrize("offset", range(7))
def test_a_secret_inside_an_encoded_value(offset: int) -> None:
    encoded = base64.b64encode(b"x" * offset + b"hunter2-hunter2" + b"tail").decode()
    assert "<redacted>" in scrubbed(encoded, "hunter2-hunter2")
    assert base64.b64encode(b"hunter2-hunter2").decode()[4:-4] not in scrubbed(encoded, "hunter2-hunter2")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("postgres://u:p@ss'w/ord@db/x?sslpassword=a'b next", "postgres://<redacted>@db/x?<redacted> next"),
        ("https://x/y?a??key=hunter2 next", "https://x/y?a??<redacted> next"),
        ("password=hunter2,more user=x", "password=<redacted> user=x"),
        ("password='hunter 2' user=x", "password=<redacted> user=x"),
        ('{"password":"hun\\"ter 2","user":"x"}', '{"password":<redacted>,"user":"x"}'),
        ('\\"apiKey\\":\\"hunter2\\"', '\\"apiKey\\":<redacted>'),
        ("Coder-Session-Token: hunter2", "Coder-Session-Token: <redacted>"),
        ("authorization: bearer hunter2.hunter2", "authorization: bearer <redacted>"),
        ("eyJhbGciOiJSUzI1NiJ9.eyJ4Ijoi.c2ln_-", "<redacted>"),
        ("token Ab3dEf6hIj-Ab3dEf6hIjAb3dEf6hIj99 of", "token <redacted> of"),
        ("key Ab3dEf6hIjAb3dEf6hIjAb3dEf6hIjAb3dEf6hIj123 of", "key <redacted> of"),
        ("-----BEGIN KEY-----\nabc\n-----END KEY-----\nnext", "<redacted>\nnext"),
        ("-----BEGIN KEY-----\nabc", "<redacted>"),
        ("abc\n-----END KEY-----\nnext", "<redacted>\nnext"),
        ("a\n-----END KEY-----\n-----BEGIN KEY-----\nb\n-----END KEY-----\nnext", "<redacted>\n<redacted>\nnext"),
        ("proxy 0b6f1f0e-7d5c-4f6a-9a3b-2c1d0e9f8a7b:" + "0123456789abcdef" * 4, "proxy <redacted>"),
    ],
)
def test_text_that_looks_like_a_secret(text: str, left: str) -> None:
    assert NOTHING.text(text) == left


@pytest.mark.parametrize("part", ["://a", "a?", "password", "-----BEGIN A", "-----END A", "aB3"])
def test_a_long_line_takes_seconds_at_most(part: str) -> None:
    text = part * (256 * 1024 // len(part))
    started = time.process_time()
    NOTHING.text(text)
    assert time.process_time() - started < 15


@pytest.mark.parametrize("mark", ["…", "...", " ...", "\\u2026"])
@pytest.mark.parametrize("size", [4, 9, 14])
def test_the_beginning_of_a_secret_that_is_cut_off(mark: str, size: int) -> None:
    cut = "hunter2-hunter2"[:size]
    text = f"one... refused {cut}{mark}; then rejected {cut}{mark} and {cut} in the middle"
    assert scrubbed(text, "hunter2-hunter2") == (
        f"one... refused <redacted>{mark}; then rejected <redacted>{mark} and {cut} in the middle"
    )


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("form Tr0ub4%3Cd…", "form <redacted>…"),
        ("line second l…", "line <redacted>…"),
        ("both hunter2/hunter2/a…", "both <redacted>…"),
        ("url postgres://u:url-pa…", "url <redacted>…"),
        ("hunt…", "<redacted>…"),
        ("hun…", "hun…"),
        ("a name such as coder-g…", "a name such as coder-g…"),
    ],
)
def test_forms_of_a_secret_that_are_cut_off(text: str, left: str) -> None:
    secrets = (
        "hunter2/hunter2/a1",
        "first line\nsecond line\n",
        "postgres://u:url-pass%2Fword@db/coder",
        "Tr0ub4<dor>&3x",
        "coder-gpu",
    )
    assert scrubbed(text, *secrets, names=("coder-gpu",)) == left


def test_many_cuts_take_seconds_at_most() -> None:
    text = "hunt..." * 150_000
    started = time.process_time()
    assert scrubbed(text, "hunter2-hunter2") == "<redacted>..." * 150_000
    assert scrubbed("x..." * 250_000, "hunter2-hunter2") == "x..." * 250_000
    assert time.process_time() - started < 15


def test_the_cost_depends_on_the_size_of_the_text_and_not_on_the_number_of_secrets() -> None:
    """One pass finds all of 20,000 texts; one pass for each takes minutes."""
    corpus = "".join(f"{number:016x} took {number % 977} ms\n" for number in range(300_000)) + "the last one"
    texts = [f"not there {number}" for number in range(20_000)]
    started = time.process_time()
    assert list(occurring([*texts, "the last one"], corpus)) == ["the last one"]
    assert time.process_time() - started < 10


@given(st.text("ab…", max_size=60), st.integers(0, 60), st.integers(0, 40))
def test_a_part_of_a_text_is_found_wherever_it_is(corpus: str, start: int, size: int) -> None:
    part = corpus[start : start + size]
    assert list(occurring([part], corpus)) == [part]


@given(st.text("abc…", max_size=40), st.lists(st.text("abc…", min_size=1, max_size=20)))
def test_only_what_occurs_is_found(corpus: str, texts: list[str]) -> None:
    assert set(occurring(texts, corpus)) == {text for text in texts if text in corpus}


@pytest.mark.parametrize(
    "text",
    [
        "there is no token under key token in Secret coder-db",
        "Deployment coder/prod: 1 of 2 pods, image ghcr.io/coder/coder@sha256:" + "0123456789abcdef" * 4,
        "http://prod.coder.svc.cluster.local:80",
        "pod provisioner-gpu-7c5d8f9b6c-x2x4z is ready",
        '{"ts":"2026-01-01T00:00:00.000Z","msg":"reconciled","object":"coder/gpu"}',
        "workspace 0b6f1f0e-7d5c-4f6a-9a3b-2c1d0e9f8a7b: build 12 started",
    ],
)
def test_other_text_is_not_redacted(text: str) -> None:
    assert NOTHING.text(text) == text


def test_an_unknown_field_is_redacted() -> None:
    redact = Redaction()
    assert redact({"spec": {"invented": "later", "replicas": 2, "image": "coder:1"}}) == {
        "spec": {"invented": "<redacted>", "replicas": 2, "image": "coder:1"}
    }
    assert redact.values == {"later"}


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind.name)
def test_every_text_of_a_status_is_shown(resource: Resource) -> None:
    """A field that is missing in `shown.yaml` is redacted, and its value everywhere else."""
    [version] = crd.definition(resource, embedded.load())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert set(texts(schema)) - set(yaml.safe_load(SHOWN.read_text())["fields"].split()) == set()


def texts(schema: dict[str, Any], name: str = "status") -> Iterator[str]:
    """The names of the fields with strings."""
    if schema.get("type") == "string":
        yield name
    for field, inner in schema.get("properties", {}).items():
        yield from texts(inner, field)
    if "items" in schema:
        yield from texts(schema["items"], name)
