"""Texts of coderd's health check, without secrets and without values that change with every check."""

import re

from coder_k8s.kube.messages import REDACTED, redacted

LIMIT = 1024
"""Bytes of a message."""
DETAIL_LIMIT = 300
"""Characters that are quoted of a text of coderd."""
READ_LIMIT = 1000
"""Characters that are searched for secrets. What follows is dropped, with the word at the limit."""
_SECRETS = (
    (re.compile(r"\b[A-Za-z0-9]{10}-[A-Za-z0-9]{22}\b"), REDACTED),  # a token of Coder
    (re.compile(r"\beyJ[\w-]+(?:\.[\w-]+)*"), REDACTED),  # a JWT
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]+"), rf"\1 {REDACTED}"),
    (
        re.compile(
            r"(?i)(token|password|passwd|secret|api[_-]?key|session|signature)([\"']?\s?[=:]\s?[\"']?)(?!\[redacted)[^\s&\"',;)]+"
        ),
        rf"\1\2{REDACTED}",
    ),
)
_MEASURED = (
    (
        re.compile(r"(?<![0-9.])[0-9.]+:[0-9]+->"),
        "",
    ),  # the local side of a connection, whose port is always another one
    (re.compile(r"\[[0-9a-fA-F:]{2,45}\]:[0-9]+->"), ""),
    (re.compile(r"(?<![\w.])[0-9]+(?:\.[0-9]+)?\s?(?:ns|µs|us|ms|s|m|h)(?![\w])"), "…"),
)


def clean(text: str) -> str:
    """One printable line that is short, stable and has no secrets."""
    text = redacted(_cut(text), keep_user=False)
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    text = stable(text).rstrip(".")
    return text if len(text) <= DETAIL_LIMIT else text[: DETAIL_LIMIT - 1] + "…"


def _cut(text: str) -> str:
    """The beginning of the text on one line. A secret is either complete or dropped."""
    begin = "".join(char if char.isprintable() else " " for char in text[:READ_LIMIT])
    words = begin.split()
    return " ".join(words if len(text) <= READ_LIMIT else words[:-1])


def stable(text: str) -> str:
    """The text without measured values."""
    for pattern, replacement in _MEASURED:
        text = pattern.sub(replacement, text)
    return text


def capped(message: str) -> str:
    """The message, shortened to the limit in bytes."""
    encoded = message.encode(errors="replace")
    if len(encoded) <= LIMIT:
        return encoded.decode()
    return encoded[: LIMIT - 3].decode(errors="ignore") + "…"
