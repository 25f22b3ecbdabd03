"""Images that the API server stores under another name, because an admission policy replaces them."""

import msgspec
from msgspec.structs import replace

from coder_k8s.api import CoderControlPlane
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.controlplane.deployment import CONTAINER
from coder_k8s.controllers.deployments import image_in
from coder_k8s.controllers.rejections import rejection
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.objects import Key, Manifest, Unstructured


class StoredImages:
    """Which image the API server stores in a Deployment for one that is applied, such as that of a mirror."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._stored: dict[Key, dict[str, str]] = {}
        """By Deployment: the stored image of each applied one."""

    def forget(self, key: Key) -> None:
        self._stored.pop(key, None)

    async def apply(self, plane: CoderControlPlane, desired: Manifest) -> Unstructured:
        """Apply a Deployment, and return it with the image that was applied."""
        live = await self._children.apply(DEPLOYMENT, plane, desired)
        stored = image_in(live, CONTAINER)
        self._record(_image(desired), live, stored)
        return self._view(live, stored)

    async def learn(self, live: Unstructured, desired: Manifest) -> None:
        """Query what the API server would store, once for each image that is not that of the live Deployment."""
        wanted = _image(desired)
        if wanted in (image_in(live, CONTAINER), *self._stored.get(live.key, {})):
            return
        try:
            found = await self._children.dry_run(DEPLOYMENT, desired)
        except errors.ApiError as error:
            if rejection(error) is None:
                raise
            return  # the preflight refuses it
        if found is not None:
            self._record(wanted, found, image_in(found, CONTAINER))

    def _record(self, applied: str, live: Unstructured, stored: str) -> None:
        if not live.deleting:  # such a Deployment is not written
            self._stored.setdefault(live.key, {})[applied] = stored

    def applied(self, key: Key, stored: str) -> str:
        """The image that was applied, of a stored one."""
        known = self._stored.get(key, {})
        return next((applied for applied, found in known.items() if found == stored), stored)

    def view(self, live: Unstructured) -> Unstructured:
        """A Deployment with the image that was applied."""
        return self._view(live, image_in(live, CONTAINER))

    def _view(self, live: Unstructured, stored: str) -> Unstructured:
        applied = self.applied(live.key, stored)
        if applied == stored:
            return live
        content: Manifest = msgspec.json.decode(live.content)
        for container in content["spec"]["template"]["spec"]["containers"]:
            if container["name"] == CONTAINER:
                container["image"] = applied
        return replace(live, content=msgspec.json.encode(content))


def _image(desired: Manifest) -> str:
    [container] = desired["spec"]["template"]["spec"]["containers"]
    return str(container["image"])
