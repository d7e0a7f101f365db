from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Kind
from headrace.model.names import TableName
from headrace.postgres.ddl_plan import render
from headrace.postgres.identity import (
    IdentityFacts,
    UniqueIndex,
    change_problem,
    identity_after,
    index_name,
    stronger_identity,
)
from headrace.postgres.publication import (
    NOTHING_CHANGED,
    PublicationFacts,
    RecordedIdentity,
    SetupRecord,
    parse_record,
)
from headrace.postgres.quoting import identifier
from headrace.postgres.setup import plan_setup
from headrace.postgres.slot import SlotFacts

T = TableName("public", 'Or"ders')
PLAIN = IdentityFacts(
    table=T,
    root=T,
    kind="r",
    logged=True,
    current=RecordedIdentity("default"),
    identity_columns=frozenset({"id"}),
    columns=("id", "user_id", "note"),
    not_null=frozenset({"id", "user_id"}),
    unique_indexes=(UniqueIndex("pk", ("id",), primary=True),),
)


def test_what_is_covered_is_left_alone() -> None:
    assert stronger_identity(PLAIN, ["id"]) is None
    full = replace(PLAIN, current=RecordedIdentity("full"), identity_columns=frozenset(PLAIN.columns))
    assert stronger_identity(full, ["note"]) is None


def test_the_cheapest_that_covers_is_chosen() -> None:
    made = stronger_identity(PLAIN, ["user_id"])
    assert made is not None
    assert (made.index_columns, made.identity.kind) == (("id", "user_id"), "index")
    ready = replace(PLAIN, unique_indexes=(*PLAIN.unique_indexes, UniqueIndex("mine", ("user_id", "id"))))
    used = stronger_identity(ready, ["user_id"])
    assert used is not None
    assert (used.index_columns, used.identity) == ((), RecordedIdentity("index", "mine"))
    full = stronger_identity(PLAIN, ["note"])
    assert full is not None
    assert full.identity == RecordedIdentity("full")


def test_a_larger_index_is_better_than_the_whole_row() -> None:
    """The least of them, and none with a generated column: no publication need send that."""
    keyless = replace(
        PLAIN,
        current=RecordedIdentity("nothing"),
        identity_columns=frozenset(),
        columns=(*PLAIN.columns, "g"),
        not_null=PLAIN.not_null | {"g"},
        generated=frozenset("g"),
        unique_indexes=(
            UniqueIndex("null", ("user_id", "note")),
            UniqueIndex("made", ("user_id", "g")),
            UniqueIndex("both", ("user_id", "id")),
        ),
    )
    for required in ([], ["user_id"]):
        change = stronger_identity(keyless, required)
        assert change is not None
        assert (change.index_columns, change.identity) == ((), RecordedIdentity("index", "both"))
        assert identity_after(keyless, change) == {"id", "user_id"}
    narrow = replace(keyless, column_lists=(("p", frozenset({"user_id"})),))
    change = stronger_identity(narrow, ["user_id"])
    assert change is not None
    assert change_problem(narrow, change) is not None, "the list must hold all of the index"
    full = stronger_identity(keyless, ["note"])
    assert full is not None
    assert full.identity == RecordedIdentity("full")


@pytest.mark.parametrize("version", [150000, 170000, 180000])
def test_our_publication_sends_stored_columns_where_it_can(version: int) -> None:
    plan = plan_setup([PLAIN], {}, publication="p", existing=None, slot=None, policy="auto", version=version)
    create = plan.steps[0]
    assert ("publish_generated_columns = stored" in create.sql) is (version >= 180000)
    assert ("sends stored generated columns" in create.why) is (version >= 180000)
    plan = plan_setup([PLAIN], {}, publication="p", existing=None, slot=None, policy="auto", version=version,
                      managed=False)  # fmt: skip
    assert ("publish_generated_columns = stored" in str(plan.refused[0])) is (version >= 180000)


def test_a_policy_that_only_checks_proposes_nothing_that_breaks_writers() -> None:
    facts = replace(PLAIN, column_lists=(("p", frozenset({"id"})),))
    plan = plan_setup(
        [facts], {T: ["note"]}, publication="p", existing=None, slot=None, policy="check", version=150000
    )
    assert plan.proposed == ()
    assert [error.kind for error in plan.refused] == [Kind.REPLICA_IDENTITY]
    assert "REPLICA IDENTITY FULL" not in str(plan.refused[0])


@given(
    required=st.sets(st.sampled_from(PLAIN.columns)),
    identity=st.sampled_from(["default", "nothing", "index"]),
    not_null=st.sets(st.sampled_from(PLAIN.columns)),
)
def test_an_identity_is_only_ever_strengthened(required: set[str], identity: str, not_null: set[str]) -> None:
    carried = {"default": {"id"}, "nothing": set(), "index": {"note"}}[identity]
    current = RecordedIdentity(identity, "by_note" if identity == "index" else None)  # type: ignore[arg-type]
    facts = replace(
        PLAIN, current=current, identity_columns=frozenset(carried), not_null=frozenset({"id"} | not_null)
    )
    change = stronger_identity(facts, required)
    if change is None:
        assert required | {"id"} <= carried
    elif change.index_columns:
        assert required | carried | {"id"} == set(change.index_columns)
        assert set(change.index_columns) <= facts.not_null
    elif change.identity.kind == "index":
        assert (change.identity.index, required | carried | {"id"}) == ("pk", {"id"})
    else:
        assert change.identity == RecordedIdentity("full")


def test_a_column_list_forbids_what_it_does_not_hold() -> None:
    facts = replace(PLAIN, column_lists=(("p", frozenset({"id", "user_id"})),))
    index, full = stronger_identity(facts, ["user_id"]), stronger_identity(facts, ["note"])
    assert index is not None
    assert full is not None
    assert change_problem(facts, index) is None
    problem = change_problem(facts, full)
    assert problem is not None
    assert problem.kind is Kind.REPLICA_IDENTITY


@pytest.mark.parametrize("name", ["t", "x" * 63, "ß" * 31])
def test_an_index_name_fits_and_differs(name: str) -> None:
    first = index_name(TableName("a", name), ("id",))
    assert len(first.encode()) <= 63
    assert first != index_name(TableName("b", name), ("id",))


def test_a_record_survives_the_comment() -> None:
    record = SetupRecord(
        {T: (RecordedIdentity("index", 'o"ld'), RecordedIdentity("full"))}, frozenset({TableName("s", "i")})
    )
    assert parse_record(record.comment()) == record
    assert parse_record("made by headrace, then edited {") == NOTHING_CHANGED
    assert parse_record("my own") is None
    assert parse_record(None) is None


def test_the_whole_plan_as_sql() -> None:
    plan = plan_setup(
        [PLAIN], {T: ["user_id"]}, publication='P"', existing=None, slot=None, policy="auto", version=170000
    )
    name = identifier(index_name(T, ("id", "user_id")))
    create = (
        """CREATE PUBLICATION "P\""" WITH (publish = 'insert, update, delete, truncate', """
        "publish_via_partition_root = false);"
    )
    script = [line for line in render(plan.steps).splitlines() if not line.startswith(("--", "COMMENT"))]
    assert script == [
        "BEGIN;",
        create,
        "COMMIT;",
        "",
        f'DROP INDEX CONCURRENTLY IF EXISTS "public".{name};',
        f'CREATE UNIQUE INDEX CONCURRENTLY {name} ON "public"."Or""ders" ("id", "user_id");',
        "",
        "BEGIN;",
        f'ALTER TABLE "public"."Or""ders" REPLICA IDENTITY USING INDEX {name};',
        "COMMIT;",
        "",
        'ALTER PUBLICATION "P""" ADD TABLE "public"."Or""ders";',
    ]


def test_a_living_slot_makes_the_addition_wait_for_writers() -> None:
    every = frozenset({"insert", "update", "delete", "truncate"})
    existing = PublicationFacts(
        "p", operations=every, via_root=False, tables={}, members=frozenset(), record=None
    )
    slot = SlotFacts(
        "s",
        "pgoutput",
        "logical",
        "d",
        two_phase=False,
        temporary=False,
        active_pid=None,
        confirmed_flush=1,
        restart=1,
        wal_status="reserved",
        safe_wal_size=None,
        current=0,
    )
    plan = plan_setup(
        [PLAIN], {T: ["id"]}, publication="p", existing=existing, slot=slot, policy="check", version=180000
    )
    [step] = plan.steps
    assert step.statements[0] == 'LOCK TABLE "public"."Or""ders" IN SHARE ROW EXCLUSIVE MODE'
    assert slot.lag == 0, "a lag is never negative"
