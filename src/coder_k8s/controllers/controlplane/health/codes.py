"""The codes of Coder's health check: which reason each becomes, and what to do about it."""

from enum import IntEnum
from typing import NamedTuple

from coder_k8s.api import reasons
from coder_k8s.api.reasons import Reason
from coder_k8s.api.reasons.health import PAGE


class Severity(IntEnum):
    """The severity of a result."""

    OK = 0
    WARNING = 1
    ERROR = 2

    @property
    def word(self) -> str:
        return self.name.lower()


SEVERITIES = {each.word: each for each in Severity}


class Code(NamedTuple):
    """What a code of coderd means."""

    reason: Reason
    summary: str
    action: str
    worst: Severity = Severity.ERROR
    """A section may be at `error` for another reason than this code."""
    quoted: bool = True
    """Whether the text of coderd adds to the summary. One with measured values would change with every check."""


_URL_ACTION = "correct CODER_ACCESS_URL"
_WEBSOCKETS = Code(
    reasons.WEBSOCKET_BLOCKED,
    "Websockets do not work through the access URL",
    "allow websocket upgrades and long timeouts in the proxy in front of Coder",
)
_PROXY = Code(
    reasons.PROXY_UNHEALTHY,
    "A workspace proxy does not work",
    "see condition ProxyHealthy of the CoderWorkspaceProxy objects",
)
_DATABASE_ACTION = "check the load of PostgreSQL and the network to it"
_SKEW = Code(
    reasons.PROVISIONER_VERSION_SKEW,
    "A provisioner daemon has another version than Coder",
    "upgrade the daemons",
    Severity.WARNING,
    quoted=False,
)
_STUN_ACTION = "ignore the code if the cluster has no access to the internet"

CODES: dict[str, Code] = {
    "EACS01": Code(reasons.ACCESS_URL_INVALID, "The access URL of Coder is not set", "set CODER_ACCESS_URL"),
    "EACS02": Code(reasons.ACCESS_URL_INVALID, "The access URL of Coder is not valid", _URL_ACTION),
    "EACS03": Code(
        reasons.ACCESS_URL_UNREACHABLE,
        "Coder cannot reach its own access URL",
        "check DNS, routing and the certificate as seen from Coder's pods",
    ),
    "EACS04": Code(
        reasons.ACCESS_URL_NOT_OK,
        "The access URL does not respond as Coder does",
        "check which backend serves this host",
        Severity.WARNING,
    ),
    "EWS01": _WEBSOCKETS,
    "EWS02": _WEBSOCKETS,
    "EWS03": _WEBSOCKETS,
    "EDB01": Code(reasons.DATABASE_DOWN, "Coder cannot reach its database", "check PostgreSQL and the network to it"),
    "EDB02": Code(
        reasons.DATABASE_SLOW, "The database responds slowly", _DATABASE_ACTION, Severity.WARNING, quoted=False
    ),
    "EDERP01": Code(
        reasons.DERP_DEGRADED,
        "A DERP relay works only over websockets",
        "pass the header Upgrade: derp in the proxy in front of Coder",
        quoted=False,
    ),
    "EDERP02": Code(reasons.DERP_DEGRADED, "A DERP relay does not work", "check that Coder's pods can reach the relay"),
    "EDERP03": Code(reasons.DERP_DEGRADED, "Coder has no DERP relay", "enable the built-in relay or configure others"),
    "ESTUN01": Code(
        reasons.STUN_UNAVAILABLE,
        "Coder reaches no STUN server, so that connections to workspaces use relays",
        _STUN_ACTION,
        Severity.WARNING,
        quoted=False,
    ),
    "ESTUN02": Code(
        reasons.STUN_UNAVAILABLE,
        "The network of Coder prevents direct connections, so that connections to workspaces may use relays",
        "ignore the code if this is expected",
        Severity.WARNING,
        quoted=False,
    ),
    "EWP01": _PROXY._replace(worst=Severity.WARNING),
    "EWP02": _PROXY,
    "EWP04": _PROXY,
    "EPD01": Code(
        reasons.NO_PROVISIONERS,
        "No provisioner daemon is connected",
        "create a CoderProvisioner or check its pods",
        quoted=False,
    ),
    "EPD02": _SKEW,
    "EPD03": _SKEW,
}
NO_PROVISIONERS = "EPD01"
UNKNOWN = "EUNKNOWN"
RELAY_ACTION = "check that Coder's pods can reach the relays of the page /health of Coder"


def meaning(code: str, section: str) -> Code:
    """What a code means; a problem without a code has an empty one."""
    if code in CODES:
        return CODES[code]
    if not code and section == "derp":
        return Code(reasons.DERP_DEGRADED, "A DERP relay does not work", RELAY_ACTION)
    what = f"Coder reports a problem in {section} that the operator does not know"
    return Code(reasons.UNKNOWN_CODE, what, "see the page /health of Coder")


def link(code: str) -> str:
    """The page about a code in Coder's documentation."""
    return f"{PAGE}#{code.lower()}" if code else PAGE
