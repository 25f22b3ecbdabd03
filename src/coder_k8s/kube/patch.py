"""JSON merge patches."""

from typing import Any

from coder_k8s.kube.objects import Manifest


def merge_patch(old: Manifest, new: Manifest) -> Manifest:
    """Return the JSON merge patch (RFC 7386) from `old` to `new`; empty if they are equal."""
    patch: Manifest = {name: None for name in old if name not in new}
    for name, value in new.items():
        if name not in old:
            patch[name] = value
        elif old[name] != value:
            patch[name] = _inner(old[name], value)
    return patch


def _inner(old: Any, new: Any) -> Any:
    return merge_patch(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
