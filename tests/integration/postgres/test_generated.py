"""Generated columns and replica identities: what is planned lets writers write, what is refused would not.

The server itself is the judge: after each plan an UPDATE and a DELETE run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import psycopg
import pytest

from headrace.capture import Offset
from headrace.catalog.needs import ColumnNeed, TableNeeds
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.connection import Connection, execute
from headrace.postgres.coverage import TableCoverage, table_coverage
from headrace.postgres.ddl_plan import SetupPlan, execute_plan
from headrace.postgres.identity import identity_statements, read_identities, stronger_identity
from headrace.postgres.publication import NOTHING_CHANGED, read_publication
from headrace.postgres.publication_filters import PublicationFilter
from headrace.postgres.quoting import literal
from headrace.postgres.setup import Policy, plan_setup
from integration.capture.following import Source, take
from support.servers import servers_by_version, skip_without
from support.slots import ensure_slot

T = TableName("public", "t")
REQUIRED: dict[TableName, Sequence[str]] = {T: ("user_id",)}
SENDING = " WITH (publish_generated_columns = stored)"
ON_18 = pytest.mark.parametrize("server", [18], indirect=True, ids="PostgreSQL {}".format)
WRITES = ("UPDATE t SET note = 'b'", "UPDATE t SET user_id = 8", "DELETE FROM t")


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[int], EmbeddedPostgres]]:
    """The server of a major version, started once."""
    with servers_by_version() as server:
        yield server


@pytest.fixture(params=[18, 15], ids="PostgreSQL {}".format)
def server(request: pytest.FixtureRequest, servers: Callable[[int], EmbeddedPostgres]) -> EmbeddedPostgres:
    skip_without(request.param)
    return servers(request.param)


@pytest.fixture
def rules(connection: Connection) -> bool:
    """Whether this server has the rule on generated columns."""
    return connection.info.server_version >= 180000


def planned(connection: Connection, policy: Policy = "auto", *, managed: bool = True) -> SetupPlan:
    return plan_setup(
        read_identities(connection, [T]),
        REQUIRED,
        publication="p",
        existing=read_publication(connection, "p"),
        slot=None,
        policy=policy,
        version=connection.info.server_version,
        managed=managed,
    )


def covered(connection: Connection) -> TableCoverage:
    existing = read_publication(connection, "p")
    facts = read_identities(connection, [T])
    [report] = table_coverage(facts, REQUIRED, publication="p", existing=existing, slot=None)
    return report


def own_publication(connection: Connection, clause: str = "") -> None:
    """As a Headrace of before made it, or one on a server of before."""
    execute(connection, f"CREATE PUBLICATION p {clause}")
    execute(connection, f"COMMENT ON PUBLICATION p IS {literal(NOTHING_CHANGED.comment())}")


def table(connection: Connection, kind: str, *, user: str = "NOT NULL", identity: str = "DEFAULT") -> None:
    made = f", g int NOT NULL GENERATED ALWAYS AS (id * 2) {kind}"
    key = "id, g" if identity == "KEY" else "id"
    execute(connection, f"CREATE TABLE t (id int, user_id int {user}, note text{made}, PRIMARY KEY ({key}))")
    identity = "DEFAULT" if identity == "KEY" else identity
    if identity == "INDEX":
        execute(connection, "CREATE UNIQUE INDEX with_g ON t (id, g)")
        identity = "USING INDEX with_g"
    execute(connection, f"ALTER TABLE t REPLICA IDENTITY {identity}")


def state(connection: Connection) -> list[tuple[object, ...]]:
    """What a plan may alter."""
    return execute(
        connection,
        "SELECT relreplident::text, (SELECT count(*)::int FROM pg_index), "
        "(SELECT json_agg(to_jsonb(p) ORDER BY p.pubname)::text FROM pg_publication p), "
        "(SELECT count(*)::int FROM pg_publication_rel) FROM pg_class WHERE relname = 't'",
    )


def written(connection: Connection) -> bool:
    """Whether the application can write."""
    execute(connection, "INSERT INTO t (id, user_id, note) VALUES (1, 7, 'a')")
    try:
        for statement in WRITES:
            execute(connection, statement)
    except psycopg.errors.InvalidColumnReference:
        execute(connection, "TRUNCATE t")
        return False
    return True


@dataclass(frozen=True)
class Case:
    """A table and the publications that are there."""

    kind: str
    identity: str
    user: str
    publications: str

    def make(self, connection: Connection) -> None:
        table(connection, self.kind, user=self.user, identity=self.identity)
        match self.publications:
            case "own of before":
                own_publication(connection)
            case "own of before with the table":
                own_publication(connection, "FOR TABLE t")
            case "foreign":
                execute(connection, "CREATE PUBLICATION p")
            case "foreign with all tables":
                execute(connection, "CREATE PUBLICATION p FOR ALL TABLES")
            case "foreign, sending":
                execute(connection, f"CREATE PUBLICATION p{SENDING}")
            case "another with the schema":
                execute(connection, "CREATE PUBLICATION another FOR TABLES IN SCHEMA public")
            case "another of inserts":
                execute(connection, "CREATE PUBLICATION another FOR TABLE t WITH (publish = 'insert')")

    def clear(self, connection: Connection) -> None:
        execute(connection, "DROP TABLE IF EXISTS t")
        for name in ("p", "another"):
            execute(connection, f"DROP PUBLICATION IF EXISTS {name}")


PUBLICATIONS = (
    "none",
    "own of before",
    "own of before with the table",
    "foreign",
    "foreign with all tables",
    "foreign, sending",
    "another with the schema",
    "another of inserts",
)


SHAPES = [*product(["STORED", "VIRTUAL"], ["DEFAULT", "FULL"]), ("STORED", "INDEX"), ("STORED", "KEY")]


@pytest.mark.long
@pytest.mark.parametrize(
    ("server", "kind", "identity"),
    [*((18, *shape) for shape in SHAPES), (15, "STORED", "FULL"), (15, "STORED", "INDEX")],
    indirect=["server"],
)
def test_a_plan_lets_writers_write_and_only_what_would_not_is_refused(
    connection: Connection, rules: bool, kind: str, identity: str
) -> None:
    joins: tuple[tuple[str, Policy], ...] = (("NOT NULL", "auto"), ("NULL", "auto"), ("NULL", "ignore"))
    for (user, policy), publications in product(joins, PUBLICATIONS):
        case = Case(kind, identity, user, publications)
        if rules or "sending" not in publications:
            case.make(connection)
            _judged(connection, case, policy)
            case.clear(connection)


def _judged(connection: Connection, case: Case, policy: Policy) -> None:
    before, plan = state(connection), planned(connection, policy)
    if not plan.refused:
        execute_plan(plan, connection)
        assert written(connection), (case, policy)
        assert planned(connection, policy).steps == ()
        assert policy == "ignore" or covered(connection).complete, case
        return
    assert {error.kind for error in plan.refused} == {Kind.REPLICA_IDENTITY}, (case, plan.refused)
    with pytest.raises(HeadraceError):
        execute_plan(plan, connection)
    assert state(connection) == before
    [facts] = read_identities(connection, [T])
    change = stronger_identity(facts, REQUIRED[T])
    report = covered(connection)
    assert (report.manageable, report.complete) == (False, False), case
    with connection.transaction(force_rollback=True):
        for sql in identity_statements(change) if change and policy == "auto" else ():
            execute(connection, sql.replace(" CONCURRENTLY", ""))
        for step in plan.steps:
            for sql in step.statements:
                execute(connection, sql)
        execute(connection, "INSERT INTO t (id, user_id) VALUES (1, 7)")
        with pytest.raises(psycopg.errors.InvalidColumnReference, match="unpublished generated columns"):
            execute(connection, "UPDATE t SET user_id = 8")
    mends = [sql for sql in report.remedy if "ADD TABLE" not in sql]
    if not mends:
        return  # only another identity does
    for sql in mends:
        execute(connection, sql)
    plan = planned(connection)
    assert not plan.refused, (case, plan.refused)
    execute_plan(plan, connection)
    assert written(connection), case
    assert covered(connection).complete, case


def test_without_the_plan_the_writers_do_fail(connection: Connection, rules: bool) -> None:
    """If this fails on a new version, the refusals can go."""
    table(connection, "STORED", identity="FULL")
    execute(connection, "CREATE PUBLICATION p FOR TABLE t")
    assert written(connection) is not rules
    [facts] = read_identities(connection, [T])
    assert facts.generated == {"g"}
    assert (facts.stored, facts.silent) == ((frozenset("g"), ("p",)) if rules else (frozenset(), ()))


def test_an_old_publication_of_ours_is_told_to_send(connection: Connection, rules: bool) -> None:
    """As after an upgrade of the server to 18: until then the application's writers fail."""
    table(connection, "STORED", identity="FULL")
    own_publication(connection, "FOR TABLE t")
    assert written(connection) is not rules
    report = covered(connection)
    assert report.manageable
    told = ('ALTER PUBLICATION "p" SET (publish_generated_columns = stored)',)
    assert report.remedy == (told if rules else ())
    assert ["does not send the generated g" in what for what in report.hidden] == [True] * rules
    plan = planned(connection, "check")
    assert [step.statements for step in plan.steps] == [told] * rules
    execute_plan(plan, connection)
    assert written(connection)
    left_alone = planned(connection, managed=False)
    assert (left_alone.steps, left_alone.refused) == ((), ())


@ON_18
def test_what_a_person_is_told_to_run_comes_in_an_order_that_breaks_nobody(connection: Connection) -> None:
    table(connection, "STORED", user="NULL")
    own_publication(connection, "FOR TABLE t")
    [refused] = planned(connection, "check").outstanding
    first, second = refused.sql
    assert f"or run: {first} {second}" == f"{refused.remedy[refused.remedy.index('or run: ') :]};"
    execute(connection, first)
    assert written(connection)
    execute(connection, second)
    assert written(connection)
    assert planned(connection, "check") == SetupPlan(())


def test_a_publication_that_we_may_not_alter_is_left_alone(connection: Connection, rules: bool) -> None:
    table(connection, "STORED", identity="FULL")
    own_publication(connection, "FOR TABLE t")
    refused = planned(connection, managed=False).refused
    assert [error.kind for error in refused] == [Kind.REPLICA_IDENTITY] * rules
    for error in refused:
        assert 'publication "p" does not send its generated column g' in str(error)
        assert 'ALTER PUBLICATION "p" SET (publish_generated_columns = stored);' in str(error)
        assert "or give it a replica identity over a unique index of ordinary columns" in str(error)
        assert error.sql == ('ALTER PUBLICATION "p" SET (publish_generated_columns = stored);',)


def test_each_partition_is_judged_by_its_ancestors_publications(connection: Connection, rules: bool) -> None:
    execute(
        connection,
        "CREATE TABLE t (id int PRIMARY KEY, user_id int, g int GENERATED ALWAYS AS (id * 2) STORED) "
        "PARTITION BY RANGE (id)",
    )
    execute(connection, "CREATE TABLE leaf PARTITION OF t DEFAULT")
    execute(connection, "CREATE PUBLICATION another FOR TABLE t")
    [facts] = read_identities(connection, [T])
    assert (facts.table.name, facts.silent) == ("leaf", ("another",) if rules else ())
    plan = planned(connection)
    assert [error.kind for error in plan.refused] == [Kind.REPLICA_IDENTITY] * rules
    if rules:
        execute(connection, "ALTER PUBLICATION another SET (publish_generated_columns = stored)")
    execute_plan(planned(connection), connection)
    execute(connection, "INSERT INTO t (id, user_id) VALUES (1, 1)")
    execute(connection, "UPDATE t SET user_id = 2")


@ON_18
def test_a_column_list_says_itself_what_is_sent(connection: Connection) -> None:
    table(connection, "STORED", identity="INDEX")
    execute(connection, "CREATE PUBLICATION another FOR TABLE t (id, user_id, note, g)")
    [facts] = read_identities(connection, [T])
    assert facts.silent == ()
    execute_plan(planned(connection, "ignore"), connection)
    assert written(connection)


@pytest.mark.parametrize(
    ("server", "kind"), [(18, "STORED"), (18, "VIRTUAL"), (15, "STORED")], indirect=["server"]
)
def test_a_part_of_a_table_may_hold_a_stored_one_where_it_can_be_sent(
    url: str, connection: Connection, rules: bool, kind: str
) -> None:
    table(connection, kind)
    part = {T: PublicationFilter(frozenset({"id", "g"}))}
    if kind == "STORED" and rules:
        ensure_slot(url, slot="s", publication="p", tables=[T], create=True, selections=part)
        assert written(connection)
        return
    with pytest.raises(HeadraceError, match="computes g, which this server never sends") as caught:
        ensure_slot(url, slot="s", publication="p", tables=[T], create=True, selections=part)
    assert caught.value.kind is Kind.CONFIG
    assert read_publication(connection, "p") is None


@pytest.mark.parametrize("create", [True, False])
def test_a_source_by_itself_refuses_the_same(
    url: str, connection: Connection, rules: bool, create: bool
) -> None:
    table(connection, "STORED", identity="FULL")
    own_publication(connection)
    if create:
        ensure_slot(url, slot="s", publication="p", tables=[T], create=True)
        assert written(connection)
    else:
        with pytest.raises(HeadraceError):
            ensure_slot(url, slot="s", publication="p", tables=[T], create=False)
    if not rules:
        return
    execute(connection, "ALTER TABLE t ADD v int GENERATED ALWAYS AS (id * 3) VIRTUAL")
    before = state(connection)
    with pytest.raises(HeadraceError, match="no publication sends its virtual generated column v") as caught:
        ensure_slot(url, slot="s2", publication="q", tables=[T], create=True)
    assert caught.value.kind is Kind.REPLICA_IDENTITY
    assert state(connection) == before
    execute(connection, "CREATE UNIQUE INDEX ordinary ON t (id)")
    execute(connection, "ALTER TABLE t REPLICA IDENTITY USING INDEX ordinary")
    ensure_slot(url, slot="s2", publication="q", tables=[T], create=True)
    assert written(connection)


@ON_18
def test_a_table_without_any_key_is_told_to_get_one(url: str, connection: Connection) -> None:
    execute(connection, "CREATE TABLE t (id int, user_id int, g int GENERATED ALWAYS AS (id) VIRTUAL)")
    for refuse in (
        lambda: execute_plan(planned(connection), connection),
        lambda: ensure_slot(url, slot="s", publication="p", tables=[T], create=True),
    ):
        with pytest.raises(HeadraceError, match=r"no publication sends.*of ordinary columns") as caught:
            refuse()
        assert caught.value.kind is Kind.REPLICA_IDENTITY
    assert read_publication(connection, "p") is None


def test_the_log_carries_a_stored_key_and_documents_may_need_it(
    url: str, connection: Connection, rules: bool
) -> None:
    """From 18 on a generated key is as good as another; before, the report says that it is not there."""
    execute(
        connection, "CREATE TABLE t (a int, note text, g int GENERATED ALWAYS AS (a * 2) STORED PRIMARY KEY)"
    )
    required = {T: ("g",)}
    facts = read_identities(connection, [T])

    def plan() -> SetupPlan:
        return plan_setup(facts, required, publication="headrace", policy="check", slot=None, existing=None,
                          version=connection.info.server_version)  # fmt: skip

    execute_plan(plan(), connection)
    existing = read_publication(connection, "headrace")
    [report] = table_coverage(facts, required, publication="headrace", existing=existing, slot=None)
    assert report.complete is rules
    assert report.covered == (("g",) if rules else ())
    if not rules:
        assert report.why_not == "the server computes g: the log does not carry it"
        return
    source = Source(url)
    try:
        start: Offset = source.create_slot()
        oid = source.number("SELECT 't'::regclass::oid::bigint")
        names = {T: TableNeeds(oid, {"g": ColumnNeed(None, -1, "integer", 0, carried=True)})}
        stream = source.stream(start, documents=names)
        source.sql("INSERT INTO t VALUES (1, 'x')", "UPDATE t SET a = 2", "DELETE FROM t")
        changes, _ = take(stream, start, 3)
        assert [(change.before or {}).get("g") for change in changes] == [None, "2", "4"]
        assert changes[1].after == {"a": "2", "note": "x", "g": "4"}
    finally:
        source.close()
