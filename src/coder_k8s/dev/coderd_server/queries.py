"""Parses the query parameters of lists, with coderd's errors."""

import json
from uuid import UUID

from aiohttp import web

from coder_k8s.dev.coderd_server.responses import ErrorResponse, invalid_field


def query_limit(request: web.Request) -> int:
    return int(request.query.get("limit", "50"))


def query_states(request: web.Request, known: tuple[str, ...], what: str, enum: str) -> set[str]:
    wanted = set(request.query.get("status", "").split(",")) - {""}
    for status in wanted - set(known):
        detail = f'fetch object: pq: invalid input value for enum {enum}: "{status}"'
        raise ErrorResponse(500, f"Internal error fetching {what}.", detail)
    return wanted


def query_tags(request: web.Request) -> dict[str, str]:
    text = request.query.get("tags", "{}")
    try:
        tags: dict[str, str] = json.loads(text)
    except ValueError:
        reason = "invalid character 'o' in literal null (expecting 'u')"
        detail = f'Query param "tags" must be a valid JSON object: {reason}'
        raise invalid_field("Invalid query parameters.", "tags", detail) from None
    return tags


def query_ids(request: web.Request) -> set[str]:
    ids = set(request.query.get("ids", "").split(",")) - {""}
    for each in ids:
        if not is_uuid(each):
            detail = f'Query param "ids" has invalid values: invalid UUID length: {len(each)}'
            raise invalid_field("Invalid query parameters.", "ids", detail)
    return ids


def is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
