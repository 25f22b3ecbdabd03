"""What one report of coderd's health check means.

A section of the report has a severity and codes, in its warnings and in its error:

| section                                        | counts as                                                  |
|------------------------------------------------|------------------------------------------------------------|
| dismissed, in the report or in the settings    | ok                                                         |
| at `ok`                                        | ok, also with warnings                                     |
| all its codes are ignored                      | ok                                                         |
| with codes                                     | its severity, but at most what its codes stand for         |
| at `warning` or `error` without a code         | its severity, reason `UnknownCode`                         |
| `derp` with only codes about STUN, ignored or  | error, reason `DERPDegraded`                               |
| not, while a relay does not work               |                                                            |
| `EPD01`, and autoscaling scaled all            | ok, and the message says so                                |
| provisioners to zero                           |                                                            |
"""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from coder_k8s.api import reasons
from coder_k8s.api.reasons import Reason
from coder_k8s.coderd.health import HealthReport, HealthSection, HealthSettings, RelayRegion, RelaySection

from .codes import NO_PROVISIONERS, SEVERITIES, UNKNOWN, Severity, link, meaning
from .text import capped, clean

SECTIONS = {
    "database": "Database",
    "access_url": "AccessURL",
    "websocket": "Websocket",
    "provisioner_daemons": "ProvisionerDaemons",
    "derp": "DERP",
    "workspace_proxy": "WorkspaceProxy",
}
"""The name of each section in the settings; what others depend on is first."""
ORDER = {name: number for number, name in enumerate(SECTIONS)}
MAX_CODES = 20
_CODE = re.compile(r"E[A-Z]{1,20}[0-9]{0,4}")
_STUN = "ESTUN"


class Environment(NamedTuple):
    """What is known about a control plane besides the report."""

    ignore: frozenset[str] = frozenset()
    """The codes of `spec.health.ignore`."""
    autoscaled_to_zero: bool = False
    """Whether autoscaling scaled every provisioner to zero, and there is at least one."""


class Problem(msgspec.Struct, frozen=True):
    """A code in a section, or a section at `error` without one."""

    severity: Severity
    section: str
    code: str
    text: str = ""
    """As coderd sent it; it may contain secrets."""

    @property
    def rank(self) -> tuple[int, bool, int, str]:
        """Sorts the most severe first, then what is known, then by section."""
        unknown = meaning(self.code, self.section).reason == reasons.UNKNOWN_CODE
        return -self.severity, unknown, ORDER[self.section], self.code


class Verdict(NamedTuple):
    """The condition that a report stands for."""

    severity: Severity
    codes: tuple[str, ...]
    reason: Reason
    message: str
    problems: tuple[Problem, ...] = ()
    sections: tuple[tuple[str, Severity], ...] = ()
    """The severity of each section."""


def judge(report: HealthReport, settings: HealthSettings, environment: Environment) -> Verdict:
    """The condition that a report stands for."""
    dismissed = {name for name in settings.dismissed_healthchecks or () if name}
    problems: list[Problem] = []
    exempt: list[str] = []
    sections = []
    for name, title in SECTIONS.items():
        section: HealthSection | None = getattr(report, name)
        found = [] if section is None else list(_problems(name, section))
        if found and section is not None and (section.dismissed or title in dismissed):
            exempt.append(f"{title} is dismissed in Coder")
            found = []
        exemptions = {each: _exemption(each, environment) for each in found}
        exempt += filter(None, exemptions.values())
        counted = [each for each, why in exemptions.items() if not why] + _broken_relays(section, found)
        problems += counted
        sections.append((name, max((each.severity for each in counted), default=Severity.OK)))
    problems.sort(key=lambda each: each.rank)
    codes = tuple(dict.fromkeys(each.code for each in problems if each.code))[:MAX_CODES]
    if not problems:
        notes = "; ".join(["All checks of Coder passed", *dict.fromkeys(exempt)])
        return Verdict(Severity.OK, (), reasons.ALL_CHECKS_PASSED, capped(notes), (), tuple(sections))
    worst = problems[0]
    reason = meaning(worst.code, worst.section).reason
    listed = tuple(each for each in problems if each.code in codes)
    return Verdict(worst.severity, codes, reason, describe(worst, codes), listed, tuple(sections))


def describe(problem: Problem, codes: Collection[str] = ()) -> str:
    """The message about a problem; other codes are only named."""
    known = meaning(problem.code, problem.section)
    text = clean(problem.text) if known.quoted else ""
    quoted = f" ({text})" if text else ""
    also = ", ".join(code for code in codes if code != problem.code)
    begin = f"{problem.code}: " if problem.code else ""
    end = f". Also: {also}. See {link(problem.code)}" if also else f". See {link(problem.code)}"
    return capped(f"{begin}{known.summary}{quoted}; {known.action}{end}")


def _problems(name: str, section: HealthSection) -> Iterator[Problem]:
    """Each code of a section, or the section itself if it has none."""
    severity = SEVERITIES.get(section.severity or "", Severity.OK)
    if severity == Severity.OK:
        return
    texts = dict[str, str]()
    for code, text in _codes(section):
        texts[code] = texts.get(code) or text
    coded = {code: text for code, text in texts.items() if code}
    for code, text in coded.items():
        yield Problem(min(severity, meaning(code, name).worst), name, code, text)
    if not coded:
        yield Problem(severity, name, "", next(iter(texts.values()), ""))


def _codes(section: HealthSection) -> Iterator[tuple[str, str]]:
    """The codes of a section with their texts, the error first."""
    if section.error:
        code, colon, text = section.error.partition(":")
        yield (code, text) if colon and _CODE.fullmatch(code) else ("", section.error)
    for warning in section.read_warnings():
        if isinstance(warning, str):
            yield "", warning
        elif warning is not None:
            code = warning.code or ""
            yield code if _CODE.fullmatch(code) else (UNKNOWN if code else ""), warning.message or ""


def _exemption(problem: Problem, environment: Environment) -> str:
    """Why a problem does not count; empty if it does."""
    if problem.code in environment.ignore:
        return f"{problem.code} is ignored by spec.health.ignore"
    if problem.code == NO_PROVISIONERS and environment.autoscaled_to_zero:
        return f"{problem.code} is ignored because autoscaling scaled all provisioners to zero"
    return ""


def _broken_relays(section: HealthSection | None, found: list[Problem]) -> list[Problem]:
    """A problem if a relay does not work, although all codes are about STUN."""
    stun = bool(found) and all(each.code.startswith(_STUN) for each in found)
    if not stun or not isinstance(section, RelaySection):
        return []
    broken = any(region is not None and _is_broken(region) for region in section.read_regions().values())
    return [Problem(Severity.ERROR, "derp", "")] if broken else []


def _is_broken(region: RelayRegion) -> bool:
    return region.severity == Severity.ERROR.word and any(
        each is not None and each.can_exchange_messages is False and not (each.node and each.node.stun_only)
        for each in region.node_reports or ()
    )
