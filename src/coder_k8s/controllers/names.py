"""Names derived from other names. They never change."""

from functools import lru_cache

HASH_LENGTH = 8
LABEL_LIMIT = 63
NAME_LIMIT = 253


def fnv1a32(data: bytes) -> str:
    """FNV-1a in eight hexadecimal digits."""
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return f"{value:08x}"


def hashed(*parts: str) -> str:
    """A short hash of several strings; their order and boundaries count."""
    return fnv1a32("\0".join(parts).encode())


@lru_cache(maxsize=1024)
def derived(name: str, *, prefix: str = "", suffix: str = "", limit: int = LABEL_LIMIT) -> str:
    """A name with a prefix or suffix. A result over the limit has the name cut, followed by its hash.

    The cut name may end with `-` or `.`: objects with such names exist.
    """
    if len(prefix) + len(name) + len(suffix) <= limit:
        return prefix + name + suffix
    kept = name[: limit - len(prefix) - len(suffix) - HASH_LENGTH - 1]
    return f"{prefix}{kept}-{hashed(name)}{suffix}"
