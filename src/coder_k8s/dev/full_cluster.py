"""A cluster in which pods become Ready, with controllers, scheduler, and a node that kwok simulates."""

import http.client
import json
import ssl
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path

from .binaries import program
from .cluster import Cluster, ClusterAccess
from .processes import Process, ProcessFailed, free_port

STAGES = Path(__file__).parent / "kwok.yaml"
POD_RANGE = "10.244.0.0/16"
NODE = "kwok"
NODE_ANNOTATION = {"kwok.x-k8s.io/node": "fake"}
"""The annotation of the nodes that kwok manages."""


class FullCluster(Cluster):
    """`Cluster` with kube-controller-manager, kube-scheduler and kwok; its node has unlimited capacity.

    Without the simulated node, another one has to run the pods.
    `prepare` installs CRDs before the garbage collector starts, because it discovers new kinds only twice a minute.
    """

    def __init__(
        self,
        folder: Path,
        apiserver_args: Sequence[str] = (),
        port: int | None = None,
        prepare: Callable[[ClusterAccess], None] = lambda _: None,
        *,
        simulated_node: bool = True,
    ) -> None:
        super().__init__(folder, apiserver_args, port)
        self.prepare = prepare
        self.controller_manager = self._component("kube-controller-manager", *self._controller_manager_options())
        self.scheduler = self._component("kube-scheduler")
        self.kwok = Process(self._kwok_command(), folder / "kwok.log", self._node_ready)
        self.node_components = [self.controller_manager, self.scheduler]
        self.simulated_node = simulated_node
        if simulated_node:
            self.node_components.append(self.kwok)

    def start(self) -> None:
        """Start the cluster, and return when a pod can be scheduled."""
        super().start()  # the other components exit if the API server does not respond
        try:
            self.prepare(self)
            self.start_node_components()
        except BaseException:
            self.stop()
            raise

    def start_node_components(self) -> None:
        """Start the components that make pods Ready. The API server must be ready."""
        if self.simulated_node:
            self._add_node()
        for component in self.node_components:
            self.components.append(component)
            component.start()
        for component in self.node_components:
            component.wait_ready()

    def _component(self, name: str, *options: str) -> Process:
        """Return a Kubernetes component that connects to the API server and serves health checks over TLS."""
        port = free_port()
        command: list[str | Path] = [
            program(name),
            f"--kubeconfig={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={self.folder / 'apiserver.crt'}",
            f"--tls-private-key-file={self.folder / 'apiserver.key'}",
            "--leader-elect=false",
            "--profiling=false",
            *options,
        ]
        return Process(command, self.folder / f"{name}.log", lambda: self._healthy(port))

    def _controller_manager_options(self) -> list[str]:
        return [
            f"--root-ca-file={self.ca_path}",
            f"--service-account-private-key-file={self.folder / 'service-account.key'}",
            f"--cluster-cidr={POD_RANGE}",
            "--allocate-node-cidrs=true",
        ]

    def _kwok_command(self) -> list[str | Path]:
        [(annotation, value)] = NODE_ANNOTATION.items()
        return [
            program("kwok"),
            f"--kubeconfig={self.kubeconfig}",
            f"--config={STAGES}",
            f"--manage-nodes-with-annotation-selector={annotation}={value}",
            f"--server-address=127.0.0.1:{free_port()}",
            "--node-ip=127.0.0.1",
            f"--cidr={POD_RANGE}",
            "--node-lease-duration-seconds=40",
        ]

    def _healthy(self, port: int) -> bool:
        context = ssl.create_default_context(cafile=self.ca_path)
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _add_node(self) -> None:
        metadata = {"name": NODE, "annotations": NODE_ANNOTATION, "labels": {"kubernetes.io/hostname": NODE}}
        status, answer = self.request("POST", "/api/v1/nodes", {"metadata": metadata})
        if status not in (HTTPStatus.CREATED, HTTPStatus.CONFLICT):  # the node of an earlier run may exist
            raise ProcessFailed(f"the API server rejected the node ({status}): {answer.decode(errors='replace')}")

    def _node_ready(self) -> bool:
        """Return whether the node has no taint any more, so that pods can be scheduled."""
        node = json.loads(self.request("GET", f"/api/v1/nodes/{NODE}")[1])
        return not node["spec"].get("taints")
