"""Roles and RoleBindings that let a ServiceAccount run workspaces, in its own namespace and in others.

An object in another namespace has no owner reference, because the garbage collector deletes an object whose owner is in
another namespace. Labels identify it instead, and an annotation has the UID of the owner.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from coder_k8s.api import CoderObject, reasons
from coder_k8s.kube.objects import Key, Kind, Manifest, PartialObject, Unstructured

from .labels import metadata
from .names import LABEL_LIMIT, derived

T = TypeVar("T", bound=CoderObject)

FINALIZER = "coder.com/workspace-rbac-cleanup"
OPT_IN = "coder.com/workspaces-from"
ANYONE = "ANY"
"""Allows the objects of every namespace. No namespace has an uppercase name, and a label value cannot be `*`."""
OWNER_UID = "coder.com/workspace-rbac-owner-uid"
NAMED = 10
"""How many namespaces a message names."""


class Names(NamedTuple):
    """The names of a Role and its RoleBinding."""

    role: str
    binding: str


class Denial(NamedTuple):
    """Why no Role is written to a namespace."""

    reason: reasons.Reason
    message: str


class Decision(NamedTuple):
    """The condition, without its type."""

    status: bool
    reason: reasons.Reason
    message: str


class Texts(NamedTuple):
    """What messages say about a kind."""

    field: str
    """Field of the spec with the other namespaces."""
    switch: str
    """Field of the spec that turns the Roles off."""
    other_name: str
    """How the user gets Roles with other names."""


class WorkspaceRoles(ABC, Generic[T]):
    """What differs between the kinds whose ServiceAccount runs workspaces, and the manifests that follow from it."""

    kind: Kind[T]
    component: str
    """Label `app.kubernetes.io/name` of the children."""
    label: str
    """Label with the name of the owner; with the suffix `-namespace`, its namespace."""
    condition: str
    texts: Texts

    @abstractmethod
    def is_enabled(self, owner: T) -> bool:
        """Whether the spec asks for Roles."""

    @abstractmethod
    def namespaces(self, owner: T) -> Sequence[str]:
        """The namespaces of the spec."""

    @abstractmethod
    def account(self, owner: T) -> str:
        """The name of the ServiceAccount."""

    @abstractmethod
    def rules(self, owner: T) -> list[Manifest]:
        """The rules of the Role."""

    @abstractmethod
    def names(self, owner: T, namespace: str) -> Names:
        """The names in a namespace."""

    @abstractmethod
    def may_be_named(self, owner: Key, name: str) -> bool:
        """Whether a Role or RoleBinding in another namespace with these labels can have this name.

        The label of a long name is cut, so another object can have the same one.
        """

    def role(self, owner: T, namespace: str) -> Manifest:
        name = self.names(owner, namespace).role
        return {"metadata": self._metadata(owner, name, namespace), "rules": self.rules(owner)}

    def role_binding(self, owner: T, namespace: str) -> Manifest:
        names = self.names(owner, namespace)
        subject = {"kind": "ServiceAccount", "name": self.account(owner), "namespace": owner.metadata.namespace}
        return {
            "metadata": self._metadata(owner, names.binding, namespace),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": names.role},
            "subjects": [subject],
        }

    def identity(self, owner: Key) -> dict[str, str]:
        """The labels that identify a Role of this object, also in other namespaces, where it has no owner."""
        return {self.label: derived(owner.name), f"{self.label}-namespace": owner.namespace}

    def identities(self, child: Unstructured) -> Iterable[tuple[str, ...]]:
        """The values of the labels that identify a Role, if it has them."""
        labels = child.metadata.labels
        if name := labels.get(self.label):
            yield name, labels.get(f"{self.label}-namespace", "")

    def owner_of(self, child: Unstructured) -> Key | None:
        """The owner that the labels of a Role in another namespace name; `None` if its name may be cut."""
        name, namespace = (child.metadata.labels.get(label, "") for label in (self.label, f"{self.label}-namespace"))
        return Key(namespace, name) if name and namespace and len(name) < LABEL_LIMIT else None

    def elsewhere(self, owner: T) -> list[str]:
        """The other namespaces of the spec."""
        if not self.is_enabled(owner):
            return []
        return [name for name in self.namespaces(owner) if name != owner.metadata.namespace]

    def owns(self, owner: T, live: Unstructured) -> bool:
        """Whether a Role belongs to this object.

        | its controller                               | its labels or UID are those of this object | belongs to it |
        |----------------------------------------------|--------------------------------------------|---------------|
        | this object                                  | any                                        | yes           |
        | a deleted object of this kind with this name | any                                        | yes           |
        | any other                                    | any                                        | no            |
        | none                                         | yes                                        | yes           |
        | none                                         | no                                         | no            |
        """
        if (controller := live.controller) is not None:
            predecessor = (controller.kind, controller.name) == (self.kind.name, owner.metadata.name)
            return predecessor or live.is_controlled_by(owner)
        labelled = self.identity(owner.key).items() <= live.metadata.labels.items()
        return labelled or live.metadata.annotations.get(OWNER_UID) == owner.metadata.uid

    def denial(self, owner: T, namespace: str, seen: PartialObject | None, *, listed: bool) -> Denial | None:
        """Why no Role may be written to another namespace; `None` if it opts in.

        | the namespace               | its label                     | in the operator's list | denial                |
        |-----------------------------|-------------------------------|------------------------|-----------------------|
        | does not exist, is deleting | any                           | any                    | `NamespaceMissing`    |
        | exists                      | `ANY`, or the owner's namespace | any                  | none                  |
        | exists                      | another or none               | yes                    | none                  |
        | exists                      | another or none               | no                     | `NamespaceNotAllowed` |
        """
        if seen is None or seen.deleting:
            message = f"Namespace {namespace} does not exist; create it, or remove it from {self.texts.field}"
            return Denial(reasons.NAMESPACE_MISSING, message)
        if listed or seen.metadata.labels.get(OPT_IN) in (owner.metadata.namespace, ANYONE):
            return None
        message = f"Namespace {namespace} has not opted in; label it {OPT_IN}={owner.metadata.namespace}"
        return Denial(reasons.NAMESPACE_NOT_ALLOWED, message)

    def decide(self, owner: T, granted: Sequence[str], denials: Sequence[Denial]) -> Decision:
        """The condition.

        | denials | Roles are turned off | condition                                |
        |---------|----------------------|------------------------------------------|
        | some    | any                  | False, with the reason of the first one  |
        | none    | yes                  | False, `Disabled`                        |
        | none    | no                   | True, `Applied`                          |
        """
        if denials:
            first = denials[0]
            also = f" (and {len(denials) - 1} more)" if len(denials) > 1 else ""
            return Decision(False, first.reason, first.message + also)
        if not self.is_enabled(owner):
            return Decision(False, reasons.DISABLED, f"Disabled by {self.texts.switch}")
        more = f" and {len(granted) - NAMED} more" if len(granted) > NAMED else ""
        where = f"{', '.join(granted[:NAMED])}{more}"
        message = f"ServiceAccount {self.account(owner)} may run workspaces in namespaces: {where}"
        return Decision(True, reasons.APPLIED, message)

    def _metadata(self, owner: T, name: str, namespace: str) -> Manifest:
        base = metadata(self.kind, owner, self.component, name)
        base["labels"] = {**self.identity(owner.key), **base["labels"]}
        base["annotations"] = {OWNER_UID: owner.metadata.uid}
        if namespace != owner.metadata.namespace:
            del base["ownerReferences"]
        return {**base, "namespace": namespace}
