"""Reads pages in Markdown."""

import re


def anchors(text: str) -> list[str]:
    """The anchors of a page, as GitHub and MkDocs derive them from its headings."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", outside, re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
