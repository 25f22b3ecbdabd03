"""Seeds of randomized tests."""

import os
from collections.abc import Sequence


def seeds(*default: int) -> Sequence[int]:
    """The seed in the environment variable `TEST_SEED`, or the default seeds.

    A seed determines random choices, not timing: two runs with the same seed can differ.
    """
    given = os.environ.get("TEST_SEED")
    return [int(given)] if given else default
