"""Builds the children of a CoderWorkspaceProxy."""

from coder_k8s.api import WORKSPACE_PROXY, CoderControlPlane, CoderWorkspaceProxy
from coder_k8s.api.shared import DEFAULT_IMAGE, SecretKey
from coder_k8s.controllers.images import followed_image, pull_policy
from coder_k8s.controllers.labels import labels
from coder_k8s.controllers.labels import metadata as owned
from coder_k8s.controllers.lists import dedupe_by_name
from coder_k8s.controllers.names import NAME_LIMIT, derived
from coder_k8s.controllers.podspec import container_fields, pod_fields
from coder_k8s.controllers.secrets import encoded
from coder_k8s.controllers.urls import api_url
from coder_k8s.kube.objects import Manifest, Unstructured

NAME = "coder-workspace-proxy"
CONTAINER = "workspace-proxy"
PORT = 3001
TOKEN = "token"  # noqa: S105 - the key of the Secret
CHECKSUM = "checksum/proxy-token"


def metadata(proxy: CoderWorkspaceProxy, name: str) -> Manifest:
    return owned(WORKSPACE_PROXY, proxy, NAME, name)


def deployment_name(proxy: CoderWorkspaceProxy) -> str:
    """The name of the Deployment and the Service."""
    return derived(proxy.metadata.name, prefix="wsproxy-")


def secret_name(proxy: CoderWorkspaceProxy) -> str:
    """The Secret with the token of a proxy that the operator registers."""
    chosen = proxy.spec.bootstrap.generated_token_secret_name if proxy.spec.bootstrap else ""
    return chosen or derived(proxy.metadata.name, suffix="-proxy-token", limit=NAME_LIMIT)


def token_reference(proxy: CoderWorkspaceProxy) -> SecretKey:
    """The Secret and key with the token for the pods."""
    given = proxy.spec.proxy_session_token_secret_ref
    return SecretKey(name=given.name, key=given.key) if given else SecretKey(name=secret_name(proxy), key=TOKEN)


def primary_url(proxy: CoderWorkspaceProxy, plane: CoderControlPlane | None) -> str:
    """The URL of Coder for the pods; empty if the control plane does not exist."""
    if proxy.spec.primary_access_url:
        return proxy.spec.primary_access_url
    if proxy.spec.bootstrap is not None:
        return proxy.spec.bootstrap.coder_url
    return api_url(plane).removesuffix(":80") if plane is not None else ""


def secret(proxy: CoderWorkspaceProxy, token: str) -> Manifest:
    return {"metadata": metadata(proxy, secret_name(proxy)), "type": "Opaque", "data": {TOKEN: encoded(token)}}


def service(proxy: CoderWorkspaceProxy) -> Manifest:
    wanted = proxy.spec.service
    made = metadata(proxy, deployment_name(proxy))
    if wanted.annotations:
        made["annotations"] = wanted.annotations
    return {
        "metadata": made,
        "spec": {
            "type": wanted.type,
            "selector": labels(NAME, proxy),
            "ports": [{"name": "http", "port": wanted.port, "protocol": "TCP", "targetPort": PORT}],
        },
    }


def checksum_of(live: Unstructured) -> str:
    """The checksum of the token that the pods of a Deployment use."""
    template = live.manifest["spec"]["template"]
    annotations: dict[str, str] = template.get("metadata", {}).get("annotations", {})
    return annotations.get(CHECKSUM, "")


def image_of(proxy: CoderWorkspaceProxy, plane: CoderControlPlane | None, live: Unstructured | None) -> str:
    """The image to run; empty until the control plane reports one."""
    if plane is None:
        return proxy.spec.image or DEFAULT_IMAGE
    return followed_image(proxy.spec.image, plane, live, CONTAINER)


def deployment(proxy: CoderWorkspaceProxy, url: str, image: str, checksum: str) -> Manifest:
    """The Deployment; `url` is the URL of Coder."""
    own = labels(NAME, proxy)
    template: Manifest = {"metadata": {"labels": own}, "spec": _pod(proxy, url, image)}
    if checksum:
        template["metadata"]["annotations"] = {CHECKSUM: checksum}
    return {
        "metadata": metadata(proxy, deployment_name(proxy)),
        "spec": {"replicas": proxy.spec.replicas, "selector": {"matchLabels": own}, "template": template},
    }


def _pod(proxy: CoderWorkspaceProxy, url: str, image: str) -> Manifest:
    return {"containers": [_container(proxy, url, image)], **pod_fields(proxy.spec)}


def _container(proxy: CoderWorkspaceProxy, url: str, image: str) -> Manifest:
    spec = proxy.spec
    reference = token_reference(proxy)
    env: list[Manifest] = [
        {"name": "CODER_PRIMARY_ACCESS_URL", "value": url},
        {
            "name": "CODER_PROXY_SESSION_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": reference.name, "key": reference.key}},
        },
        *spec.extra_env,
    ]
    derp_only = ["--derp-only"] if spec.derp_only else []
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": pull_policy(image),
        # The entrypoint of the image starts coderd.
        "command": ["/opt/coder"],
        "args": ["wsproxy", "server", f"--http-address=0.0.0.0:{PORT}", *derp_only, *spec.extra_args],
        "env": dedupe_by_name(env),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": _probe(periodSeconds=10, failureThreshold=3),
        "livenessProbe": _probe(initialDelaySeconds=30, periodSeconds=10, failureThreshold=6),
        **container_fields(spec),
    }


def _probe(**times: int) -> Manifest:
    return {"httpGet": {"path": "/healthz", "port": "http"}, "timeoutSeconds": 5, **times}
