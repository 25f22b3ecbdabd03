"""Compares a live object with the desired one.

A live object has more fields than the desired one: defaults, fields of other managers, list items added by an
injector. So the comparison checks whether the live object contains the desired one.
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
"""List maps and their keys. Other managers may add items to them."""

SETS = {"finalizers"}
"""Lists of strings to which other managers may add."""

QUANTITIES = {"limits", "requests", "divisor", "sizeLimit"}
"""Fields with quantities, which the server normalizes: `1000m` becomes `1`."""

_QUANTITY = re.compile(r"([+-]?[0-9.]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_SCALES = {
    **{
        suffix: Decimal(1000) ** power
        for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
    },
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


def contains(live: Any, desired: Any, field: str = "") -> bool:
    """Return whether `live` contains `desired`, the values of `field` in both objects.

    The server omits empty values, so a missing live value contains an empty one.
    """
    if live == desired:  # the common case, and much faster than a comparison by field
        return True
    if isinstance(desired, dict):
        return _contains_fields({} if live is None else live, desired, field)
    if live is None:
        return not desired
    if isinstance(desired, list):
        return isinstance(live, list) and _contains_items(live, desired, field)
    return field in QUANTITIES and _same_quantity(live, desired)


def differences(live: dict[str, Any], desired: dict[str, Any]) -> list[str]:
    """Return the names of the fields, to a depth of two, whose desired values `live` does not contain."""
    found = []
    for section, value in desired.items():
        if isinstance(value, dict):
            have = live.get(section) or {}
            found += [f"{section}.{name}" for name, each in value.items() if not contains(have.get(name), each, name)]
        elif not contains(live.get(section), value, section):
            found.append(section)
    return found


def _contains_fields(live: Any, desired: dict[str, Any], field: str) -> bool:
    quantities = field if field in QUANTITIES else ""
    return isinstance(live, dict) and all(
        contains(live.get(name), value, quantities or name) for name, value in desired.items()
    )


def _contains_items(live: list[Any], desired: list[Any], field: str) -> bool:
    if field in SETS:
        return set(desired) <= set(live)
    if (keys := KEYED_LISTS.get(field)) and all(isinstance(item, dict) for item in desired):
        return all(any(_same_item(have, item, keys) and contains(have, item) for have in live) for item in desired)
    return len(live) == len(desired) and all(contains(have, item) for have, item in zip(live, desired, strict=True))


def _same_item(live: dict[str, Any], desired: dict[str, Any], keys: tuple[str, ...]) -> bool:
    return all(live.get(key) == desired[key] for key in keys if key in desired)


def _same_quantity(live: Any, desired: Any) -> bool:
    amount = _amount(live)
    return amount is not None and amount == _amount(desired)


def _amount(quantity: Any) -> Decimal | None:
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        return None
    number, suffix = match[1], match[2] or ""
    try:
        return Decimal(number) * _SCALES[suffix] if suffix in _SCALES else Decimal(number + suffix)
    except InvalidOperation:
        return None
