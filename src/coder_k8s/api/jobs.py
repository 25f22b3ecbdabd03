# ruff: noqa: RUF012 - msgspec copies an empty default
"""Jobs of Coder that no provisioner can run."""

from datetime import datetime

from .shared import Int32, Part


class UnservedJobs(Part, kw_only=True, frozen=True):
    """Jobs of an organization with the same tags that no provisioner can run."""

    organization_name: str = ""
    """Organization of the jobs."""
    tags: dict[str, str] = {}
    """Tags of the jobs, without `scope` and `owner`. Empty for jobs without tags."""
    user_scoped: bool = False
    """Whether only a daemon of the same user can run the jobs (`scope=user`); a CoderProvisioner never can."""
    count: Int32 = 0
    """Number of these jobs."""
    oldest: datetime | None = None
    """When the oldest of them was created. Coder fails it 30 minutes later."""
