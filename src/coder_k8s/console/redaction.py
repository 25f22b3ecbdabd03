"""What of an object may be shown to a stranger.

A text is shown only if it stands in a field that is known to hold no secret (`shown.yaml`). Of environment variables
and arguments the values of known names are shown, of annotations and labels those under known keys. All else is
withheld: a field that a later version of Kubernetes adds, the parameters of a volume, an annotation of another tool.
What was withheld is remembered, because the same may be quoted in free text somewhere else; see `scrubbing`.
"""

from pathlib import Path
from typing import Any

import yaml

from coder_k8s.kube.objects import Manifest

WITHHELD = "<redacted>"
SHOWN = Path(__file__).with_name("shown.yaml")
LABELS = ("labels", "matchLabels", "nodeSelector", "selector")


class Redaction:
    """Withholds, and remembers what it withheld."""

    def __init__(self) -> None:
        self.withheld: set[str] = set()
        self._known = {name: frozenset(text.split()) for name, text in yaml.safe_load(SHOWN.read_text()).items()}
        self._keys = {"annotations": self._known["annotations"], **dict.fromkeys(LABELS, self._known["labels"])}

    def __call__(self, manifest: Manifest) -> Manifest:
        """The object without anything that may be a secret, its free texts excepted."""
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
            return self._withhold(value)
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
            shown["message"] = self._withhold(content["message"])  # the last words of a program, whatever they are
        return shown

    def _entry(self, name: str, item: Any, keys: frozenset[str]) -> Any:
        if not isinstance(item, str):
            return self._shown(item, name)
        return item if name in keys else self._withhold(item)

    def _variable(self, variable: dict[str, Any]) -> dict[str, Any]:
        shown = {name: self._shown(item, name) for name, item in variable.items() if name != "value"}
        if value := variable.get("value"):
            known = variable["name"] in self._known["variables"]
            shown["value"] = self._address(value) if known else self._withhold(value)
        return shown

    def _address(self, value: str) -> str:
        """A URL without who calls it and what is asked there; anything else as it is."""
        scheme, is_url, rest = value.partition("://")
        rest, asks, question = rest.partition("?")
        login, logs_in, place = rest.rpartition("@")
        if not is_url:
            return value
        self.withheld |= {login.partition(":")[2]}
        login = self._withhold(login) if logs_in else ""
        question = self._withhold(question) if asks else ""
        return f"{scheme}://{login}{logs_in}{place}{asks}{question}"

    def _argument(self, argument: str) -> str:
        flag, equals, value = argument.partition("=")
        if argument in self._known["words"] or (equals and flag in self._known["flags"]):
            return argument
        if equals and flag.startswith("-"):
            return f"{flag}={self._withhold(value)}"
        return argument if flag.startswith("--") else self._withhold(argument)

    def _withhold(self, value: str) -> str:
        self.withheld.add(value)
        return WITHHELD
