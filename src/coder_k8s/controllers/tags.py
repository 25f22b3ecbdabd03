"""Which provisioner daemons can run a job: coderd compares the tags of both.

| tags of the job | daemons of the same organization that can run it |
|---|---|
| only `scope: organization` and an empty `owner` (an untagged job) | those with exactly these tags |
| any other | those that have every tag of the job, with the same value |

Values are case-sensitive. A daemon may have more tags than the job, unless the job is untagged.
"""

from collections.abc import Mapping

SCOPE, OWNER = "scope", "owner"
ORGANIZATION, USER = "organization", "user"
UNTAGGED: Mapping[str, str] = {SCOPE: ORGANIZATION, OWNER: ""}
"""The tags of a job, or a daemon, for which a user set none."""
NOBODY = "00000000-0000-0000-0000-000000000000"


def covers(daemon: Mapping[str, str], job: Mapping[str, str]) -> bool:
    """Whether a daemon with these tags can run a job with these tags; both have the tags that coderd added."""
    if job == UNTAGGED:
        return daemon == UNTAGGED
    return job.items() <= daemon.items()


def key_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags of the daemons of a key with these tags.

    | `scope` of the key | `scope` of a daemon | `owner` of a daemon |
    |---|---|---|
    | `user` | `user` | the user without an ID: no user's jobs |
    | any other, or none | `organization` | empty |

    coderd drops tags with an empty value.
    """
    kept = {name: value for name, value in tags.items() if value}
    if kept.get(SCOPE) == USER:
        return kept | {OWNER: NOBODY}
    return {**kept, **UNTAGGED}


def own_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that a user sets: without those that coderd adds to every job and daemon."""
    return {name: value for name, value in tags.items() if name not in (SCOPE, OWNER)}


def is_user_scoped(job: Mapping[str, str]) -> bool:
    """Whether only a daemon of the same user can run the job; a daemon with a key never can."""
    return job.get(SCOPE) == USER
