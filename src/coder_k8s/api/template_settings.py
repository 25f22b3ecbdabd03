# ruff: noqa: RUF012 - msgspec copies an empty default
"""The settings and the access of a CoderTemplate. What is not set is not managed."""

from typing import Annotated, ClassVar

from .markers import Check, Schema
from .shared import IS_DURATION, Int32, NoCredentials, NotEmpty, Part, Text

OptionalDuration = Annotated[
    str,
    Schema(maxLength=32),
    Check(IS_DURATION, "must be a duration with a unit, such as 12h, or 0s to turn it off"),
]
DormancyDuration = Annotated[
    str,
    Schema(maxLength=32),
    Check(
        f"{IS_DURATION} && (duration(self) == duration('0s') || duration(self) >= duration('1m'))",
        "must be at least 1m, or 0s to turn it off",
    ),
]
Days = Annotated[
    list[Annotated[str, Schema(enum=["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"])]],
    Schema(**{"maxItems": 7, "x-kubernetes-list-type": "set"}),
]


class AutostopRequirement(Part, kw_only=True, frozen=True):
    """When workspaces must stop, at the quiet hours of their users."""

    days_of_week: Days
    """Days on which workspaces stop; an empty list turns it off."""
    weeks: Annotated[Int32, Schema(minimum=1, maximum=16)] = 1
    """Number of weeks between these days."""


class AutostartRequirement(Part, kw_only=True, frozen=True):
    """When workspaces may start automatically."""

    days_of_week: Days
    """Days on which workspaces may start."""


class TemplateSchedule(Part, kw_only=True, frozen=True):
    """The schedule of workspaces; needs a license."""

    checks: ClassVar[tuple[Check, ...]] = (
        Check(
            "!has(self.deleteDormantAfter) || self.deleteDormantAfter == '0s'"
            " || (has(self.allowWorkspaceDeletion) && self.allowWorkspaceDeletion)",
            "deleteDormantAfter deletes workspaces: set allowWorkspaceDeletion to true too",
        ),
    )

    autostop_requirement: AutostopRequirement | None = None
    """When workspaces must stop."""
    autostart_requirement: AutostartRequirement | None = None
    """When workspaces may start automatically."""
    allow_user_autostart: bool | None = None
    """Whether users can set when their workspaces start."""
    allow_user_autostop: bool | None = None
    """Whether users can set when their workspaces stop."""
    failure_ttl: DormancyDuration | None = None
    """How long a workspace whose start failed runs before it stops; `0s` turns it off."""
    dormant_after: DormancyDuration | None = None
    """How long a workspace is unused before it becomes dormant; `0s` turns it off."""
    delete_dormant_after: DormancyDuration | None = None
    """How long a workspace is dormant before Coder deletes it; `0s` turns it off. Needs `allowWorkspaceDeletion`."""
    allow_workspace_deletion: bool = False
    """Confirms that Coder may delete dormant workspaces."""


class Settings(Part, kw_only=True, frozen=True):
    """Settings of a template."""

    display_name: (
        Annotated[
            str,
            Schema(maxLength=64),
            Check("self == self.trim()", "must not have leading or trailing spaces"),
        ]
        | None
    ) = None
    """Display name."""
    description: Annotated[str, Schema(maxLength=127)] | None = None
    """Description."""
    icon: Annotated[Text, NoCredentials] | None = None
    """Path or URL of the icon."""
    default_ttl: OptionalDuration | None = None
    """How long a workspace runs before it stops; `0s` turns it off."""
    activity_bump: OptionalDuration | None = None
    """How much activity extends this time; `0s` turns it off."""
    allow_user_cancel_workspace_jobs: bool | None = None
    """Whether users can cancel the jobs of their workspaces."""
    require_active_version: bool | None = None
    """Whether workspaces must use the active version; needs a license."""
    schedule: TemplateSchedule | None = None
    """The schedule of workspaces; needs a license."""


Role = Annotated[str, Schema(enum=["Use", "Admin"])]


class Grant(Part, kw_only=True, frozen=True):
    """The role of one group or user."""

    name: Annotated[str, NotEmpty, Schema(maxLength=255)]
    """Name of the group, or username."""
    role: Role
    """`Use`: create workspaces. `Admin`: also change the template."""


Grants = Annotated[
    list[Grant], Schema(**{"maxItems": 200, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]})
]


class Access(Part, kw_only=True, frozen=True):
    """Who can use and administer a template."""

    everyone: Annotated[str, Schema(enum=["None", "Use", "Admin"])] = "Use"
    """Role of all members of the organization."""
    groups: Grants = []
    """Roles of groups; the roles of others are removed."""
    users: Grants = []
    """Roles of users; the roles of others are removed."""
