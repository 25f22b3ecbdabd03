"""A fake `coder` program: records its arguments and environment next to itself, then runs the simulator."""

import asyncio
import json
import os
import sys
from pathlib import Path

import asyncpg
from aiohttp import web

from coder_k8s.dev.coderd_server.server import make_app
from coder_k8s.dev.coderd_server.state import State, utc_now
from coder_k8s.dev.database import SIMULATOR_TABLES

SETTINGS = {name: value for name, value in os.environ.items() if name.startswith("CODER_")}
LOCK = 1


async def migrate(url: str) -> None:
    """Create the tables, unless another replica has."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"SELECT pg_advisory_lock({LOCK})")
        if await connection.fetchval("SELECT to_regclass('users')") is None:
            await connection.execute("\n".join(path.read_text() for path in SIMULATOR_TABLES))
    finally:
        await connection.close()


async def serve(host: str, port: int, url: str) -> None:
    await migrate(url)
    state = State("2.36.1", utc_now)
    state.database_url = url
    runner = web.AppRunner(make_app(state))
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    await asyncio.Event().wait()


if sys.argv[1] == "version":
    sys.stdout.write(json.dumps({"version": "v2.36.1+fake", "slim": False}))
else:
    record = {"arguments": sys.argv[1:], "settings": SETTINGS}
    Path(sys.argv[0]).with_suffix(f".{os.getpid()}.json").write_text(json.dumps(record))
    address, _, number = sys.argv[2].partition("=")[2].partition(":")
    asyncio.run(serve(address, int(number), SETTINGS["CODER_PG_CONNECTION_URL"]))
