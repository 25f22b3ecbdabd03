"""A real coderd for `coder-k8s dev`."""

import os
from pathlib import Path

from .processes import Process, answer


def real_coderd(program: Path, folder: Path, port: int, database_url: str) -> Process:
    """Return the process `coder server`, without the Coder variables of the current environment."""
    url = f"http://127.0.0.1:{port}"
    settings = {
        "CODER_PG_CONNECTION_URL": database_url,
        "CODER_ACCESS_URL": url,
        "CODER_HTTP_ADDRESS": f"127.0.0.1:{port}",
        "CODER_TELEMETRY_ENABLE": "false",
        "CODER_UPDATE_CHECK": "false",
        "CODER_CONFIG_DIR": str(folder / "coder"),
        "CODER_CACHE_DIRECTORY": str(folder / "coder" / "cache"),
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CODER_")}
    return Process(
        [program, "server"],
        folder / "coder.log",
        lambda: answer(port, "/healthz") is not None,
        env=inherited | settings,
    )
