"""Which tests a run selects."""

import pytest

DEFAULT_MARKERS = "not campaign and not coder and not slow"
"""What `make test` selects."""


def has_all_tests(config: pytest.Config) -> bool:
    """Whether neither a path nor a keyword, a marker or an option selects some of the tests of `make test`."""
    option = config.option
    chosen = (option.keyword, option.deselect, config.getoption("lf", False), option.collectonly)
    everywhere = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return everywhere and option.markexpr == DEFAULT_MARKERS and not any(chosen)
