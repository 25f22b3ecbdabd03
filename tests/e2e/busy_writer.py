"""A process that writes continuously while it is leader: `python -m tests.e2e.busy_writer KUBECONFIG NAMESPACE`."""

import asyncio
import itertools
import os
import sys
from pathlib import Path

from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.election import Election, ElectionOptions
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key


async def main(kubeconfig: Path, namespace: str) -> None:
    metrics = Metrics()
    async with Http(load(kubeconfig), "busy-writer", metrics) as http:
        identity = f"writer-{os.getpid()}"
        election = Election(
            http,
            Key(namespace, "busy-writer"),
            identity,
            field_manager=identity,
            metrics=metrics,
            options=ElectionOptions(lease_duration=3, renew_deadline=2.0, retry_period=0.5),
        )
        client = Client(http, identity, fence=election.check)

        async def write(name: str) -> None:
            for number in itertools.count():
                metadata = {"namespace": namespace, "name": name}
                await client.apply(CONFIG_MAP, {"metadata": metadata, "data": {identity: str(number)}})
                await asyncio.sleep(0.1)

        async def work() -> None:
            # Several writers, so that some are about to write whenever the process freezes.
            await asyncio.gather(*(write(f"written-{number}") for number in range(8)))

        await election.acquire(asyncio.Event())
        await election.lead(work)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
