"""Redaction of objects, by an allowlist.

A string is shown only if its field is known to hold no secret (`shown.yaml`). Values of environment variables and
arguments are shown for known names, those of annotations and labels for known keys. Everything else is redacted: fields
of later Kubernetes versions, parameters of volumes, annotations of other tools. Redacted values are recorded, because
free text elsewhere may contain them; see `scrubbing`.
"""

from pathlib import Path
from typing import Any

import yaml

from coder_k8s.kube.objects import Manifest

REDACTED = "<redacted>"
SHOWN = Path(__file__).with_name("shown.yaml")
LABELS = ("labels", "matchLabels", "nodeSelector", "selector")


class Redaction:
    """Redacts objects, and records the redacted values."""

    def __init__(self) -> None:
        self.values: set[str] = set()
        self._known = {name: frozenset(text.split()) for name, text in yaml.safe_load(SHOWN.read_text()).items()}
        self._keys = {"annotations": self._known["annotations"], **dict.fromkeys(LABELS, self._known["labels"])}

    def __call__(self, manifest: Manifest) -> Manifest:
        """Return the object with all possible secrets redacted, except in free text."""
        shown: Manifest = self._shown(manifest, "")
        return shown

    def _shown(self, value: Any, field: str) -> Any:
        if isinstance(value, dict):
            return self._map(value, field)
        if isinstance(value, list):
            return [self._shown(item, field) for item in value]
        if not isinstance(value, str):
            return value
        if field in ("args", "command", "extraArgs"):
            return self._argument(value)
        if field not in self._known["fields"]:
            return self._redact(value)
        return self._address(value) if field.lower().endswith("url") else value

    def _map(self, content: dict[str, Any], field: str) -> dict[str, Any]:
        if field in ("env", "extraEnv"):
            return self._variable(content)
        if field in self._known["maps"]:
            return content
        keys = self._keys.get(field)
        if keys is not None:
            return {name: self._entry(name, item, keys) for name, item in content.items()}
        shown = {name: self._shown(item, name) for name, item in content.items() if name != "managedFields"}
        if field == "terminated" and "message" in content:
            shown["message"] = self._redact(content["message"])  # written by the container, so it can contain anything
        return shown

    def _entry(self, name: str, item: Any, keys: frozenset[str]) -> Any:
        if not isinstance(item, str):
            return self._shown(item, name)
        return item if name in keys else self._redact(item)

    def _variable(self, variable: dict[str, Any]) -> dict[str, Any]:
        shown = {name: self._shown(item, name) for name, item in variable.items() if name != "value"}
        if value := variable.get("value"):
            known = variable["name"] in self._known["variables"]
            shown["value"] = self._address(value) if known else self._redact(value)
        return shown

    def _address(self, value: str) -> str:
        """Redact user, password and query of a URL; return other strings unchanged."""
        scheme, is_url, rest = value.partition("://")
        rest, mark, query = rest.partition("?")
        login, at, host = rest.rpartition("@")
        if not is_url:
            return value
        self.values |= {login.partition(":")[2]}
        login = self._redact(login) if at else ""
        query = self._redact(query) if mark else ""
        return f"{scheme}://{login}{at}{host}{mark}{query}"

    def _argument(self, argument: str) -> str:
        flag, equals, value = argument.partition("=")
        if argument in self._known["words"] or (equals and flag in self._known["flags"]):
            return argument
        if equals and flag.startswith("-"):
            return f"{flag}={self._redact(value)}"
        return argument if flag.startswith("--") else self._redact(argument)

    def _redact(self, value: str) -> str:
        self.values.add(value)
        return REDACTED
