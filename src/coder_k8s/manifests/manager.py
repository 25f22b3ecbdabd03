"""The Deployment of the operator, with its namespace, Service, disruption budget and monitoring objects."""

from coder_k8s import __version__

from .alerts import groups
from .embedded import Json
from .rbac import LABELS, NAME, NAMESPACE

USER = 65532
METRICS_PORT = 8080
HEALTH_PORT = 8081
SCRAPE_INTERVAL = "30s"


def namespace() -> Json:
    """Return the operator's namespace, which enforces the Pod Security level `restricted`."""
    labels = {**LABELS, "pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def deployment() -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(NAME),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": LABELS},
            # Without maxUnavailable, two nodes are too few for a rollout if replicas must run on different nodes.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "50%"}},
            "template": {"metadata": {"labels": LABELS}, "spec": pod()},
        },
    }


def pod() -> Json:
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        # Shutdown takes at most 32 seconds: 25 for in-flight reconciles, the rest to release the Lease and exit.
        "terminationGracePeriodSeconds": 40,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": LABELS},
                        },
                    }
                ]
            }
        },
        "containers": [container()],
    }


def container() -> Json:
    return {
        "name": "controller",
        "image": f"{NAME}:{__version__}",
        "imagePullPolicy": "IfNotPresent",
        "args": ["controller", "--log-format=json", "--log-level=info"],
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "ports": [
            {"name": "metrics", "containerPort": METRICS_PORT},
            {"name": "health", "containerPort": HEALTH_PORT},
        ],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "health"},
            "initialDelaySeconds": 15,
            "periodSeconds": 20,
            "timeoutSeconds": 5,
        },
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "health"},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
        },
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }


def service() -> Json:
    """Return the Service of the metrics port."""
    ports = [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(f"{NAME}-metrics"),
        "spec": {"selector": LABELS, "ports": ports},
    }


def disruption_budget() -> Json:
    """Allow one eviction at a time. A replica that is not ready never blocks the drain of a node."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(NAME),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": LABELS},
        },
    }


def service_monitor() -> Json:
    """Return the ServiceMonitor. `honorLabels` keeps the labels `namespace` and `name` of the metrics."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": _metadata(NAME),
        "spec": {
            "selector": {"matchLabels": LABELS},
            "endpoints": [{"port": "metrics", "interval": SCRAPE_INTERVAL, "honorLabels": True}],
        },
    }


def prometheus_rule() -> Json:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": _metadata(NAME),
        "spec": {"groups": groups()},
    }


def _metadata(name: str) -> Json:
    return {"name": name, "namespace": NAMESPACE, "labels": LABELS}
