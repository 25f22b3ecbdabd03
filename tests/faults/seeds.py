"""Which course of events a test takes."""

import os
from collections.abc import Sequence


def seeds(*usual: int) -> Sequence[int]:
    """The one that `TEST_SEED` names in the environment, else the usual ones.

    A seed fixes what is chosen, not how long anything takes: the same one may still lead elsewhere.
    """
    given = os.environ.get("TEST_SEED")
    return [int(given)] if given else usual
