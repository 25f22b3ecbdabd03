"""Kinds of Kubernetes itself."""

from coder_k8s.kube.objects import Child, Glimpse, Kind

CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", Child)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", Child)
HTTP_ROUTE = Kind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes", Child)
INGRESS = Kind("networking.k8s.io", "v1", "Ingress", "ingresses", Child)
POD = Kind("", "v1", "Pod", "pods", Child)
ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles", Child)
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", Child)
SECRET = Kind("", "v1", "Secret", "secrets", Child)
SERVICE = Kind("", "v1", "Service", "services", Child)
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts", Child)

CONFIG_MAP_METADATA = Kind("", "v1", "ConfigMap", "configmaps", Glimpse, metadata_only=True)
NAMESPACE_METADATA = Kind("", "v1", "Namespace", "namespaces", Glimpse, namespaced=False, metadata_only=True)
SECRET_METADATA = Kind("", "v1", "Secret", "secrets", Glimpse, metadata_only=True)
