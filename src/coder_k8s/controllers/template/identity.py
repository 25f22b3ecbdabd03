"""What identifies the versions of an object in coderd: their names and messages.

The message names the object and has the complete digest, so that coderd itself records which versions belong to an
object, and a lost status is found again.
"""

import re

from coder_k8s.api.template import CoderTemplate
from coder_k8s.coderd.templates import ImportedVersion

from .versions import INFRASTRUCTURE, UNSERVED, Version

SHORT = 12
"""Characters of the digest in the name of a version."""
REVISION_LIMIT = 200
MISSING_VARIABLES = "REQUIRED_TEMPLATE_VARIABLES"
"""The code of an error that names variables, and no values."""
WITHHELD = "the error is not shown here, because it can contain values of Secrets; read it in Coder"
MESSAGE = re.compile(r"coder-k8s: CoderTemplate (\S+)/(\S+), digest sha256:([0-9a-f]{64}), revision .*")


def template_name(template: CoderTemplate) -> str:
    """The name of the template in Coder."""
    return template.spec.name or template.metadata.name


def version_prefix(digest: str) -> str:
    return f"{digest[:SHORT]}-"


def message_of(template: CoderTemplate, digest: str, revision: str) -> str:
    """The message of a version in coderd."""
    where = f"{template.metadata.namespace}/{template.metadata.name}"
    printable = "".join(char if char.isprintable() else " " for char in revision[:REVISION_LIMIT])
    return f"coder-k8s: CoderTemplate {where}, digest sha256:{digest}, revision {printable.strip() or '-'}"


def has_secrets(template: CoderTemplate) -> bool:
    """Whether a version has values of Secrets, which Terraform may print."""
    return any(each.value_from is not None for each in template.spec.variables)


def shown_error(template: CoderTemplate, error: str, code: str) -> str:
    """The error of an import without values of Secrets.

    | the template has | the error | is shown |
    |---|---|---|
    | no variables of Secrets | any | completely |
    | variables of Secrets | is about missing variables | completely |
    | | is one of the infrastructure | as far as it is that of the infrastructure |
    | | is another one | not |
    """
    if not has_secrets(template) or not error or code == MISSING_VARIABLES:
        return error
    known = UNSERVED.search(error) or INFRASTRUCTURE.search(error)
    return f"{known.group()} ({WITHHELD})" if known else WITHHELD


def own_version(template: CoderTemplate, found: ImportedVersion, user: str | None = None) -> Version | None:
    """A version, if it belongs to this object and was created by the operator's `user`: anyone can copy a message."""
    marks = MESSAGE.fullmatch(found.message)
    if user is not None and found.created_by.id != user:
        return None
    if marks is None or marks.groups()[:2] != (template.metadata.namespace, template.metadata.name):
        return None
    matched = found.matched_provisioners
    return Version(
        id=found.id,
        name=found.name,
        digest=marks.group(3),
        status=found.job.status,
        archived=found.archived,
        error=shown_error(template, found.job.error, found.job.error_code),
        error_code=found.job.error_code,
        completed=found.job.completed_at,
        served=matched is None or matched.available > 0,
        file=found.job.file_id,
    )
