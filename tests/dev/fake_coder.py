"""A fake `coder` program: records its arguments and environment, then runs the simulator."""

import asyncio
import json
import os
import sys
from pathlib import Path

import asyncpg

from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.database import SIMULATOR_TABLES


async def main(settings: dict[str, str]) -> None:
    url, port = settings["CODER_PG_CONNECTION_URL"], int(settings["CODER_HTTP_ADDRESS"].rpartition(":")[2])
    if "MIGRATE" in os.environ:
        connection = await asyncpg.connect(url)
        await connection.execute("\n".join(path.read_text() for path in SIMULATOR_TABLES))
        await connection.close()
    async with CoderdServer(port=port, database_url=url):
        await asyncio.Event().wait()


SETTINGS = {name: value for name, value in os.environ.items() if name.startswith("CODER_")}
Path(os.environ["CALLED"]).write_text(json.dumps({"arguments": sys.argv[1:], "settings": SETTINGS}))
asyncio.run(main(SETTINGS))
