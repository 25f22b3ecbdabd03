"""Parses CODER_PG_CONNECTION_URL like coderd's driver."""

import ssl
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

_TLS = ("sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "ssl_min_protocol_version", "sslnegotiation")
# Settings of client libraries, which the server would reject as unknown parameters.
_CLIENT_ONLY = frozenset(
    (
        "binary_parameters",
        "channel_binding",
        "client_encoding",
        "connect_timeout",
        "disable_prepared_binary_result",
        "fallback_application_name",
        "gssencmode",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "krbspn",
        "krbsrvname",
        "load_balance_hosts",
        "passfile",
        "sslcompression",
        "sslinline",
        "sslsni",
        "tcp_user_timeout",
    )
)


class Server(NamedTuple):
    """A server of a URL: a host name, an address, or the directory of a Unix socket."""

    host: str
    port: int


class Database:
    """Servers and credentials of a database; its representations contain no secrets."""

    def __init__(self, servers: list[Server], arguments: dict[str, Any], hosts: str) -> None:
        self.servers = servers
        self.arguments = arguments
        self._hosts = hosts

    def __str__(self) -> str:
        return f"PostgreSQL at {self._hosts}" if self._hosts else "PostgreSQL"


def parse(url: str) -> Database:
    """Parse a URL into servers and arguments for asyncpg; the ValueError contains no part of the URL."""
    try:
        parts = urlsplit(url.strip())
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        login, _, hosts = parts.netloc.rpartition("@")
        servers = _servers(unquote(hosts) or query.pop("host", ""), query.pop("port", ""))
    except ValueError:
        servers = []
    if not servers or parts.scheme not in ("postgres", "postgresql"):
        raise ValueError("not of the form postgres://user:password@host:port/database")

    user, _, password = login.partition(":")
    query.pop("host", None)
    arguments: dict[str, Any] = {
        "user": unquote(user) or query.pop("user", None),
        "password": unquote(password) or query.pop("password", ""),
        "database": unquote(parts.path.removeprefix("/")) or query.pop("dbname", None),
        "target_session_attrs": query.pop("target_session_attrs", None),
        **_tls(query.pop("sslmode", "require"), {name: query.pop(name) for name in _TLS if name in query}),
    }
    arguments["server_settings"] = {name: value for name, value in query.items() if name not in _CLIENT_ONLY}
    # After a password that is not encoded, the host and port of the URL may be parts of the password.
    ambiguous = "@" in parts.path + parts.query + parts.fragment
    return Database(servers, arguments, "" if ambiguous else ", ".join(server.host for server in servers))


def _servers(hosts: str, ports: str) -> list[Server]:
    """Parse comma-separated hosts, with their ports or with a separate list of ports."""
    listed = [int(port) for port in ports.split(",")] if ports else [5432]
    servers = []
    for place, spec in enumerate(hosts.split(",") if hosts else ["localhost"]):
        port = listed[min(place, len(listed) - 1)]
        if spec.startswith("["):
            spec, _, own = spec[1:].partition("]")
            own = own.removeprefix(":")
        else:
            spec, _, own = spec.partition(":")
        servers.append(Server(spec, int(own) if own else port))
    return servers


def _tls(mode: str, files: dict[str, str]) -> dict[str, Any]:
    """Return TLS arguments as coderd's driver does: TLS by default, verified with the system's CAs by default."""
    roots = files.get("sslrootcert", "system")
    if mode in ("verify-ca", "verify-full") and roots == "system":
        context = ssl.create_default_context()
        context.check_hostname = mode == "verify-full"
        if "sslcert" in files:
            context.load_cert_chain(files["sslcert"], files.get("sslkey"))
        return {"ssl": context}
    return {"dsn": f"postgres://?{urlencode({'sslmode': mode, **files})}"}
