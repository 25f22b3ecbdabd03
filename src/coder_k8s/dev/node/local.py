"""Replaces addresses and paths of the cluster, in the words of a container, with those of this machine.

A pod has an address of its own in the loopback range. Its address in the cluster differs only in the first number,
because the API server rejects loopback addresses in EndpointSlices. Service names are not resolvable here.
"""

import re
import socket
from collections.abc import Callable, Iterable, Mapping

import msgspec

from coder_k8s.kube.objects import Key

CLUSTER, LOOPBACK = "10.", "127."
KUBELET_PORT = 10250
FIRST_POD, LAST_POD = 2, 254
RESERVED = frozenset({96, 244})
"""Second numbers of the ranges of Services and of simulated pods."""

ANY = re.compile(r"(?<![\w.])(?:0\.0\.0\.0(?![\w.])|\[::\](?=:\d))|(?:(?<=^)|(?<==))(?=:\d+$)")
SERVICE = re.compile(
    r"(?P<scheme>https?)://(?P<name>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)\.svc(?:\.cluster\.local)?(?::(?P<port>\d+))?"
    r"(?![\w.:-])"
)
DEFAULT_PORTS = {"http": 80, "https": 443}


class ServicePort(msgspec.Struct, frozen=True):
    """A port of a Service."""

    service: Key
    port: int


class NoAddress(Exception):
    """Every address of the node's range is in use."""


def loopback(address: str) -> str:
    """Return the address on this machine of an address in the cluster."""
    return LOOPBACK + address.removeprefix(CLUSTER)


class Range:
    """The addresses of a node and its pods: 10.A.B.1 to 10.A.B.254, which no other node of this machine uses."""

    def __init__(self, random: Callable[[int], int]) -> None:
        self._taken: set[str] = set()
        while True:
            second, third = 1 + random(254), random(256)
            self._prefix = f"{CLUSTER}{second}.{third}."
            if second not in RESERVED and (held := _hold(loopback(self.node))) is not None:
                self._held = held
                return

    @property
    def node(self) -> str:
        return f"{self._prefix}1"

    def take(self) -> str:
        """Return a free address for a pod."""
        for number in range(FIRST_POD, LAST_POD + 1):
            address = f"{self._prefix}{number}"
            if address not in self._taken:
                self._taken.add(address)
                return address
        raise NoAddress(f"all addresses of {self._prefix}0/24 are in use")

    def free(self, address: str) -> None:
        self._taken.discard(address)

    def close(self) -> None:
        """Free the range for other nodes."""
        self._held.close()


def _hold(address: str) -> socket.socket | None:
    """Return a socket that holds an address for this process; `None` if another process has it."""
    held = socket.socket()
    try:
        held.bind((address, KUBELET_PORT))
    except OSError:
        held.close()
        return None
    return held


def services(texts: Iterable[str]) -> set[ServicePort]:
    """Return the Services in URLs of the texts."""
    return {_service(match) for text in texts for match in SERVICE.finditer(text)}


def localize(text: str, address: str, paths: Mapping[str, str], forwarded: Mapping[ServicePort, str]) -> str:
    """Replace what has no meaning on this machine.

    | text                                   | result                             |
    |----------------------------------------|------------------------------------|
    | `0.0.0.0`, `[::]:PORT`, `:PORT`        | the address of the pod             |
    | `http://NAME.NAMESPACE.svc...[:PORT]`  | the forwarder of the Service       |
    | the mount path of a volume             | the folder or file of the volume   |
    | the path of a program in the image     | the program on this machine        |
    """
    text = ANY.sub(address, text)
    text = SERVICE.sub(lambda match: f"{match['scheme']}://{forwarded[_service(match)]}", text)
    if not paths:
        return text
    longest_first = sorted(paths, key=len, reverse=True)
    mounted = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest_first))})(?![\w.-])")
    return mounted.sub(lambda match: paths[match[1]], text)


def _service(match: re.Match[str]) -> ServicePort:
    port = int(match["port"] or DEFAULT_PORTS[match["scheme"]])
    return ServicePort(Key(match["namespace"], match["name"]), port)
