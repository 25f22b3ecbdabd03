"""How error messages about unknown fields are parsed."""

import json

import pytest

from coder_k8s.kube import errors

QUOTED = '{"spec":{"note":"strict decoding error: unknown field \\"spec.fake\\""},"status":{"retiringKeys":[]}}'
GROUPS = "spec.template.spec.securityContext.supplementalGroupsPolicy"


def parse(status: int, message: str, causes: list[str] | None = None) -> errors.ApiError:
    details = {"causes": [{"field": field} for field in causes or []]}
    return errors.from_response(status, json.dumps({"message": message, "details": details}).encode())


@pytest.mark.parametrize(
    ("status", "message", "fields", "text"),
    [
        (
            400,
            'Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: '
            f'unknown field "{GROUPS}", unknown field "spec.template.spec.volumes[0].image"',
            (GROUPS, "spec.template.spec.volumes[0].image"),
            f"the API server does not know {GROUPS}, spec.template.spec.volumes[0].image of Deployment",
        ),
        (
            500,
            "failed to create typed patch object (coder/demo; apps/v1, Kind=Deployment): errors:\n"
            f"  .{GROUPS}: field not declared in schema\n"
            '  .spec.template.spec.volumes[name="v"].image: field not declared in schema',
            (GROUPS, 'spec.template.spec.volumes[name="v"].image'),
            f'the API server does not know {GROUPS}, spec.template.spec.volumes[name="v"].image of Deployment',
        ),
        (
            422,
            f'"" is invalid: patch: Invalid value: "{QUOTED}": strict decoding error: unknown field "status.keys"',
            ("status.keys",),
            "the API server does not know status.keys",
        ),
    ],
)
def test_unknown_fields(status: int, message: str, fields: tuple[str, ...], text: str) -> None:
    error = parse(status, message)
    assert isinstance(error, errors.UnknownField)
    assert (error.fields, error.message) == (fields, text)


def test_an_invalid_object_names_its_fields() -> None:
    error = parse(422, 'CoderProvisioner.coder.com "x" is invalid', ["spec.key.name", "spec.tags"])
    assert type(error) is errors.Invalid
    assert error.fields == ("spec.key.name", "spec.tags")


def test_duplicates_in_a_list_are_not_unknown_fields() -> None:
    text = "failed to create typed patch object (a/b; apps/v1, Kind=Deployment): .spec.x: duplicate entries for key"
    assert type(parse(500, text)) is errors.ServerError
