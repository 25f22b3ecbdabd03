"""Which daemons can run a job, compared with Coder's documentation and with PostgreSQL, which decides it in coderd."""

import json
from collections.abc import AsyncIterator

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coder_k8s.controllers.tags import NOBODY, OWNER, SCOPE, UNTAGGED, covers, is_user_scoped, key_tags, own_tags
from coder_k8s.dev.postgres import Postgres
from tests.support.databases import create_database

JO, AL = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
ENV, DATACENTER = {"env": "on-prem"}, {"dc": "chicago"}


def organization(**tags: str) -> dict[str, str]:
    return {**tags, **UNTAGGED}


def user(owner: str, **tags: str) -> dict[str, str]:
    return {**tags, SCOPE: "user", OWNER: owner}


@pytest.mark.parametrize(
    ("daemon", "job", "expected"),
    [
        # Untagged jobs run only on untagged daemons, and these run nothing else.
        (organization(), organization(), True),
        (organization(**ENV), organization(), False),
        (organization(**ENV, **DATACENTER), organization(), False),
        (organization(), organization(**ENV), False),
        # A daemon needs every tag of the job, and may have more.
        (organization(**ENV), organization(**ENV), True),
        (organization(**ENV, **DATACENTER), organization(**ENV), True),
        (organization(**ENV, **DATACENTER), organization(**ENV, **DATACENTER), True),
        (organization(**ENV), organization(**ENV, **DATACENTER), False),
        (organization(env="on-prem", dc="new_york"), organization(**ENV, **DATACENTER), False),
        (organization(env="On-Prem"), organization(**ENV), False),
        (organization(ENV="on-prem"), organization(**ENV), False),
        # Jobs of a user run only on daemons of this user, tagged or not.
        (user(JO), user(JO), True),
        (user(JO, **ENV), user(JO, **ENV), True),
        (user(JO, **ENV), user(JO), True),
        (user(JO, **ENV, **DATACENTER), user(JO, **ENV), True),
        (user(JO), user(JO, **ENV), False),
        (user(JO), user(AL), False),
        (user(JO, **ENV), user(AL, **ENV), False),
        (organization(), user(JO), False),
        (organization(**ENV), user(JO, **ENV), False),
        (user(JO), organization(), False),
        (user(JO, **ENV), organization(**ENV), False),
        # Jobs of older versions may lack a tag that coderd adds now.
        (organization(), {}, True),
        (organization(**ENV), {SCOPE: "organization"}, True),
        ({}, {}, True),
    ],
)
def test_which_daemon_covers_a_job(daemon: dict[str, str], job: dict[str, str], expected: bool) -> None:
    assert covers(daemon, job) is expected


@pytest.mark.parametrize(
    ("key", "daemon"),
    [
        ({}, organization()),
        ({"env": "on-prem"}, organization(**ENV)),
        ({"env": ""}, organization()),
        ({"env": "on-prem", "dc": ""}, organization(**ENV)),
        ({"scope": "organization", "owner": "jo"}, organization()),
        ({"scope": "galaxy"}, organization()),
        ({"scope": "user", "env": "on-prem"}, user(NOBODY, **ENV)),
    ],
)
def test_tags_of_the_daemons_of_a_key(key: dict[str, str], daemon: dict[str, str]) -> None:
    assert key_tags(key) == daemon


def test_tags_that_a_user_set() -> None:
    assert own_tags(organization(**ENV)) == ENV
    assert own_tags(user(JO, **DATACENTER)) == DATACENTER
    assert is_user_scoped(user(JO))
    assert not is_user_scoped(organization())


TAGS = st.dictionaries(
    st.sampled_from(["scope", "owner", "env", "dc", "Env", ""]),
    st.sampled_from(["organization", "user", "", "a", "A", "ä", JO]),
)
PAIRS = st.tuples(TAGS, TAGS) | TAGS.map(lambda tags: (tags, organization())) | TAGS.map(lambda tags: (tags, tags))
PAIRS = PAIRS | st.tuples(TAGS, TAGS).map(lambda pair: ({**pair[0], **pair[1]}, pair[1]))

ORACLE = """
CREATE FUNCTION serves(daemon jsonb, job jsonb) RETURNS boolean IMMUTABLE LANGUAGE sql AS $$
    SELECT (job <> jsonb_build_object('scope', 'organization', 'owner', '') AND daemon @> job) OR daemon = job
$$
"""


@pytest.fixture
async def oracle(postgres: Postgres) -> AsyncIterator[asyncpg.Connection]:
    """A database whose function `serves` decides by PostgreSQL's own comparison of JSON objects."""
    connection = await asyncpg.connect((await create_database(postgres, "template0")).url)
    try:
        await connection.execute(ORACLE)
        yield connection
    finally:
        await connection.close()


async def test_postgresql_decides_the_same(oracle: asyncpg.Connection) -> None:
    await compare(oracle, "serves")


async def compare(connection: asyncpg.Connection, function: str, cast: str = "jsonb") -> None:
    """Compare `covers` with a function in a database, in one query per batch of pairs."""
    batches: list[list[tuple[dict[str, str], dict[str, str]]]] = []

    @settings(max_examples=60)
    @given(st.lists(PAIRS, min_size=1, max_size=40))
    def collect(pairs: list[tuple[dict[str, str], dict[str, str]]]) -> None:
        batches.append(pairs)

    collect()
    pairs = [pair for batch in batches for pair in batch]
    arguments = [[json.dumps(pair[side]) for pair in pairs] for side in (0, 1)]
    rows = await connection.fetch(
        f"SELECT {function}(daemon::{cast}, job::{cast}) AS expected"  # noqa: S608 - no user input
        " FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS pair(daemon, job, place) ORDER BY place",
        *arguments,
    )
    wrong = [pair for pair, row in zip(pairs, rows, strict=True) if covers(*pair) is not row["expected"]]
    assert wrong == []
    assert len({row["expected"] for row in rows}) == 2
