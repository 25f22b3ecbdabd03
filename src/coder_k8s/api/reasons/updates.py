"""The reasons of the condition `Upgrading` of a CoderControlPlane."""

from .reason import Reason

PREFLIGHT = Reason(
    "Preflight",
    "A Job with the new image checks that it can be pulled and started, its version, and whether it migrates the "
    "database. The old pods serve.",
    example="Checking image coder:v2 with Job demo-preflight-12345678; the pods do not change meanwhile",
)
WINDOW = Reason(
    "Window",
    "The update waits for the next window of `update.windows`. The old pods serve, and all changes of the pods wait "
    "with the image.",
    example="Waiting for the update window that opens on 2026-03-07 at 22:00 UTC",
)
BACKUP = Reason(
    "Backup",
    "The update waits for a backup of the database. The old pods serve.",
    example="Waiting for Backup demo-update-20260301120000",
)
DRAIN = Reason(
    "Drain",
    "The provisioners stop, and the update waits until no build runs, at most for `update.drain.timeout`.",
    example="Waiting for running builds, at most for 30m",
)
STOP = Reason(
    "Stop",
    "All pods stop before the database is migrated.",
    "If it persists: a pod does not stop, for example on a node that is unreachable. Delete the pod that the message "
    "names once it certainly does not run any more.",
    example="Waiting until pod demo-1 has stopped",
)
MIGRATE = Reason(
    "Migrate",
    "One pod of the new image migrates the database, which can take minutes. Coder is not available.",
    example="A pod of image coder:v2 migrates the database",
)
VERIFY = Reason(
    "Verify",
    "The new pod is ready. The operator checks its version and its own access to Coder.",
    example="Checking the version of pod demo-2",
)
SCALE_BACK = Reason(
    "ScaleBack",
    "The database is migrated, and the other pods start.",
    example="Starting all pods of image coder:v2",
)
ROLLOUT = Reason(
    "Rollout",
    "The new image has the same database schema, so pods are replaced one after another without a gap.",
    example="Replacing the pods one after another by image coder:v2, which has the same database schema",
)
FLEET = Reason(
    "Fleet",
    "The control plane is updated. Provisioners without an image of their own follow, then workspace proxies.",
    example="Waiting until the provisioners run image coder:v2",
)
ROLLBACK = Reason(
    "Rollback",
    "The new image does not start and has not changed the database. Its pod stops, then the old image starts again.",
    example="Stopping the pod of image coder:broken, which does not start",
)
UPDATED = Reason("Updated", "The last update is complete.", example="Updated from v2.30.0 to v2.36.1")
ROLLED_BACK = Reason(
    "RolledBack",
    "The new image did not start and did not change the database, or the API server rejected its Deployment. The old "
    "image runs again.",
    "Fix what the message names, then change `image` or another field of the pods.",
    example="Image coder:broken does not start: pod demo-3: CrashLoopBackOff: exit code 1: error: unknown flag. Image "
    "coder:v1 runs again",
)
DOWNGRADE_REFUSED = Reason(
    "DowngradeRefused",
    "The database has a newer schema than the image can use. The old pods serve.",
    "Coder has no downgrade. Set `image` to the old or a newer version, or restore a backup of the database: "
    "the image is checked again every hour.",
    example="The database has a newer schema than image coder:v1 (v2.30.0) can use; set image to coder:v2 or a newer "
    "version, or restore a backup",
)
KNOWN_BAD_PATH = Reason(
    "KnownBadPath",
    "A direct update between these versions of Coder is known to fail. The old pods serve.",
    "Update to the version that the message names first.",
    example="Coder cannot be updated from v2.26.1 to v2.27.8 directly; update to 2.26.6 first",
)
IMAGE_UNREADABLE = Reason(
    "ImageUnreadable",
    "The new image cannot be pulled or started on a node, or is not an image of Coder. The old pods serve.",
    "Correct `image`, `imagePullSecrets` or the registry. The operator checks again every ten minutes.",
    example="Image coder:v2 cannot be checked: pod demo-preflight-12345678-1: ImagePullBackOff: Back-off pulling image "
    '"coder:v2"',
)
PREFLIGHT_FAILED = Reason(
    "PreflightFailed",
    "The new image starts, but cannot check the database. The old pods serve.",
    "Fix what the message names. The operator checks again every ten minutes.",
    example="The preflight of image coder:broken failed: error: dial postgres: connection refused",
)
BACKUP_MISSING = Reason(
    "BackupMissing",
    "There is no backup as `update.backup` requires, and none can be made. The old pods serve.",
    "Fix what the message names: install CloudNativePG, correct the name of the Cluster, or its backup configuration.",
    example="Cluster database has no backup: the cluster does not have CloudNativePG; install it, or remove "
    "update.backup",
)
DRAIN_TIMEOUT = Reason(
    "DrainTimeout",
    "Builds still ran after `update.drain.timeout`, and `onTimeout` is `Abort`. The old pods serve.",
    "Change `update.drain`, which starts the update again. It is also tried again after an hour.",
    example="Builds still run after update.drain.timeout; the update is tried again in an hour",
)
MIGRATION_TIMEOUT = Reason(
    "MigrationTimeout",
    "The new pod is not ready after `update.migrationTimeout`. Nothing is stopped: a migration that is interrupted "
    "starts again from the beginning.",
    "Check the log of the pod, and locks in the database. A long migration needs only time.",
    example="The pod of image coder:v2 is not ready after 30m and may still migrate the database; check its log and "
    "locks in the database, and do not delete it",
)
MIGRATION_FAILED = Reason(
    "MigrationFailed",
    "The new image does not start. The database may have its schema already, so the old image is not started again.",
    "Fix what the message names, set `image` to a newer version, or restore a backup.",
    example="Image coder:late does not start: pod demo-3: CrashLoopBackOff: exit code 1: error: unknown flag. Image "
    "coder:v1 is not started again, because the database may have changed",
)
VERSION_MISMATCH = Reason(
    "VersionMismatch",
    "The new pod reports another version than the same image did in the preflight.",
    "Check whether a webhook or a mirror replaces the image.",
    example="Pod demo-2 reports version v2.37.0, but image coder:v2 reported v2.36.1 in the preflight",
)

UPDATE_REASONS = (
    PREFLIGHT,
    WINDOW,
    BACKUP,
    DRAIN,
    STOP,
    MIGRATE,
    VERIFY,
    SCALE_BACK,
    ROLLOUT,
    FLEET,
    ROLLBACK,
    UPDATED,
    ROLLED_BACK,
    DOWNGRADE_REFUSED,
    KNOWN_BAD_PATH,
    IMAGE_UNREADABLE,
    PREFLIGHT_FAILED,
    BACKUP_MISSING,
    DRAIN_TIMEOUT,
    MIGRATION_TIMEOUT,
    MIGRATION_FAILED,
    VERSION_MISMATCH,
)
