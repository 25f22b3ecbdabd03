"""The reasons of the condition `Healthy`."""

from .common import FORBIDDEN, NOT_SUPPORTED, PENDING, RATE_LIMITED, SCALED_TO_ZERO, TOKEN_REJECTED
from .reason import Reason
from .workspaceproxy import PROXY_UNHEALTHY

PAGE = "https://coder.com/docs/admin/monitoring/health-check"

ALL_CHECKS_PASSED = Reason(
    "AllChecksPassed",
    "Coder's health check finds nothing, or only what is ignored or dismissed; the message names what is.",
    example="All checks of Coder passed",
)
ACCESS_URL_INVALID = Reason(
    "AccessURLInvalid",
    "The access URL of Coder is not set, or not a URL.",
    "Set `CODER_ACCESS_URL` in `extraEnv`.",
    example=f"EACS02: The access URL of Coder is not valid (parse access URL: first path segment in URL cannot contain "
    f"colon); correct CODER_ACCESS_URL. See {PAGE}#eacs02",
)
ACCESS_URL_UNREACHABLE = Reason(
    "AccessURLUnreachable",
    "Coder's pods cannot reach the access URL.",
    "Check DNS and the certificate as seen from a pod. If the cluster does not route its own public address back "
    "(hairpin NAT), add `EACS03` to `spec.health.ignore`.",
    example="EACS03: Coder cannot reach its own access URL (get healthz endpoint: lookup coder.invalid: no such host); "
    f"check DNS, routing and the certificate as seen from Coder's pods. See {PAGE}#eacs03",
)
ACCESS_URL_NOT_OK = Reason(
    "AccessURLNotOK",
    "Another server than Coder responds at the access URL.",
    "Check which backend serves the host of the access URL.",
    example="EACS04: The access URL does not respond as Coder does (/healthz did not return 200 OK); check which "
    f"backend serves this host. See {PAGE}#eacs04",
)
WEBSOCKET_BLOCKED = Reason(
    "WebsocketBlocked",
    "Websockets do not work through the access URL, so that terminals and workspace connections fail.",
    "Allow websocket upgrades, and long timeouts, in the Ingress, Gateway or proxy in front of Coder.",
    example="EWS01: Websockets do not work through the access URL (websocket dial: expected handshake response status "
    "code 101 but got 400); allow websocket upgrades and long timeouts in the proxy in front of Coder. See "
    f"{PAGE}#ews01",
)
DATABASE_DOWN = Reason(
    "DatabaseDown",
    "Coder cannot reach its database. The status is Unknown if Coder cannot run its check without the database.",
    "Check PostgreSQL, and the network between Coder's pods and it.",
    example="EDB01: Coder cannot reach its database (ping: connection refused); check PostgreSQL and the network to "
    f"it. See {PAGE}#edb01",
)
DATABASE_SLOW = Reason(
    "DatabaseSlow",
    "The database responds to Coder more slowly than its threshold, by default 15 ms.",
    "Check the load of PostgreSQL and the network to it. Change the threshold with "
    "`CODER_HEALTH_CHECK_THRESHOLD_DATABASE`.",
    example="EDB02: The database responds slowly; check the load of PostgreSQL and the network to it. See "
    f"{PAGE}#edb02",
)
DERP_DEGRADED = Reason(
    "DERPDegraded",
    "A DERP relay does not work, or only over websockets. Users connect to workspaces through these relays.",
    "Let the proxy in front of Coder pass the header `Upgrade: derp`; check that Coder's pods can reach the relay.",
    example="EDERP01: A DERP relay works only over websockets; pass the header Upgrade: derp in the proxy in front of "
    f"Coder. See {PAGE}#ederp01",
)
STUN_UNAVAILABLE = Reason(
    "STUNUnavailable",
    "Coder reaches no STUN server, or its network prevents direct connections. Connections use relays instead.",
    "Without access to the internet, this is expected: add the code to `spec.health.ignore`.",
    example="ESTUN01: Coder reaches no STUN server, so that connections to workspaces use relays; ignore the code if "
    f"the cluster has no access to the internet. See {PAGE}#estun01",
)
NO_PROVISIONERS = Reason(
    "NoProvisioners",
    "No provisioner daemon is connected, so that no workspace can be built.",
    "Create a CoderProvisioner or check its pods, or turn on the daemons that are built into Coder.",
    example=f"EPD01: No provisioner daemon is connected; create a CoderProvisioner or check its pods. See {PAGE}#epd01",
)
PROVISIONER_VERSION_SKEW = Reason(
    "ProvisionerVersionSkew",
    "A provisioner daemon has another version than Coder.",
    "Upgrade the daemons, or remove `image` of the CoderProvisioner, so that it follows the control plane.",
    example=f"EPD02: A provisioner daemon has another version than Coder; upgrade the daemons. See {PAGE}#epd02",
)
UNKNOWN_CODE = Reason(
    "UnknownCode",
    "Coder reports a problem without a code, or with a code that this version of the operator does not know.",
    "See the health page of Coder at `/health`.",
    example="ENEW01: Coder reports a problem in access_url that the operator does not know (Odd); see the page /health "
    f"of Coder. See {PAGE}#enew01",
)
TIMED_OUT = Reason(
    "TimedOut",
    "Coder's health check did not finish in time; the message has the checks that were running.",
    "Check what these checks connect to, as seen from Coder's pods.",
    example="Coder's health check does not finish: Healthcheck timed out: Still running: DERP, Websocket",
)
UNREACHABLE = Reason(
    "Unreachable",
    "Coder does not respond, or not with a usable response; the operator retries.",
    "If it persists: check the logs of Coder's pods.",
    example="The result of Coder's health check cannot be read: HTTP 500: Internal error",
)
UPGRADING = Reason(
    "Upgrading",
    "Coder is being upgraded and is not checked. The status is the last known one.",
    example="Coder is being upgraded; the status is the last known one",
)

HEALTH_REASONS = (
    ALL_CHECKS_PASSED,
    ACCESS_URL_INVALID,
    ACCESS_URL_UNREACHABLE,
    ACCESS_URL_NOT_OK,
    WEBSOCKET_BLOCKED,
    DATABASE_DOWN,
    DATABASE_SLOW,
    DERP_DEGRADED,
    STUN_UNAVAILABLE,
    PROXY_UNHEALTHY.means(
        "A workspace proxy is unhealthy, or Coder cannot read the list of proxies.",
        "See the condition `ProxyHealthy` of the CoderWorkspaceProxy.",
        example="EWP02: A workspace proxy does not work (unable to fetch workspace proxies); see condition "
        f"ProxyHealthy of the CoderWorkspaceProxy objects. See {PAGE}#ewp02",
    ),
    NO_PROVISIONERS,
    PROVISIONER_VERSION_SKEW,
    UNKNOWN_CODE,
    PENDING.means(
        "Coder has not been checked yet, or only one check has found an error; the operator waits for the next one.",
        example="Coder reports EPD01; waiting for the result of its next check",
    ),
    FORBIDDEN.means(
        "The user of the operator's token may not read the health check, or a finalizer cannot be added.",
        "Grant the role Owner in Coder to the user of the token of `operatorAccess.tokenSecretRef`, or see the "
        "condition `Stalled`.",
        example="The user of the token in Secret given may not read the health of Coder; grant this user the role "
        "Owner in Coder",
    ),
    TOKEN_REJECTED.means(
        "Coder does not accept the operator's token.",
        "See the condition `OperatorAccessReady`.",
        example="Coder rejects the token in Secret given: API key is invalid",
    ),
    NOT_SUPPORTED.means(
        "This version of Coder has no health check.",
        "Use a newer version of Coder, or turn the check off with `spec.health.interval: 0s`.",
        example="Image ghcr.io/coder/coder:latest is a version of Coder without a health check",
    ),
    RATE_LIMITED.means(RATE_LIMITED.meaning, example="Coder limits the rate of requests"),
    TIMED_OUT,
    UNREACHABLE,
    UPGRADING,
    SCALED_TO_ZERO,
)
