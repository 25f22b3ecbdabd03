"""Kinds that are built into Kubernetes, the HTTPRoute of the Gateway API, and the Backup of CloudNativePG."""

from coder_k8s.kube.objects import Kind, PartialObject, Unstructured

BACKUP = Kind("postgresql.cnpg.io", "v1", "Backup", "backups", Unstructured)
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", Unstructured)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", Unstructured)
HTTP_ROUTE = Kind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes", Unstructured)
INGRESS = Kind("networking.k8s.io", "v1", "Ingress", "ingresses", Unstructured)
JOB = Kind("batch", "v1", "Job", "jobs", Unstructured)
POD_DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", Unstructured)
POD = Kind("", "v1", "Pod", "pods", Unstructured)
ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles", Unstructured)
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", Unstructured)
SECRET = Kind("", "v1", "Secret", "secrets", Unstructured)
SERVICE = Kind("", "v1", "Service", "services", Unstructured)
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts", Unstructured)

CONFIG_MAP_METADATA = Kind("", "v1", "ConfigMap", "configmaps", PartialObject, metadata_only=True)
NAMESPACE_METADATA = Kind("", "v1", "Namespace", "namespaces", PartialObject, namespaced=False, metadata_only=True)
SECRET_METADATA = Kind("", "v1", "Secret", "secrets", PartialObject, metadata_only=True)
