"""What the benchmarks count as requests of an operator."""

import json
from pathlib import Path

from bench import samples
from coder_k8s.dev.cluster import ClusterAccess

METRICS = """
apiserver_request_total{dry_run="",resource="events",subresource="",verb="POST"} 3
apiserver_request_total{dry_run="",resource="events",subresource="",verb="LIST"} 7
apiserver_request_total{dry_run="",resource="leases",subresource="",verb="PUT"} 9
apiserver_request_total{dry_run="",resource="flowschemas",subresource="status",verb="APPLY"} 4
apiserver_request_total{dry_run="All",resource="services",subresource="",verb="APPLY"} 5
apiserver_request_total{dry_run="",resource="services",subresource="",verb="APPLY"} 6
"""


class ScriptedCluster(ClusterAccess):
    """An API server with these metrics, which reported two new Services as not allocated."""

    def __init__(self) -> None:
        super().__init__(Path(), 0)

    def request(
        self, method: str, path: str, body: object = None, timeout: float = 10, content_type: str = ""
    ) -> tuple[int, bytes]:
        assert (method, body) == ("GET", None)
        return 200, METRICS.encode() if path == "/metrics" else json.dumps({"items": [{}, {}]}).encode()


def test_requests_of_the_api_server_do_not_count() -> None:
    found = samples.requests(ScriptedCluster())
    assert found == {"POST events": 1, "APPLY services (dry run)": 5, "APPLY services": 6}
    assert samples.writes(found) == 7
