"""TCP forwarders on the loopback address to the ready endpoints of Services."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count

from coder_k8s.dev.processes import free_port
from coder_k8s.kube.client import Client
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.kinds import SERVICE
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured

from .local import ServicePort, loopback

ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", Unstructured)
SERVICE_LABEL = "kubernetes.io/service-name"
CONNECT_TIMEOUT = 5.0
CHUNK = 1 << 16

Endpoint = tuple[str, int]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def ready_endpoints(port: int, service: Manifest | None, slices: Iterable[Manifest]) -> list[Endpoint]:
    """Return the addresses on this machine of the ready endpoints of a port of a Service."""
    ports = service["spec"].get("ports", []) if service else []
    names = {each.get("name", "") for each in ports if each["port"] == port}
    return sorted(
        (loopback(address), slice_port["port"])
        for each in slices
        for slice_port in each.get("ports") or []
        for endpoint in each.get("endpoints") or []
        for address in endpoint["addresses"]
        if slice_port.get("name", "") in names and endpoint.get("conditions", {}).get("ready", True)
    )


class Forwarders:
    """One forwarder per port of a Service, started on demand. It listens also while there is no endpoint."""

    def __init__(self, client: Client) -> None:
        metrics = Metrics()
        self._services = Informer(client, SERVICE, metrics=metrics)
        self._slices = Informer(client, ENDPOINT_SLICE, metrics=metrics)
        self._of_service = self._slices.index(_service_of)
        self._addresses: dict[ServicePort, str] = {}
        self._turns = count()
        self._stack = AsyncExitStack()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        watches = [asyncio.create_task(informer.run()) for informer in (self._services, self._slices)]
        try:
            async with self._stack:
                await self._services.synced.wait()
                await self._slices.synced.wait()
                yield
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.wait(watches)

    async def address(self, target: ServicePort, port: int = 0) -> str:
        """Return the address of the forwarder of a Service, and start it if there is none."""
        if target not in self._addresses:
            listener = socket.create_server(("127.0.0.1", port or free_port()))
            self._addresses[target] = "{}:{}".format(*listener.getsockname())
            connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.create_task(self._forward(target, (reader, writer)))
                connections[task] = writer
                task.add_done_callback(connections.pop)

            server = await asyncio.start_server(accept, sock=listener)
            self._stack.push_async_callback(_close, server, connections)
        return self._addresses[target]

    def endpoints(self, target: ServicePort) -> list[Endpoint]:
        """Return the ready endpoints of a Service."""
        service = self._services.get(target.service)
        slices = [self._slices.get(key) for key in self._of_service[target.service]]
        return ready_endpoints(
            target.port, service.manifest if service else None, [each.manifest for each in slices if each]
        )

    async def _forward(self, target: ServicePort, client: Streams) -> None:
        server = await self._connect(target)
        if server is None:
            client[1].transport.abort()
            return
        try:
            await asyncio.gather(_copy(client[0], server[1]), _copy(server[0], client[1]))
        finally:
            for _, writer in (client, server):
                writer.close()

    async def _connect(self, target: ServicePort) -> Streams | None:
        """Connect to the next ready endpoint that accepts: one that is stopping may still be listed."""
        endpoints = self.endpoints(target)
        first = next(self._turns)
        for turn in range(len(endpoints)):
            host, port = endpoints[(first + turn) % len(endpoints)]
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    return await asyncio.open_connection(host, port)
        return None


def _service_of(endpoint_slice: Unstructured) -> Iterable[object]:
    if name := endpoint_slice.metadata.labels.get(SERVICE_LABEL):
        yield Key(endpoint_slice.metadata.namespace, name)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of a stream; a reset connection resets the other one."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


async def _close(server: asyncio.Server, connections: dict[asyncio.Task[None], asyncio.StreamWriter]) -> None:
    server.close()
    for connection, writer in connections.items():
        writer.transport.abort()  # a task that has not started cannot close it
        connection.cancel()
    if connections:
        await asyncio.wait(connections)
    await server.wait_closed()
