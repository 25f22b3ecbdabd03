"""Whether a live object already has everything that we want of it.

The API server adds to what it is given: defaults, the fields of other managers, the items that an injector puts into a
keyed list. So the question is never whether two objects are equal, but whether one contains the other.
"""

import re
from decimal import Decimal, InvalidOperation
from typing import Any

KEYED_LISTS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "ports": ("port", "containerPort", "protocol"),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "ownerReferences": ("uid",),
    "hostAliases": ("ip",),
    "resourceClaims": ("name",),
    "claims": ("name",),
}
"""Lists in which Kubernetes knows an item by these fields; others may add items of their own there."""

SETS = {"finalizers"}
"""Lists of words to which others may add."""

QUANTITIES = {"limits", "requests", "divisor", "sizeLimit"}
"""Fields whose values the server rewrites: `1000m` comes back as `1`."""

_QUANTITY = re.compile(r"([+-]?[0-9.]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_SCALES = {
    **{
        suffix: Decimal(1000) ** power
        for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
    },
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


def contains(live: Any, want: Any, field: str = "") -> bool:
    """Whether `live` has all that `want` says; `field` is the name under which both stand.

    An empty value is not written out by the server, so it is contained in nothing at all.
    """
    if isinstance(want, dict):
        return _contains_fields({} if live is None else live, want, field)
    if live is None:
        return not want
    if isinstance(want, list):
        return isinstance(live, list) and _contains_items(live, want, field)
    return bool(live == want) or (field in QUANTITIES and _same_quantity(live, want))


def _contains_fields(live: Any, want: dict[str, Any], field: str) -> bool:
    quantities = field if field in QUANTITIES else ""
    return isinstance(live, dict) and all(
        contains(live.get(name), wanted, quantities or name) for name, wanted in want.items()
    )


def _contains_items(live: list[Any], want: list[Any], field: str) -> bool:
    if field in SETS:
        return set(want) <= set(live)
    if (keys := KEYED_LISTS.get(field)) and all(isinstance(item, dict) for item in want):
        return all(any(_same_item(have, item, keys) and contains(have, item) for have in live) for item in want)
    return len(live) == len(want) and all(contains(have, item) for have, item in zip(live, want, strict=True))


def _same_item(live: dict[str, Any], want: dict[str, Any], keys: tuple[str, ...]) -> bool:
    return all(live.get(key) == want[key] for key in keys if key in want)


def _same_quantity(live: Any, want: Any) -> bool:
    amount = _amount(live)
    return amount is not None and amount == _amount(want)


def _amount(quantity: Any) -> Decimal | None:
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        return None
    number, suffix = match[1], match[2] or ""
    try:
        return Decimal(number) * _SCALES[suffix] if suffix in _SCALES else Decimal(number + suffix)
    except InvalidOperation:
        return None
