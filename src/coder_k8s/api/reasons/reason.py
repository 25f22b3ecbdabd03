"""The type of a reason."""

from typing import Self


class Reason(str):
    """The reason of a condition, with its documentation.

    Code passes the constants of this package, never a literal: what a condition reports is documented.
    """

    meaning: str
    remedy: str
    """What the user does about it; empty when no user action is required."""
    example: str
    """A message that a condition with this reason has, as the tests observe it."""

    def __new__(cls, name: str, meaning: str, remedy: str = "", *, example: str = "") -> Self:
        self = super().__new__(cls, name)
        self.meaning = meaning
        self.remedy = remedy
        self.example = example
        return self

    def means(self, meaning: str, remedy: str = "", *, example: str = "") -> "Reason":
        """Return the same reason with the documentation for one condition."""
        return Reason(str(self), meaning, remedy, example=example)
