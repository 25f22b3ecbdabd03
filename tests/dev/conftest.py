import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that is deleted after the test. etcd allocates 120 MB, and pytest keeps its own folders."""
    with tempfile.TemporaryDirectory(prefix="scratch-") as folder:
        yield Path(folder)
