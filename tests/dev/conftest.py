import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that is removed after the test: etcd takes 120 MB at once, and pytest keeps its own folders."""
    with tempfile.TemporaryDirectory(prefix="scratch-") as folder:
        yield Path(folder)
