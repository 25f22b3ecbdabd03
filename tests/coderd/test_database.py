"""Connections to coderd's database: servers, TLS, passwords, timeouts and error messages."""

import asyncio
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from random import SystemRandom
from urllib.parse import quote

import asyncpg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from coder_k8s.coderd.access_db import Grant, ensure_token, token_name
from coder_k8s.coderd.database import Timeouts
from coder_k8s.coderd.errors import AccessError, DatabaseUnreachable
from coder_k8s.dev.postgres import Postgres, has_tls, server_account
from coder_k8s.dev.processes import free_port
from tests.coderd.conftest import CoderdDatabase, create_database
from tests.support.databases import VERSIONS

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
NAME = token_name("team", "coder")
PASSWORD = "p@ss:w/o#rd%20 ü"
QUICK = Timeouts(connect=0.3, lock=0.2, statement=0.5, total=1)


async def ensure(url: str, timeouts: Timeouts | None = None, current: str = "") -> Grant:
    return await ensure_token(url, NAME, current, now=NOW, rng=SystemRandom(), timeouts=timeouts)


@pytest.fixture
def version() -> str:
    """The version does not matter here."""
    return "2.36.1"


@pytest.fixture
async def coder(postgres: Postgres) -> None:
    """The role `coder`, which needs a password over TCP."""
    roles = await postgres.fetch("SELECT 1 FROM pg_roles WHERE rolname = 'coder'")
    if not roles:
        await postgres.execute(f"CREATE ROLE coder LOGIN SUPERUSER PASSWORD '{PASSWORD}'")


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def sessions(database: CoderdDatabase) -> int:
    """Return the number of connections of the database, after closing ones have had time to end."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1"
    for _ in range(100):
        [row] = await database.server.fetch(query, "postgres", database.name)
        if row[0] == 0:
            break
        await asyncio.sleep(0.02)
    return int(row[0])


def error_texts(error: BaseException | None) -> str:
    """Return all texts of an error, its cause and its context."""
    if error is None:
        return ""
    return f"{error!r} {error} {vars(error)}" + error_texts(error.__cause__) + error_texts(error.__context__)


async def test_a_password_with_special_characters(database: CoderdDatabase, coder: None) -> None:
    assert (await ensure(database.server.url(database.name, "coder", PASSWORD))).new


async def test_a_password_with_a_bare_at_sign(database: CoderdDatabase, coder: None) -> None:
    url = database.server.url(database.name, "coder", PASSWORD).replace("%40", "@")
    assert (await ensure(url)).new


async def test_a_wrong_password(database: CoderdDatabase, coder: None) -> None:
    with pytest.raises(DatabaseUnreachable, match="rejects the user or the password") as caught:
        await ensure(database.server.url(database.name, "coder", "s3cr3t-guess"))
    assert "s3cr3t-guess" not in error_texts(caught.value)
    assert await sessions(database) == 0


async def test_a_database_that_does_not_exist(database: CoderdDatabase) -> None:
    with pytest.raises(DatabaseUnreachable, match="does not have the database"):
        await ensure(database.server.url("nowhere"))


@pytest.mark.parametrize(
    "form", ["postgres://admin@{quoted}:{port}/{name}", "postgres:///{name}?host={plain}&port={port}&user=admin"]
)
async def test_a_unix_socket(database: CoderdDatabase, form: str) -> None:
    folder = str(database.server.folder)
    url = form.format(quoted=quote(folder, safe=""), plain=folder, port=database.server.port, name=database.name)
    assert (await ensure(url)).new


async def test_the_first_server_that_responds_is_used(database: CoderdDatabase, silent_port: int) -> None:
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{silent_port},127.0.0.1:{database.server.port}"
    url = f"postgres://admin@{hosts}/{database.name}?sslmode=disable&target_session_attrs=read-write"
    assert (await ensure(url, Timeouts(connect=0.3))).new


async def test_parameters_of_the_url_reach_the_server(database: CoderdDatabase) -> None:
    url = database.server.url(database.name, query="sslmode=disable&connect_timeout=5&search_path=elsewhere")
    with pytest.raises(AccessError, match="Waiting for Coder"):
        await ensure(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host=db user=coder",
        "mysql://db/coder",
        "postgres://u:s3cr3t@db:port/coder",
        "postgres://u:s3cr3t@[db/coder",
    ],
)
async def test_errors_contain_no_part_of_an_invalid_url(url: str) -> None:
    with pytest.raises(DatabaseUnreachable, match="not of the form") as caught:
        await ensure(url)
    assert "s3cr3t" not in error_texts(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "sslmode=s3cr3t",
        "target_session_attrs=s3cr3t",
        "sslrootcert=/nowhere/s3cr3t",
        "sslmode=verify-full&sslcert=/nowhere/s3cr3t",
    ],
)
async def test_errors_contain_no_invalid_parameters(database: CoderdDatabase, query: str) -> None:
    with pytest.raises(DatabaseUnreachable) as caught:
        await ensure(database.server.url(database.name, query=query))
    assert "s3cr3t" not in error_texts(caught.value)


async def test_connection_refused() -> None:
    with pytest.raises(DatabaseUnreachable, match="Cannot connect"):
        await ensure(f"postgres://u:s3cr3t@127.0.0.1:{free_port()}/coder")


async def test_an_unknown_host() -> None:
    with pytest.raises(DatabaseUnreachable, match=r"Cannot connect to PostgreSQL at database\.invalid"):
        await ensure("postgres://u:s3cr3t@database.invalid/coder")


@pytest.mark.parametrize("password", ["s3cr3t/@", "a@s3cr3t/word", "a@s3cr3t?word", "a@s3cr3t#word", "1234/x"])
async def test_errors_contain_no_part_of_a_password_that_is_not_encoded(password: str) -> None:
    with pytest.raises(DatabaseUnreachable) as caught:
        await ensure(f"postgres://u:{password}@database.invalid/coder", QUICK)
    assert "s3cr3t" not in error_texts(caught.value)
    assert "1234" not in error_texts(caught.value)


@pytest.mark.parametrize("mode", ["disable", "require"])
async def test_a_server_that_never_responds_times_out(silent_port: int, mode: str) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(DatabaseUnreachable, match="in time") as caught:
            await ensure(f"postgres://u:s3cr3t@127.0.0.1:{silent_port}/coder?sslmode={mode}", QUICK)
    assert "s3cr3t" not in error_texts(caught.value)


async def test_a_locked_table_times_out(database: CoderdDatabase) -> None:
    grant = await ensure(database.url)
    migration = await asyncpg.connect(database.url)
    try:
        async with migration.transaction():
            await migration.execute("LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(DatabaseUnreachable, match="another client locked"):
                await ensure(database.url, QUICK)
    finally:
        await migration.close()
    assert not (await ensure(database.url, current=grant.token)).new
    assert await sessions(database) == 0


async def test_a_server_that_stops_responding_times_out(database: CoderdDatabase) -> None:
    """The proxy forwards the login and drops everything after it, like a failing network."""
    dropping = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if b"pg_advisory_xact_lock" in data:
                dropping.set()
            if not dropping.is_set():
                writer.write(data)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", database.server.port)
        tasks.update((asyncio.create_task(pump(reader, forth)), asyncio.create_task(pump(back, writer))))

    proxy = await asyncio.start_server(accept, "127.0.0.1")
    port = proxy.sockets[0].getsockname()[1]
    async with asyncio.timeout(5):
        with pytest.raises(DatabaseUnreachable, match="in time"):
            await ensure(database.url.replace(f":{database.server.port}/", f":{port}/"), QUICK)
    assert dropping.is_set()
    await asyncio.gather(*tasks)
    proxy.close()
    assert await sessions(database) == 0


async def test_cancellation_closes_the_connection(database: CoderdDatabase) -> None:
    blocker = await asyncpg.connect(database.url)
    try:
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE users IN ACCESS EXCLUSIVE MODE")
            task = asyncio.create_task(ensure(database.url))
            for _ in range(500):
                if await blocker.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"):
                    break
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    finally:
        await blocker.close()
    assert await sessions(database) == 0


async def test_no_connection_stays_open(database: CoderdDatabase) -> None:
    grant = await ensure(database.url)
    await ensure(database.url, current=grant.token)
    assert await sessions(database) == 0


@pytest.fixture
def own_server() -> Iterator[Postgres]:
    """A server that the test stops."""
    server = Postgres.start(free_port())
    server.create_template("2.30.0", *VERSIONS["2.30.0"])
    yield server
    server.stop()


async def test_an_outage_rotates_no_token(own_server: Postgres) -> None:
    url = own_server.url("2.30.0")
    grant = await ensure(url)
    own_server.halt()
    with pytest.raises(DatabaseUnreachable):
        await ensure(url, current=grant.token)
    own_server.resume()
    assert await ensure(url, current=grant.token) == Grant(grant.token, grant.expires, new=False, stale=False)


def write_certificate(folder: Path) -> None:
    """Write a self-signed certificate for 127.0.0.1 where PostgreSQL expects it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "database")])
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(datetime.now(UTC) + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "server.crt").write_bytes(certificate.public_bytes(encoding))
    (folder / "server.key").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    (folder / "server.key").chmod(0o600)
    account = server_account()
    if account is not None:
        os.chown(folder / "server.key", account, -1)


@pytest.fixture(scope="module")
def tls_server() -> Iterator[Postgres]:
    """A server that allows the user `coder` only over TLS."""
    if not has_tls():
        pytest.skip("this PostgreSQL was built without TLS")
    server = Postgres.start(free_port(), "hostssl all coder 127.0.0.1/32 trust\nhost all coder 127.0.0.1/32 reject\n")
    write_certificate(server.folder / "data")
    server.create_template("2.30.0", *VERSIONS["2.30.0"])
    asyncio.run(server.execute("CREATE ROLE coder LOGIN SUPERUSER"))
    for statement in ("ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()"):
        asyncio.run(server.execute(statement))
    yield server
    server.stop()


@pytest.mark.parametrize(
    "query", ["", "sslmode=require", "sslmode=verify-ca&sslrootcert={ca}", "sslmode=verify-full&sslrootcert={ca}"]
)
async def test_tls_is_the_default(tls_server: Postgres, query: str) -> None:
    ca = tls_server.folder / "data" / "server.crt"
    database = await create_database(tls_server, "2.30.0")
    assert (await ensure(tls_server.url(database.name, "coder", query=query.format(ca=ca)))).new


@pytest.mark.parametrize("query", ["sslmode=verify-full", "sslmode=verify-ca&sslrootcert=system"])
async def test_an_unknown_certificate_authority_is_rejected(tls_server: Postgres, query: str) -> None:
    with pytest.raises(DatabaseUnreachable, match="Cannot connect"):
        await ensure(tls_server.url("2.30.0", "coder", query=query))


async def test_a_server_that_requires_tls_and_a_url_without_it(tls_server: Postgres) -> None:
    with pytest.raises(DatabaseUnreachable, match="or not without TLS"):
        await ensure(tls_server.url("2.30.0", "coder", query="sslmode=disable"))


async def test_a_server_without_tls_and_a_url_that_requires_it(database: CoderdDatabase) -> None:
    with pytest.raises(DatabaseUnreachable, match="does not support TLS"):
        await ensure(database.server.url(database.name, query="sslmode=require"))


def test_a_server_with_several_addresses_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example a headless Service, or IPv4 and IPv6. Runs on asyncio, because uvloop resolves names by itself."""
    port = free_port()
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{each}", port)) for each in (1, 2)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    with pytest.raises(DatabaseUnreachable, match="none of its addresses accepts a connection") as caught:
        asyncio.run(ensure(f"postgres://coder:coder@database.example:{port}/coder"))
    assert "TLS" not in str(caught.value)


async def test_the_port_is_not_in_the_message() -> None:
    port = free_port()
    with pytest.raises(DatabaseUnreachable, match="the connection is refused") as caught:
        await ensure(f"postgres://coder:coder@127.0.0.1:{port}/coder")
    assert str(port) not in str(caught.value)
