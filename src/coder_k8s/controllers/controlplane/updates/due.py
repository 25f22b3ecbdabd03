"""Whether the image of the spec needs an update."""

from .observations import Seen


def is_due(seen: Seen) -> bool:
    """Whether the image of the spec needs an update.

    | Deployment            | image of the spec              | pods           | update |
    |-----------------------|--------------------------------|----------------|--------|
    | none                  | any                            | never ran      | no     |
    | none                  | another than that of the last rollout | ran     | yes    |
    | any                   | any, strategy `Rolling`        | any            | no     |
    | any                   | any, no replicas               | any            | no     |
    | any                   | any                            | there was none | no     |
    | with another image    | any                            | exist or ran   | yes    |
    | with this image       | that of the last rollout       | any            | no     |
    | with this image, 0 replicas | another than that of the last rollout | ran | yes |
    | with this image       | any                            | are rolling    | no     |
    """
    if seen.strategy == "Rolling" or seen.replicas == 0 or not base_image(seen):
        return False
    if seen.image != (seen.live_image or seen.running):
        return True
    return seen.live_replicas == 0 and bool(seen.running) and seen.running != seen.image


def base_image(seen: Seen) -> str:
    """The image before the update, which the database may belong to; empty if none ever ran."""
    return seen.live_image if seen.live_image and seen.has_pods else seen.running
