from coder_k8s.dev.operator import controllers_reconciled
from coder_k8s.kube.metrics import Metrics


def test_controllers_that_have_reconciled() -> None:
    metrics = Metrics()
    metrics.reconciles.labels("provisioner", "success").inc(12)
    metrics.reconciles.labels("controlplane", "error").inc()
    metrics.reconciles.labels("workspaceproxy", "success")
    metrics.reconcile_seconds.labels("workspaceproxy").observe(1)
    assert controllers_reconciled(metrics.registry.text()) == {"provisioner", "controlplane"}
