"""The smallest change from one document to another."""

from typing import Any

from coder_k8s.kube.objects import Manifest


def merge_patch(old: Manifest, new: Manifest) -> Manifest:
    """A JSON merge patch (RFC 7386): what to set, and null for what to remove; empty when there is nothing to do."""
    patch: Manifest = {name: None for name in old if name not in new}
    for name, value in new.items():
        if name not in old:
            patch[name] = value
        elif old[name] != value:
            patch[name] = _inner(old[name], value)
    return patch


def _inner(old: Any, new: Any) -> Any:
    return merge_patch(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
