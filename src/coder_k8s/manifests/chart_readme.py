"""The README of the Helm chart: how to install it, and a table of its values."""

import json
import re
from collections.abc import Iterator
from functools import reduce
from typing import Any

from .chart import DESCRIPTION, KUBERNETES, VALUES, defaults
from .rbac import NAME, NAMESPACE
from .reference import table

KEY = re.compile(r"^(?P<indent> *)(?P<name>\w+):")
INDENT = 2

TEXT = f"""\
# {NAME}

{DESCRIPTION}

You need Kubernetes {KUBERNETES} or newer, and an image of the operator in a registry that the cluster can pull from.
There is no public image: build it with the Dockerfile of the project.

## Install

```sh
helm install {NAME} charts/{NAME} --namespace {NAMESPACE} --create-namespace \\
  --set image.repository=registry.example.com/{NAME}
```

## Upgrade

```sh
helm upgrade {NAME} charts/{NAME} --namespace {NAMESPACE} --reset-then-reuse-values
```

This also upgrades the CRDs.

## Uninstall

```sh
helm uninstall {NAME} --namespace {NAMESPACE}
```

The CRDs and all objects of their kinds stay, unless `crds.keep` is false.

## Values

A null value is replaced by its default.
"""


def page() -> str:
    """Return the README, in Markdown."""
    values = defaults()
    rows = [
        [f"`{name}`", f"`{_literal(reduce(_member, name.split('.'), values))}`", description]
        for name, description in documented(VALUES.read_text())
    ]
    return f"{TEXT}\n{table(['value', 'default', 'description'], rows)}\n"


def documented(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each value: those with a comment directly above them.

    A value without a comment is a part of the value above it, or a group of values.
    """
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.lstrip().removeprefix("#").strip())
            continue
        if found := KEY.match(line):
            path[len(found["indent"]) // INDENT :] = [found["name"]]
            if comment:
                yield ".".join(path), " ".join(comment)
        comment.clear()


def _literal(value: Any) -> str:
    return value if value and isinstance(value, str) else json.dumps(value)


def _member(values: Any, name: str) -> Any:
    return values[name]
