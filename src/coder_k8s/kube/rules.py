"""What a piece of code may do at the API server, declared next to that code."""

from typing import NamedTuple


class Rule(NamedTuple):
    """Verbs on resources; the generated roles are made of these.

    `cluster_scoped` marks resources outside of namespaces, which only an operator of the whole cluster gets.
    """

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    cluster_scoped: bool = False
