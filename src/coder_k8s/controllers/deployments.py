"""The fields of a Deployment that reconciles read often. To decode all of them takes several times as long."""

import msgspec

from coder_k8s.kube.objects import Unstructured


class Container(msgspec.Struct, gc=False):
    name: str
    image: str = ""


class PodSpec(msgspec.Struct, gc=False):
    containers: list[Container]


class Template(msgspec.Struct, gc=False):
    spec: PodSpec


class DeploymentSpec(msgspec.Struct, gc=False):
    template: Template
    replicas: int = 1


class DeploymentCondition(msgspec.Struct, gc=False):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class DeploymentStatus(msgspec.Struct, rename="camel", gc=False):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    conditions: list[DeploymentCondition] = []


class Deployment(msgspec.Struct, gc=False):
    """A Deployment without its metadata."""

    spec: DeploymentSpec
    status: DeploymentStatus = msgspec.field(default_factory=DeploymentStatus)

    def image(self, container: str) -> str:
        """The image of a container, found by its name: a webhook may insert another container before it."""
        return next((each.image for each in self.spec.template.spec.containers if each.name == container), "")


_DEPLOYMENT = msgspec.json.Decoder(Deployment)


def typed(live: Unstructured) -> Deployment:
    """The typed fields of a live Deployment."""
    return _DEPLOYMENT.decode(live.content)


def image_in(live: Unstructured, container: str) -> str:
    """The image of a container of a Deployment."""
    return typed(live).image(container)
