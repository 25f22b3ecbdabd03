"""Whether the operator runs, and whether a replica leads."""

from datetime import datetime

from coder_k8s import __version__
from coder_k8s.console.operator import Operator, age, is_leading, operator_node

from .result import FAILED, OK, SKIPPED, Result


def check_operator(operator: Operator, now: datetime) -> Result:
    """Return whether pods of the operator are ready.

    | Deployment  | Lease                        | result  |
    |-------------|------------------------------|---------|
    | ready       | any                          | ok      |
    | not ready   | any                          | failed  |
    | absent      | renewed within its duration  | ok      |
    | unreadable  | any                          | skipped |
    | absent      | any other                    | failed  |

    An error of the API server fails the check.
    """
    name, node = "operator", operator_node(operator, now)
    if operator.failures:
        return Result(name, FAILED, f"Cannot read the operator: {operator.failures[0]}")
    where = f"namespace {operator.namespace}"
    if operator.deployment is not None:
        pods = f"{node.ready_replicas} of {node.replicas} pods are ready in {where}"
        if node.ready_replicas:
            return Result(name, OK, f"{pods}, version {node.version or 'unknown'}{_other_version(node.version)}")
        return Result(name, FAILED, f"{pods}; run `kubectl describe pods -n {operator.namespace}`")
    if is_leading(operator, now):
        return Result(name, OK, f"Leads from outside the cluster, version {node.version or 'unknown'}")
    if operator.problems:
        return Result(name, SKIPPED, operator.problems[0])
    return Result(name, FAILED, f"No Deployment in {where}; install the operator or set --operator-namespace")


def check_leader(operator: Operator, now: datetime) -> Result:
    name, node = "leader", operator_node(operator, now)
    if operator.failures:
        return Result(name, FAILED, f"Cannot read the Lease: {operator.failures[-1]}")
    if operator.lease is None:
        if operator.problems:
            return Result(name, SKIPPED, operator.problems[-1])
        if not operator.elects_leader:
            return Result(name, OK, "Leader election is disabled")
        return Result(name, FAILED, f"No Lease in namespace {operator.namespace}; {_see_log(operator)}")
    if is_leading(operator, now):
        return Result(name, OK, f"{node.leader} leads, last seen {age(node, now)}")
    if not node.leader:
        return Result(name, FAILED, f"The Lease has no holder; {_see_log(operator)}")
    return Result(
        name, FAILED, f"{node.leader} does not renew the Lease, last seen {age(node, now)}; {_see_log(operator)}"
    )


def _other_version(version: str) -> str:
    own = __version__
    return f" (this command: {own})" if version not in ("", own) else ""


def _see_log(operator: Operator) -> str:
    return f"see the log of the operator: `kubectl logs -n {operator.namespace} -l app.kubernetes.io/name=coder-k8s`"
