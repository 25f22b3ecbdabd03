"""A minimal provisioner daemon: python daemon_process.py PORT NAME, with its key in the environment.

Like Coder's daemon it runs one job at a time and finishes it after SIGTERM. If coderd rejects it, it neither exits nor
retries.
"""

import http.client
import json
import os
import signal
import sys
import time
from typing import Any

START = 3.0
"""Seconds until it connects. Its pod is ready as soon as it runs."""


def main(port: str, name: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", int(port))
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))

    def ask(path: str, **body: object) -> dict[str, Any]:
        connection.request("POST", path, json.dumps(body))
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer

    time.sleep(START)
    daemon = ask("/connect", name=name, key=os.environ["CODER_PROVISIONER_DAEMON_KEY"]).get("daemon")
    while not signals:
        if daemon is None:
            signal.sigtimedwait({signal.SIGUSR1}, 0.5)
        elif job := ask("/acquire", daemon=daemon):
            time.sleep(job["seconds"])
            ask("/complete", daemon=daemon, job=job["number"])
    if daemon is not None:
        ask("/leave", daemon=daemon)


if __name__ == "__main__":
    main(*sys.argv[1:])
