"""The Backups of CloudNativePG, without its operator."""

import tempfile
from pathlib import Path

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.go_module import download

MODULE, VERSION = "github.com/cloudnative-pg/cloudnative-pg", "v1.27.1"
BACKUPS = "config/crd/bases/postgresql.cnpg.io_backups.yaml"


def install_backups(cluster: ClusterAccess) -> None:
    """Install the CRD of Backups."""
    with tempfile.TemporaryDirectory() as folder:
        content = (download("go", MODULE, VERSION, Path(folder)).folder / BACKUPS).read_text()
    cluster.kubectl("apply", "--server-side", "--filename=-", input=content)
    cluster.kubectl("wait", "--for=condition=Established", "crd/backups.postgresql.cnpg.io", "--timeout=30s")
