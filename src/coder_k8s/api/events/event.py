"""The type of an event."""

from typing import Literal, Self

from coder_k8s.kube.events import EventReason


class Event(EventReason):
    """The reason of an event, with its type and documentation."""

    meaning: str
    remedy: str
    """What the user does about it; empty when no user action is required."""

    def __new__(cls, name: str, type: Literal["Normal", "Warning"], meaning: str, remedy: str = "") -> Self:  # noqa: A002 - Kubernetes' own word
        self = super().__new__(cls, name, type)
        self.meaning = meaning
        self.remedy = remedy
        return self
