"""The number of the schema in Coder's database."""

import msgspec

from coder_k8s.api import CoderControlPlane
from coder_k8s.coderd.errors import AccessError
from coder_k8s.coderd.schema_db import schema_version
from coder_k8s.controllers.controlplane.database import URLMissing, connection_url
from coder_k8s.controllers.controlplane.tokens import generates_token
from coder_k8s.kube.client import Client


class DatabaseSchema(msgspec.Struct, frozen=True):
    """The number of the last migration, 0 if it is not known, and whether it failed."""

    version: int = 0
    dirty: bool = False


async def read_schema(client: Client, plane: CoderControlPlane) -> DatabaseSchema:
    """The schema, if the spec lets the operator use the database and it responds."""
    if not generates_token(plane):
        return DatabaseSchema()
    try:
        return DatabaseSchema(*await schema_version(await connection_url(client, plane)))
    except (URLMissing, AccessError):
        return DatabaseSchema()
