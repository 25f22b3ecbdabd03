"""The CRDs of the Gateway API.

They are part of its Go module, which Go downloads, verifies and caches. They are read from the archive of the module,
because a Go toolchain that is too old for the module can download only the archive.
"""

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

MODULE = "sigs.k8s.io/gateway-api"
VERSION = "v1.7.0"
FOLDER = f"{MODULE}@{VERSION}/config/crd/standard/"
RESOURCES = ("gatewayclasses", "gateways", "httproutes")
"""What exposing Coder needs. Other definitions of the release need a newer Kubernetes, such as `tlsroutes`."""


class GatewayAPIMissing(Exception):
    """The CRDs cannot be downloaded; the message describes what to do."""


def manifests() -> str:
    """Return the CRDs of `RESOURCES` in the standard channel as one YAML stream."""
    with zipfile.ZipFile(_archive()) as archive:
        files = [f"{FOLDER}gateway.networking.k8s.io_{resource}.yaml" for resource in RESOURCES]
        return "\n---\n".join(archive.read(name).decode() for name in files)


def _archive() -> Path:
    go = shutil.which("go")
    if go is None:
        raise GatewayAPIMissing(
            f"{MODULE} {VERSION} is downloaded with Go: put go on PATH (https://go.dev/doc/install)"
        )
    done = subprocess.run(
        [go, "mod", "download", "-json", f"{MODULE}@{VERSION}"],
        cwd=Path(__file__).parent,
        env=os.environ | {"GOTOOLCHAIN": "local", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    result = json.loads(done.stdout or "{}")
    if "Zip" not in result:
        raise GatewayAPIMissing(f"downloading {MODULE} {VERSION} failed: {result.get('Error') or done.stderr.strip()}")
    return Path(result["Zip"])
