"""What follows from the name of an image."""


def pull_policy(image: str) -> str:
    """When nodes fetch an image, by Kubernetes' own rule.

    Kubernetes applies it only where no policy is set yet, so what it chose for one tag would stay with the next.
    """
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"
