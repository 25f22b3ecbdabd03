"""Run the simulator as a process: python -m coder_k8s.dev.coderd_server --port N."""

import argparse
import asyncio

from coder_k8s.dev.coderd_server.records import User
from coder_k8s.dev.coderd_server.server import CoderdServer


async def main() -> None:
    parser = argparse.ArgumentParser(description="A simulator of coderd, controlled under /_control/.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--version", choices=("2.30.0", "2.36.1", "agpl"), default="2.36.1")
    parser.add_argument("--token", help="a token of an owner, of the form 10-22 characters")
    parser.add_argument("--database-url", help="a database with coderd's tables, whose tokens count")
    given = parser.parse_args()
    async with CoderdServer(given.version, port=given.port, database_url=given.database_url) as server:
        if given.token:
            server.state.add_token(User("admin", ("owner",)), given.token)
        print(server.url, flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
