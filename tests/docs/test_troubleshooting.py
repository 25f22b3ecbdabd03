"""Whatever an object can say that asks for somebody is explained."""

import re

from coder_k8s.api import RESOURCES
from coder_k8s.api.reasons import COMMON_REASONS
from tests.docs.pages import DOCS

PAGE = (DOCS / "troubleshooting.md").read_text()
HEADINGS = re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)
TABLES = [COMMON_REASONS, *(resource.reasons for resource in RESOURCES)]
KNOWN = [reason for table in TABLES for reasons in table.values() for reason in reasons]


def test_every_reason_that_asks_for_somebody_is_covered() -> None:
    assert {reason for reason in KNOWN if reason.remedy} - set(HEADINGS) == set()


def test_nothing_is_explained_that_is_never_said() -> None:
    assert set(HEADINGS) - set(KNOWN) == set()
    assert len(HEADINGS) == len(set(HEADINGS)), "one place for each reason"
