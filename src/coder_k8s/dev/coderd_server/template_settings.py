"""The settings of a template in requests: validation, and what coderd does with omitted or unlicensed ones.

| setting | without the license for it |
|---|---|
| schedule (autostop, autostart, failure and dormancy) | ignored, without an error |
| required active version, deprecation | ignored, without an error |
| maximum level of port sharing | rejected |

A change without a setting keeps its value, except in 2.30, where it is then zero or false.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from coder_k8s.dev.coderd_server.queries import is_name
from coder_k8s.dev.coderd_server.responses import ErrorResponse
from coder_k8s.dev.coderd_server.state import State
from coder_k8s.dev.coderd_server.templates import DEFAULTS, WEEKDAYS

DISPLAY_NAME = re.compile(r"\S(.*\S)?")
VERSION_NAME = re.compile(r"[a-zA-Z0-9]+([_.-][a-zA-Z0-9]+)*")
MAX_WEEKS = 16
MINUTE = 60_000
CORS = ("simple", "passthru")
LEVELS = ("authenticated", "organization", "public")
TIMES = ("default_ttl_ms", "activity_bump_ms")
DORMANCY = ("failure_ttl_ms", "time_til_dormant_ms", "time_til_dormant_autodelete_ms")
SCHEDULE = (
    "autostop_requirement",
    "autostart_requirement",
    "allow_user_autostart",
    "allow_user_autostop",
    *DORMANCY,
)
ACCESS_CONTROL = ("require_active_version", "deprecation_message")
AT_CREATION = {
    "dormant_ttl_ms": "time_til_dormant_ms",
    "delete_ttl_ms": "time_til_dormant_autodelete_ms",
    "template_use_classic_parameter_flow": "use_classic_parameter_flow",
}
"""Settings that have another name when a template is created."""
ZERO = {
    "default_ttl_ms": 0,
    "activity_bump_ms": 0,
    "allow_user_autostart": False,
    "allow_user_autostop": False,
    "allow_user_cancel_workspace_jobs": False,
    "failure_ttl_ms": 0,
    "time_til_dormant_ms": 0,
    "time_til_dormant_autodelete_ms": 0,
    "require_active_version": False,
}
"""What 2.30 writes if a change does not have the setting."""
NO_ID = "00000000-0000-0000-0000-000000000000"
Error = tuple[str, str]


def new_settings(state: State, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a new template."""
    given = {AT_CREATION.get(name, name): value for name, value in body.items() if value is not None}
    given.pop("deprecation_message", None)
    positive = partial(numbers, given, 0, "Must be a positive integer.")
    errors = [*positive(TIMES), *notification(given), *days(given)]
    errors += [*port_sharing(state, given, DEFAULTS, "max_port_share_level"), *cors(given), *weeks(given)]
    errors += positive(DORMANCY)
    if errors:
        raise invalid("Invalid create template request.", errors)
    return merged(state, DEFAULTS, given)


def changed_settings(state: State, current: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a template after a change."""
    given = {name: value for name, value in body.items() if value is not None}
    if state.is_old:
        given = {**ZERO, **given}
    times = [*numbers(given, 0, "Must be a positive integer.", TIMES), *notification(given)]
    limits = [*weeks(given), *numbers(given, MINUTE, "Value must be at least one minute.", DORMANCY)]
    sharing = [*port_sharing(state, given, current, "max_port_sharing_level")]
    if state.is_old:
        errors = [*times, *days(given), *limits, *sharing, *cors(given)]
    else:
        errors = [*days(given), *cors(given), *times, *limits, *sharing]
    if errors:
        raise invalid("Invalid request to update template metadata!", errors)
    return merged(state, current, given)


def merged(state: State, current: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    ignored = {
        *(SCHEDULE if state.entitlement("advanced_template_scheduling") == "not_entitled" else ()),
        *(ACCESS_CONTROL if state.entitlement("access_control") == "not_entitled" else ()),
        *(("time_til_autostop_notify_ms", "disable_module_cache") if state.is_old else ()),
    }
    result = {name: given.get(name, value) for name, value in current.items() if name not in ignored}
    result = {**current, **result}
    result["cors_behavior"] = result["cors_behavior"] or current["cors_behavior"]
    for name in ("autostop_requirement", "autostart_requirement"):
        result[name] = {"days_of_week": ordered(result[name].get("days_of_week") or [])}
    stop = given.get("autostop_requirement") if "autostop_requirement" not in ignored else None
    result["autostop_requirement"]["weeks"] = (stop or current["autostop_requirement"]).get("weeks") or 1
    return result


def ordered(given: list[str]) -> list[str]:
    return [day for day in WEEKDAYS if day in {each.lower() for each in given}]


def numbers(given: Mapping[str, Any], least: int, text: str, names: tuple[str, ...]) -> Iterator[Error]:
    """Find negative numbers, and those between 0 and the least allowed one."""
    for name in names:
        value = given.get(name, 0)
        if value < 0 or 0 < value < least:
            yield ("time_til_dormant_autodeletion_ms" if least == 0 and "dormant" in name else name), text


def notification(given: Mapping[str, Any]) -> Iterator[Error]:
    value = given.get("time_til_autostop_notify_ms", 0)
    if value < 0:
        yield "time_til_autostop_notify_ms", "Must be a positive integer."
    elif 0 < value < MINUTE:
        yield "time_til_autostop_notify_ms", "Must be 0 (disabled) or at least one minute."


def days(given: Mapping[str, Any]) -> Iterator[Error]:
    for name in ("autostop_requirement", "autostart_requirement"):
        unknown = [day for day in (given.get(name) or {}).get("days_of_week") or [] if day.lower() not in WEEKDAYS]
        if unknown:
            yield f"{name}.days_of_week", f'invalid weekday "{unknown[0]}"'


def weeks(given: Mapping[str, Any]) -> Iterator[Error]:
    value = (given.get("autostop_requirement") or {}).get("weeks") or 0
    if value < 0:
        yield "autostop_requirement.weeks", "Must be a positive integer."
    if value > MAX_WEEKS:
        yield "autostop_requirement.weeks", f"Must be less than {MAX_WEEKS}."


def cors(given: Mapping[str, Any]) -> Iterator[Error]:
    if (value := given.get("cors_behavior") or "simple") not in CORS:
        yield "cors_behavior", f'Invalid CORS behavior "{value}". Must be one of [{", ".join(CORS)}]'


def port_sharing(state: State, given: Mapping[str, Any], current: Mapping[str, Any], field: str) -> Iterator[Error]:
    """Find a level that is new and not allowed; without a license, every template shows `public`."""
    level = given.get("max_port_share_level")
    licensed = state.entitlement("control_shared_ports") != "not_entitled"
    new = field == "max_port_share_level" or level != (current["max_port_share_level"] if licensed else "public")
    if level is None or not new:
        return
    if not licensed:
        yield field, "Restricting port sharing level is an enterprise feature that is not enabled."
    elif level not in LEVELS:
        yield field, "invalid max port sharing level, value must be 'authenticated', 'organization', or 'public'."


def check_new_template(body: Mapping[str, Any]) -> None:
    """Raise the errors of the fields of a new template, in coderd's order."""
    errors = [*names(body, required=True)]
    if len(description := body.get("description") or "") >= 128:
        errors.append(failed("description", "lt", description))
    if (version := body.get("template_version_id") or NO_ID) == NO_ID:
        errors.append(failed("template_version_id", "required", version))
    raise_validation(errors)


def check_change(body: Mapping[str, Any]) -> None:
    raise_validation([*names(body, required=False)])


def names(body: Mapping[str, Any], *, required: bool) -> Iterator[Error]:
    name, display_name = body.get("name") or "", body.get("display_name") or ""
    if not is_name(name) and (name or required):
        yield failed("name", "template_name", name)
    if display_name and (len(display_name) > 64 or not DISPLAY_NAME.fullmatch(display_name)):
        yield failed("display_name", "template_display_name", display_name)


def check_new_version(body: Mapping[str, Any]) -> None:
    """Raise the errors of the fields of a new version, in coderd's order."""
    name, method, file = body.get("name") or "", body.get("storage_method") or "", body.get("file_id") or NO_ID
    provisioner, example = body.get("provisioner") or "", body.get("example_id") or ""
    errors: list[Error] = []
    if name and (len(name) > 64 or not VERSION_NAME.fullmatch(name)):
        errors.append(failed("name", "template_version_name", name))
    if method != "file":
        errors.append(failed("storage_method", "oneof", method))
    if file == NO_ID and not example:
        errors += [failed("file_id", "required_without", file), failed("example_id", "required_without", example)]
    if provisioner not in ("terraform", "echo"):
        errors.append(failed("provisioner", "oneof", provisioner))
    raise_validation(errors)


def failed(field: str, rule: str, value: str) -> Error:
    return field, f'Validation failed for tag "{rule}" with value: "{value}"'


def raise_validation(errors: list[Error]) -> None:
    if errors:
        raise invalid("Validation failed.", errors)


def invalid(message: str, errors: list[Error]) -> ErrorResponse:
    return ErrorResponse(400, message, validations=[{"field": name, "detail": text} for name, text in errors])
