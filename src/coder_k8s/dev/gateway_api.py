"""The custom resource definitions of the Gateway API, as its project releases them.

They come with its Go module, so Go's own module cache keeps them. They are read out of the archive of the module: a Go
toolchain older than the module asks for refuses the module, but still fetches and verifies its archive.
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
    """The definitions are not at hand and cannot be fetched; the message says what to do."""


def manifests() -> str:
    """The definitions of `RESOURCES` in the standard channel, as one YAML stream to apply."""
    with zipfile.ZipFile(_archive()) as archive:
        files = [f"{FOLDER}gateway.networking.k8s.io_{resource}.yaml" for resource in RESOURCES]
        return "\n---\n".join(archive.read(name).decode() for name in files)


def _archive() -> Path:
    go = shutil.which("go")
    if go is None:
        raise GatewayAPIMissing(f"{MODULE} {VERSION} is fetched by Go: put go on PATH (https://go.dev/doc/install)")
    done = subprocess.run(
        [go, "mod", "download", "-json", f"{MODULE}@{VERSION}"],
        cwd=Path(__file__).parent,
        env=os.environ | {"GOTOOLCHAIN": "local", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    told = json.loads(done.stdout or "{}")
    if "Zip" not in told:
        raise GatewayAPIMissing(f"fetching {MODULE} {VERSION} failed: {told.get('Error') or done.stderr.strip()}")
    return Path(told["Zip"])
