"""What there is of Coder in a cluster."""

from . import tree
from .objects import WORDS, absent, find_all, parse_target
from .session import Refused, Session


async def look(session: Session, name: str | None) -> tree.Tree:
    """The tree of a namespace, or of what belongs to one object."""
    target = parse_target(name) if name else None
    found = tree.build(await find_all(session), target)
    if target is not None and not found.items:
        raise Refused(absent(session, target, *([target.kind] if target.kind else WORDS)))
    return found
