"""A port before a server, to count and to hold up those who come."""

import asyncio
from typing import Self


class Gate:
    """Somebody before the database who counts who comes, and may let them wait for ever."""

    def __init__(self, port: int) -> None:
        self.visits = 0
        self.closed = False
        self._inner = port
        self._links: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        link = asyncio.create_task(self._serve(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.closed:
                await reader.read(-1)
                return
            onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self._inner)
            await asyncio.gather(_pump(reader, onward_writer), _pump(onward_reader, writer))
        finally:
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
