"""What to do next about a registration follows from what the status says, what we hold and what coderd has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.coderd.types import WorkspaceProxy
from coder_k8s.controllers.workspaceproxy.registration import (
    Adopt,
    Begin,
    Blocked,
    Change,
    Create,
    Keep,
    Leave,
    Recorded,
    Regenerate,
    Step,
    Wanted,
    next_step,
    proxy_of,
)


def proxy(
    proxy_id: str = "a", name: str = "sydney", display_name: str = "Sydney", icon: str = "/1.png"
) -> WorkspaceProxy:
    return WorkspaceProxy(id=proxy_id, name=name, display_name=display_name, icon_url=icon, healthy=True)


PRIMARY = proxy("deployment", "primary", "Default")
OURS, OTHER = proxy(), proxy("b", "perth")
WANTED = Wanted("sydney", "Sydney", "/1.png")
NOTHING, BEGUN, KNOWN = Recorded(), Recorded(begun=True), Recorded(begun=True, id="a")


@pytest.mark.parametrize(
    ("recorded", "held", "stored", "step"),
    [
        pytest.param(NOTHING, "", [OTHER], Begin(), id="Nothing"),
        pytest.param(NOTHING, "a", [OURS], Adopt(OURS), id="Unrecorded: the status was lost"),
        pytest.param(BEGUN, "a", [OURS], Adopt(OURS), id="Unrecorded: only the ID is missing"),
        pytest.param(NOTHING, "a", [proxy("b")], Blocked("sydney"), id="Taken: our token is of a proxy that is gone"),
        pytest.param(NOTHING, "", [OURS], Blocked("sydney"), id="Taken"),
        pytest.param(NOTHING, "", [proxy(name="Sydney")], Blocked("Sydney"), id="Taken in another case"),
        pytest.param(BEGUN, "", [OTHER], Create(), id="Begun"),
        pytest.param(BEGUN, "z", [OTHER], Create(), id="Begun, with the token of a proxy that is gone"),
        pytest.param(BEGUN, "", [OURS], Adopt(OURS), id="Lost"),
        pytest.param(KNOWN, "a", [OURS, OTHER], Keep(OURS), id="Ready"),
        pytest.param(KNOWN, "a", [proxy(name="old")], Change(proxy(name="old")), id="Drifted: name"),
        pytest.param(KNOWN, "a", [proxy(icon="/2.png")], Change(proxy(icon="/2.png")), id="Drifted: icon"),
        pytest.param(
            KNOWN, "a", [proxy(display_name="S")], Change(proxy(display_name="S")), id="Drifted: display name"
        ),
        pytest.param(
            KNOWN, "a", [proxy(name="old"), proxy("b")], Blocked("sydney"), id="Drifted, but the name is taken"
        ),
        pytest.param(KNOWN, "", [OURS], Regenerate(OURS), id="Emptied"),
        pytest.param(KNOWN, "b", [OURS, OTHER], Regenerate(OURS), id="Emptied: the token of another proxy"),
        pytest.param(KNOWN, "a", [OTHER], Begin(), id="Deleted"),
        pytest.param(KNOWN, "a", [proxy("b")], Blocked("sydney"), id="Replaced"),
        pytest.param(KNOWN._replace(here=False), "a", [OTHER], Leave(), id="Elsewhere"),
        pytest.param(KNOWN._replace(here=False), "a", [proxy("b")], Leave(), id="Elsewhere, and taken here"),
        pytest.param(BEGUN._replace(here=False), "", [OURS], Leave(), id="Elsewhere, and perhaps not made"),
        pytest.param(KNOWN._replace(here=False), "a", [OURS], Keep(OURS), id="the same coderd by another name"),
        pytest.param(Recorded(retiring=frozenset("a")), "", [OURS], Adopt(OURS), id="wanted again while it retires"),
    ],
)
def test_next_step(recorded: Recorded, held: str, stored: list[WorkspaceProxy], step: Step) -> None:
    assert next_step(WANTED, recorded, held, [PRIMARY, *stored]) == step


def test_what_the_spec_leaves_out_is_for_people_in_coder_to_choose() -> None:
    assert next_step(Wanted("sydney"), KNOWN, "a", [OURS]) == Keep(OURS)


def test_an_object_cannot_take_the_name_of_coder_itself() -> None:
    assert next_step(Wanted("primary"), NOTHING, "", [PRIMARY]) == Blocked("primary")


@pytest.mark.parametrize(
    ("token", "expected"), [("a:secret", "a"), ("a:", ""), ("a", ""), ("", ""), ("a:b:c", "a"), (":x", "")]
)
def test_whose_a_token_is(token: str, expected: str) -> None:
    assert proxy_of(token) == expected


IDS = st.sampled_from(["", "a", "b", "c"])
STORED = st.lists(
    st.builds(proxy, st.sampled_from("abc"), st.sampled_from(["sydney", "Sydney", "perth", "old"])),
    unique_by=(lambda each: each.id, lambda each: each.name.lower()),
)


@given(st.booleans(), IDS, st.booleans(), IDS, STORED)
def test_any_state_comes_to_rest_and_takes_nothing_from_others(
    begun: bool, recorded_id: str, here: bool, held: str, stored: list[WorkspaceProxy]
) -> None:
    """Each step is played; a proxy that is neither recorded, nor held, nor begun by its name, is never touched."""
    recorded = Recorded(begun=begun or bool(recorded_id), id=recorded_id, here=here)
    mine = {recorded_id, held} - {""}
    if recorded.begun and here:
        mine |= {each.id for each in stored if each.name.lower() == "sydney" and not recorded_id}
    steps = []
    while not isinstance(step := next_step(WANTED, recorded, held, stored), Keep | Blocked):
        steps.append(type(step))
        assert len(steps) < 8, "it does not come to rest"
        match step:
            case Adopt(found) | Regenerate(found) | Change(found):
                assert found.id in mine
                recorded = Recorded(begun=True, id=found.id)
                if isinstance(step, Change):
                    stored = [proxy(found.id) if each.id == found.id else each for each in stored]
                elif isinstance(step, Regenerate):
                    held = found.id
            case Leave() | Begin():
                recorded = Recorded(begun=isinstance(step, Begin))
            case Create():
                stored, held, mine = [*stored, proxy("new")], "new", {"new"}
    assert steps.count(Regenerate) <= 1
    assert isinstance(step, Blocked) or step.proxy.id == held == recorded.id
