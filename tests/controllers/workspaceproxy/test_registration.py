"""The next step of a registration depends on the status, the Secret and coderd."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.api import CoderWorkspaceProxy
from coder_k8s.coderd.types import ProxyStatus, WorkspaceProxy
from coder_k8s.controllers.workspaceproxy.registration import (
    Adopt,
    Change,
    Claims,
    Create,
    Forget,
    Keep,
    NameConflict,
    Recorded,
    RecordIntent,
    Regenerate,
    Retire,
    Step,
    Wanted,
    next_step,
    proxy_of,
    wanted_by,
    with_defaults,
)

THEN = datetime(2026, 3, 1, tzinfo=UTC)
"""When the name was recorded."""


def proxy(
    proxy_id: str = "a",
    name: str = "sydney",
    display_name: str = "Sydney",
    icon: str = "/1.png",
    *,
    after: float = 1,
    used: bool = False,
    running: bool = False,
) -> WorkspaceProxy:
    """A proxy that coderd created some seconds after the name was recorded."""
    return WorkspaceProxy(
        id=proxy_id,
        name=name,
        display_name=display_name,
        icon_url=icon,
        healthy=True,
        created_at=THEN + timedelta(seconds=after),
        path_app_url="https://sydney.example.com" if used or running else "",
        status=ProxyStatus(status="ok" if running else "unregistered"),
    )


PRIMARY = proxy("deployment", "primary", "Default")
OURS, OTHER = proxy(), proxy("b", "perth")
WANTED = Wanted("sydney", "Sydney", "/1.png")
ADOPTING = WANTED._replace(adopt=True)
NOTHING, PENDING, KNOWN = Recorded(), Recorded("sydney", since=THEN), Recorded("sydney", id="a")
CONFLICT, CLAIMED = NameConflict("sydney", adoptable=True), NameConflict("sydney", claimed=True)
ELSEWHERE = PENDING._replace(here=False)
TIMELESS = WorkspaceProxy(id="a", name="sydney", display_name="Sydney", icon_url="/1.png", healthy=True)


@pytest.mark.parametrize(
    ("recorded", "held", "stored", "step"),
    [
        pytest.param(NOTHING, "", [OTHER], RecordIntent(), id="Nothing"),
        pytest.param(NOTHING, "a", [OURS], Adopt(OURS), id="Unrecorded: the status was lost"),
        pytest.param(
            PENDING, "a", [proxy(used=True)], Adopt(proxy(used=True)), id="Unrecorded: only the ID is missing"
        ),
        pytest.param(
            PENDING._replace(name="old"),
            "a",
            [proxy(name="old", after=-9)],
            Adopt(proxy(name="old", after=-9)),
            id="Unrecorded: the spec has another name by now",
        ),
        pytest.param(
            NOTHING, "b", [OTHER], RecordIntent(), id="Nothing: the token of a proxy of another name proves nothing"
        ),
        pytest.param(NOTHING, "a", [proxy("b")], CONFLICT, id="Taken: our token is of a proxy that is gone"),
        pytest.param(NOTHING, "", [OURS], CONFLICT, id="Taken"),
        pytest.param(
            NOTHING, "", [proxy(name="Sydney")], NameConflict("Sydney", adoptable=True), id="Taken in another case"
        ),
        pytest.param(NOTHING, "", [proxy("")], RecordIntent(), id="Nothing: what has no ID is no proxy"),
        pytest.param(PENDING, "", [OTHER], Create(), id="Pending"),
        pytest.param(PENDING, "z", [OTHER], Create(), id="Pending, with the token of a proxy that is gone"),
        pytest.param(PENDING, "", [OURS], Adopt(OURS), id="Lost"),
        pytest.param(PENDING, "", [proxy(after=0)], Adopt(proxy(after=0)), id="Lost, created at that very moment"),
        pytest.param(PENDING, "", [proxy(after=-1)], Forget(), id="Foreign: created before the name was recorded"),
        pytest.param(PENDING, "", [proxy(after=59)], Adopt(proxy(after=59)), id="Lost, created by a slow coderd"),
        pytest.param(PENDING, "", [proxy(after=60)], Forget(), id="Foreign: created long after the name was recorded"),
        pytest.param(PENDING, "", [proxy(used=True)], Forget(), id="Foreign: its token is in use"),
        pytest.param(PENDING, "", [TIMELESS], Forget(), id="Foreign: coderd does not say when it was created"),
        pytest.param(Recorded("sydney"), "", [OURS], Forget(), id="Foreign: no time was recorded"),
        pytest.param(PENDING._replace(name="old"), "", [OTHER], Forget(), id="Renamed"),
        pytest.param(PENDING._replace(name="old"), "", [OURS], Forget(), id="Renamed, and the new name is taken"),
        pytest.param(
            PENDING._replace(name="old"),
            "",
            [proxy(name="old"), proxy("b")],
            Adopt(proxy(name="old")),
            id="Lost under the name that the spec had before",
        ),
        pytest.param(KNOWN, "a", [OURS, OTHER], Keep(OURS), id="Ready"),
        pytest.param(KNOWN, "a", [proxy(name="old")], Change(proxy(name="old")), id="Drifted: name"),
        pytest.param(KNOWN, "a", [proxy(icon="/2.png")], Change(proxy(icon="/2.png")), id="Drifted: icon"),
        pytest.param(
            KNOWN, "a", [proxy(display_name="S")], Change(proxy(display_name="S")), id="Drifted: display name"
        ),
        pytest.param(
            KNOWN, "a", [proxy(name="old"), proxy("b")], NameConflict("sydney"), id="Drifted, but the name is taken"
        ),
        pytest.param(KNOWN, "", [OURS], Regenerate(OURS), id="Emptied"),
        pytest.param(KNOWN, "b", [OURS, OTHER], Regenerate(OURS), id="Emptied: the token of another proxy"),
        pytest.param(KNOWN, "a", [OTHER], RecordIntent(), id="Deleted"),
        pytest.param(KNOWN, "a", [proxy("b")], CONFLICT, id="Replaced"),
        pytest.param(KNOWN._replace(here=False), "a", [OTHER], Retire(), id="Elsewhere"),
        pytest.param(KNOWN._replace(here=False), "a", [proxy("b")], Retire(), id="Elsewhere, and taken here"),
        pytest.param(ELSEWHERE, "", [OURS], Retire(), id="Elsewhere, and perhaps not made"),
        pytest.param(KNOWN._replace(here=False), "a", [OURS], Keep(OURS), id="the same coderd by another name"),
        pytest.param(Recorded(retiring=frozenset("a")), "", [OURS], Adopt(OURS), id="wanted again while it retires"),
    ],
)
def test_next_step(recorded: Recorded, held: str, stored: list[WorkspaceProxy], step: Step) -> None:
    assert next_step(WANTED, recorded, held, [PRIMARY, *stored], Claims()) == step


@pytest.mark.parametrize(
    ("recorded", "held", "step"),
    [
        pytest.param(NOTHING, "", CLAIMED, id="Taken"),
        pytest.param(NOTHING, "a", CLAIMED, id="Unrecorded: a copy of its token"),
        pytest.param(PENDING, "", Forget(), id="Lost: it is the other one's"),
        pytest.param(Recorded(retiring=frozenset("a")), "", CLAIMED, id="wanted again while it retires"),
        pytest.param(Recorded("sydney", id="z"), "", CLAIMED, id="Replaced"),
    ],
)
@pytest.mark.parametrize("wanted", [WANTED, ADOPTING], ids=["", "adopting"])
@pytest.mark.parametrize(
    "claims", [Claims(ids=frozenset("a")), Claims(names=frozenset({"sydney"}))], ids=["its ID", "its name, earlier"]
)
def test_claimed_proxy_is_not_adopted(
    wanted: Wanted, recorded: Recorded, held: str, step: Step, claims: Claims
) -> None:
    assert next_step(wanted, recorded, held, [PRIMARY, OURS], claims) == step


def test_older_object_keeps_a_shared_id() -> None:
    ids = frozenset("a")
    assert next_step(WANTED, KNOWN, "a", [OURS], Claims(ids=ids)) == Keep(OURS)
    assert next_step(WANTED, KNOWN, "a", [OURS], Claims(ids=ids, older_ids=ids)) == Forget()


@pytest.mark.parametrize("recorded", [NOTHING, Recorded("sydney", id="z")], ids=["Taken", "Replaced"])
def test_annotation_adopts_a_proxy(recorded: Recorded) -> None:
    found = proxy(after=-9, used=True)
    assert next_step(ADOPTING, recorded, "", [PRIMARY, found], Claims()) == Adopt(found, requested=True)


@pytest.mark.parametrize("recorded", [NOTHING, Recorded("sydney", id="z")], ids=["Taken", "Replaced"])
@pytest.mark.parametrize("wanted", [WANTED, ADOPTING], ids=["", "adopting"])
def test_running_proxy_is_not_adopted(wanted: Wanted, recorded: Recorded) -> None:
    blocked = NameConflict("sydney", adoptable=True, in_use=True)
    assert next_step(wanted, recorded, "", [PRIMARY, proxy(running=True)], Claims()) == blocked


def test_running_proxy_with_the_token_of_the_secret_is_adopted() -> None:
    found = proxy(running=True)
    assert next_step(ADOPTING, Recorded("sydney", id="z"), "a", [found], Claims()) == Adopt(found, requested=True)


def test_fields_that_the_spec_does_not_set_are_kept() -> None:
    assert next_step(Wanted("sydney"), KNOWN, "a", [OURS], Claims()) == Keep(OURS)


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize("name", ["primary", "Primary"])
def test_name_of_coder_itself_is_reserved(name: str, adopt: bool) -> None:
    recorded = Recorded(name, since=THEN)
    assert next_step(Wanted(name, adopt=adopt), NOTHING, "", [PRIMARY], Claims()) == NameConflict("primary")
    assert next_step(Wanted(name, adopt=adopt), recorded, "deployment", [PRIMARY], Claims()) == Forget()


@pytest.mark.parametrize(
    ("token", "expected"), [("a:secret", "a"), ("a:", ""), ("a", ""), ("", ""), ("a:b:c", "a"), (":x", "")]
)
def test_proxy_of_a_token(token: str, expected: str) -> None:
    assert proxy_of(token) == expected


IDS = st.sampled_from(["", "a", "b", "c"])
NAMES = st.sampled_from(["sydney", "Sydney", "perth", "old"])
STORED = st.lists(
    st.builds(
        proxy,
        st.sampled_from("abc"),
        NAMES,
        after=st.sampled_from([-1, 1, 60]),
        used=st.booleans(),
        running=st.booleans(),
    ),
    unique_by=(lambda each: each.id, lambda each: each.name.lower()),
)
RECORDED = st.builds(
    Recorded, st.sampled_from(["", "sydney", "old"]), IDS, since=st.sampled_from([None, THEN]), here=st.booleans()
)
CLAIMS = st.builds(
    Claims, st.frozensets(st.sampled_from("abc")), names=st.frozensets(st.sampled_from(["sydney", "old"]))
)


@given(st.booleans(), RECORDED, IDS, STORED, CLAIMS)
def test_any_state_converges_and_changes_no_foreign_proxy(
    adopt: bool, recorded: Recorded, held: str, stored: list[WorkspaceProxy], claims: Claims
) -> None:
    """Take steps until none is left. They change only the recorded proxy and, if no other object claims them, the proxy
    of the token, the one that the record accounts for, and a stopped one of the name with the annotation."""
    mine = {recorded.id} - {""}
    for each in stored:
        stopped = each.status.status != "ok"
        ours = each.id == held or (adopt and stopped and each.name.lower() == "sydney")
        if each.id not in claims.ids and (ours or (not recorded.id and recorded.accounts_for(each))):
            mine.add(each.id)
    steps = []
    wanted = WANTED._replace(adopt=adopt)
    while not isinstance(step := next_step(wanted, recorded, held, stored, claims), Keep | NameConflict):
        steps.append(type(step))
        assert len(steps) < 8, "it does not come to rest"
        match step:
            case Adopt(found) | Regenerate(found) | Change(found):
                assert found.id in mine
                recorded = Recorded(found.name, id=found.id)
                if isinstance(step, Change):
                    stored = [proxy(found.id) if each.id == found.id else each for each in stored]
                elif isinstance(step, Regenerate):
                    held = found.id
            case Retire() | Forget():
                recorded = Recorded()
            case RecordIntent():
                recorded = PENDING
            case Create():
                assert not any(each.name.lower() == "sydney" for each in stored)
                stored, held, mine = [*stored, proxy("new")], "new", {"new"}
                recorded = Recorded("sydney", id="new")
    assert steps.count(Regenerate) <= 1
    assert isinstance(step, NameConflict) or step.proxy.id == held == recorded.id


@given(RECORDED, IDS, STORED, CLAIMS)
def test_ownership_needs_proof_without_the_annotation(
    recorded: Recorded, held: str, stored: list[WorkspaceProxy], claims: Claims
) -> None:
    match next_step(WANTED, recorded, held, stored, claims):
        case Adopt(found, requested):
            assert not requested
            assert not recorded.id
            assert found.id not in claims.ids
            assert found.id == held or recorded.accounts_for(found)


@pytest.mark.parametrize(
    ("bootstrap", "expected"),
    [
        (None, Wanted("object")),
        ({}, Wanted("object")),
        ({"proxyName": "sydney"}, Wanted("sydney")),
        ({"displayName": "Sydney", "icon": "/1.png"}, Wanted("object", "Sydney", "/1.png")),
    ],
)
def test_wanted_by(bootstrap: dict[str, str] | None, expected: Wanted) -> None:
    where = {"coderURL": "https://coder.example.com", "credentialsSecretRef": {"name": "token"}}
    spec = {} if bootstrap is None else {"bootstrap": where | bootstrap}
    made = msgspec.convert({"metadata": {"name": "object"}, "spec": spec}, CoderWorkspaceProxy)
    assert wanted_by(made) == expected
    assert wanted_by(made, adopt=True) == expected._replace(adopt=True)


def test_with_defaults() -> None:
    assert with_defaults(Wanted("sydney"), OURS) == WANTED
    assert with_defaults(Wanted("sydney", "Down under", "/2.png"), OURS) == Wanted("sydney", "Down under", "/2.png")
