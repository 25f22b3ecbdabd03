"""Redaction of free text: known secrets, and everything that looks like a secret."""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from .redaction import REDACTED
from .secret_forms import SHORTEST, forms
from .text_search import occurring

LONGEST = 65536
"""Longer values are files, which are not searched for."""
SHORTEST_BEGINNING = 4
"""Fewer characters of a secret that is cut off are not redacted."""
LONGEST_CUT = 4096
"""More of it, of which the rest is cut off, is not recognized. Notes and messages have at most so many characters."""

TRUNCATED = re.compile(r" ?(?:…|\\u2026|\.\.\.)")
"""The end of a text that the operator, Coder or Kubernetes truncated."""
PEM = re.compile(r"-----BEGIN[^-]*-----.*?(?:-----END[^-]*-----|\Z)", re.DOTALL)
PEM_END = re.compile(r"\A.*-----END[^-]*-----", re.DOTALL)
"""After `PEM`: the end of a block whose beginning is not in the text."""
# Without the limits, a line of a log with many URLs or keywords and no space would take minutes.
URL_LOGIN = re.compile(r"(?<=://)[^\s\"<>]{0,4096}@")
URL_QUERY = re.compile(r"(?<=[\w?])\?[^\s\"<>=?]+=[^\s\"<>]*")
ASSIGNMENT = re.compile(
    r"((?:password|passwd|pwd|secret|token|credential|api[-_]?key|session)[\w-]{0,64}\\?[\"']?[ \t]*[=:][ \t]*)"
    r"(?!<redacted>)(?:\\?\"(?:\\.|[^\"\\])*\"?|'[^']*'?|(?:\\.|[^\s\"\\])+)",
    re.IGNORECASE,
)
HEADER = re.compile(r"\b(bearer|basic)[ \t]+[\w.~+/=-]{8,}", re.IGNORECASE)
JWT = re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?")
SESSION_TOKEN = re.compile(r"\b[A-Za-z0-9]{10}-[A-Za-z0-9]{22}\b")
PROXY_TOKEN = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:[0-9A-Za-z]{16,}")
RANDOM = re.compile(r"\b(?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])\w{32,}\b")


class Scrubber:
    """Redacts the secrets that occur in a corpus, except for names of objects."""

    def __init__(self, secrets: Iterable[str], names: Iterable[str], corpus: str) -> None:
        known = {form for secret in secrets if len(secret) <= LONGEST for form in forms(secret)} - set(names)
        known = {form for form in known if len(form) >= SHORTEST}
        self._known = sorted(occurring(known, corpus), key=len, reverse=True)
        self._beginnings: dict[str, list[str]] = {}
        """All forms, by their first characters."""
        for form in known:
            self._beginnings.setdefault(form[:SHORTEST_BEGINNING], []).append(form)

    def known(self, text: str) -> str:
        """Redact known secrets, also the beginning of one where the text is truncated."""
        for form in self._known:
            text = text.replace(form, REDACTED)
        return self._without_beginnings(text)

    def _without_beginnings(self, text: str) -> str:
        """Redact what is left of a secret that was cut off. Every position is checked once, however many cuts."""
        kept, end, checked, found = [], 0, 0, deque[int]()
        for cut in (mark.start() for mark in TRUNCATED.finditer(text)):
            checked = max(checked, cut - LONGEST_CUT)
            found.extend(self._begins(text, checked, cut))
            checked = max(checked, cut)
            while found and found[0] < max(end, cut - LONGEST_CUT):
                found.popleft()
            start = next((each for each in found if self._is_beginning(text[each:cut])), cut)
            if start < cut:
                kept += [text[end:start], REDACTED]
                end = cut
        return "".join([*kept, text[end:]]) if kept else text

    def _begins(self, text: str, start: int, end: int) -> Iterator[int]:
        """Yield the positions where the first characters of a secret are."""
        size, beginnings = SHORTEST_BEGINNING, self._beginnings
        return (each for each in range(start, end - size + 1) if text[each : each + size] in beginnings)

    def _is_beginning(self, text: str) -> bool:
        return any(form.startswith(text) for form in self._beginnings[text[:SHORTEST_BEGINNING]])

    def text(self, text: str) -> str:
        """Redact known secrets and everything that looks like a secret."""
        text = self.known(text)
        for pattern in (PEM, PEM_END, JWT, SESSION_TOKEN, PROXY_TOKEN, RANDOM):
            text = pattern.sub(REDACTED, text)
        text = URL_LOGIN.sub(f"{REDACTED}@", text)
        text = URL_QUERY.sub(f"?{REDACTED}", text)
        text = HEADER.sub(rf"\1 {REDACTED}", text)
        return ASSIGNMENT.sub(rf"\1{REDACTED}", text)

    def document(self, value: Any) -> Any:
        """Redact all strings of a document."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.known(name): self.document(item) for name, item in value.items()}
            case list():
                return [self.document(item) for item in value]
        return value
