"""The simulator as a process with a control API."""

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from coder_k8s.dev.processes import Process, free_port

TOKEN = "0123456789-abcdefghijklmnopqrstuv"


def call(url: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Coder-Session-Token": TOKEN})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_control_api_changes_the_simulator(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "coder_k8s.dev.coderd_server", "--port", str(port), "--token", TOKEN]

    def ready() -> bool:
        return url in (tmp_path / "log").read_text()

    server = Process(command, tmp_path / "log", ready)
    server.start()
    try:
        server.wait_ready()
        assert call(f"{url}/api/v2/users/me")[0] == 200
        assert call(f"{url}/api/v2/organizations/default/provisionerkeys")[0] == 403
        call(f"{url}/_control/install_license", {"feature_set": "premium"})
        assert call(f"{url}/api/v2/organizations/default/provisionerkeys") == (200, [])
        call(f"{url}/_control/set", {"rate_limited": True})
        assert call(f"{url}/api/v2/users/me")[0] == 429
        counted = call(f"{url}/_control/requests")[1]
        assert counted["GET /api/v2/users/me"] == 2
    finally:
        server.stop()
