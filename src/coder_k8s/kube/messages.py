"""Texts of errors without secrets, and without the parts that differ in each attempt: a status must not follow them."""

import re

_LOCAL_ADDRESS = re.compile(r"(?<!\S)\S+:\d+->(?=\S+:\d)")
"""The local address of a connection, with its ephemeral port: `read tcp 10.0.0.7:44536->10.0.0.9:5432`."""
_CONTAINER_ID = re.compile(r"(?<!sha256:)\b[0-9a-f]{64}\b")
_POINTER = re.compile(r"\b0x[0-9a-f]{5,16}\b")
_BACK_OFF = re.compile(r"(?<=\bback-off )(?:\d+[hms])+ ")
_TIME = re.compile(
    r"[\[(]?\b\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?(?![\w:])[\])]?[: ]*"
)
REDACTED = "[redacted]"
_USER_INFO = re.compile(r"(?<=//)(?<!http://(?=[^\s:/@]+:[0-9]+/))(?<!https://(?=[^\s:/@]+:[0-9]+/))[^\s\"'<>]*@")
"""User and password of a URL, up to the last @: a password can have one. So can the path of a web page with a port."""
_USER = re.compile(r"([^\s:/@]*):")
_PASSWORD = re.compile(r"(?i)(password|passwd|session_token)(=)('[^']*'|\"[^\"]*\"|[^\s&\"',;)]+)")


def redacted(text: str, *, keep_user: bool = True) -> str:
    """Return the text without passwords in URLs and connection strings."""

    def replacement(found: re.Match[str]) -> str:
        user = _USER.match(found[0]) if keep_user else None
        return f"{user[1]}:{REDACTED}@" if user else f"{REDACTED}@"

    if "@" in text:
        text = _USER_INFO.sub(replacement, text)
    return _PASSWORD.sub(rf"\1\2{REDACTED}", text) if "=" in text else text


def stable(text: str) -> str:
    """Return the text without local addresses, container IDs, pointers and the time of a back-off."""
    if "->" in text:
        text = _LOCAL_ADDRESS.sub("", text)
    if len(text) >= 64:
        text = _CONTAINER_ID.sub("[id]", text)
    if "0x" in text:
        text = _POINTER.sub("[address]", text)
    return _BACK_OFF.sub("", text) if "back-off" in text else text


def without_times(text: str) -> str:
    """Return the text of a log without the time of each entry."""
    return _TIME.sub("", text)
