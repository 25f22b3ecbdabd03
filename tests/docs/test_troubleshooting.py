"""The troubleshooting page covers every reason that requires user action."""

import re

from coder_k8s.api import RESOURCES
from coder_k8s.api.reasons import COMMON_REASONS
from tests.docs.pages import DOCS

PAGE = (DOCS / "troubleshooting.md").read_text()
HEADINGS = re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)
TABLES = [COMMON_REASONS, *(resource.reasons for resource in RESOURCES)]
KNOWN = [reason for table in TABLES for reasons in table.values() for reason in reasons]


def test_every_reason_with_a_remedy_has_a_section() -> None:
    assert {reason for reason in KNOWN if reason.remedy} - set(HEADINGS) == set()


def test_every_section_is_about_a_reason() -> None:
    assert set(HEADINGS) - set(KNOWN) == set()
    assert len(HEADINGS) == len(set(HEADINGS)), "one place for each reason"


def test_section_shows_the_example_messages() -> None:
    for reason in KNOWN:
        if reason.example and reason in HEADINGS:
            _, _, section = PAGE.partition(f"### {reason}\n\n")
            assert f"> {reason.example}\n" in section.partition("\n### ")[0]
