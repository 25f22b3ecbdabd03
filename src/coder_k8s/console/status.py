"""The status of all Coder resources in a namespace or cluster."""

from . import tree
from .objects import all_kinds, find_all, not_found, parse_target
from .session import CommandFailed, Session


async def load_tree(session: Session, name: str | None) -> tree.Tree:
    """Return the tree of a namespace, or of one object and its children."""
    target = parse_target(name) if name else None
    found = tree.build(await find_all(session), target)
    if target is not None and not found.items:
        raise CommandFailed(not_found(session, target, *([target.kind] if target.kind else all_kinds())))
    return found
