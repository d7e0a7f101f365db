"""Publication and replica identities on a real server, judged by what the log then carries."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.pgoutput.frames import Frames
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.coverage import TableCoverage, table_coverage
from headrace.postgres.ddl_plan import SetupPlan, execute_plan, render
from headrace.postgres.identity import read_identities
from headrace.postgres.publication import PARTS_SINCE, read_publication
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.session import ReadSession
from headrace.postgres.setup import Policy, plan_setup
from headrace.postgres.slot import create_slot, read_slot
from headrace.postgres.teardown import plan_teardown
from support.frames import messages_of
from support.servers import as_user

SCHEMA = 'My "Shop'
ORDERS = TableName(SCHEMA, 'Order\'s "x"')
USERS = TableName("public", "users")
PUBLICATION = 'Pub "A"'
T = quoted(ORDERS)


def planned(
    connection: Connection,
    required: dict[TableName, Sequence[str]],
    policy: Policy = "auto",
    slot: str | None = None,
) -> SetupPlan:
    return plan_setup(
        read_identities(connection, required),
        required,
        publication=PUBLICATION,
        existing=read_publication(connection, PUBLICATION),
        slot=None if slot is None else read_slot(connection, slot),
        policy=policy,
        version=connection.info.server_version,
    )


def torn_down(connection: Connection, slot: str | None = None) -> SetupPlan:
    publication = read_publication(connection, PUBLICATION)
    assert publication is not None
    assert publication.record is not None
    return plan_teardown(
        read_identities(connection, publication.record.identities),
        publication=publication,
        slot=None if slot is None else read_slot(connection, slot),
        database=connection.info.dbname,
    )


def orders(connection: Connection, ddl: str) -> None:
    execute(connection, """CREATE SCHEMA "My ""Shop" """)
    execute(connection, f"""CREATE TABLE {T} ({ddl})""")


def old_rows(connection: Connection, *statements: str) -> str:
    """What the log carries of the old rows, as test_decoding prints it."""
    execute(connection, "SELECT pg_create_logical_replication_slot('s_look', 'test_decoding')")
    try:
        for statement in statements:
            execute(connection, statement)
        rows = execute(connection, "SELECT data FROM pg_logical_slot_get_changes('s_look', NULL, NULL)")
    finally:
        execute(connection, "SELECT pg_drop_replication_slot('s_look')")
    return "\n".join(data for (data,) in rows)


def identity(connection: Connection, table: TableName) -> tuple[str, str | None]:
    [facts] = read_identities(connection, [table])
    return facts.current.kind, facts.current.index


UPDATE = f"""UPDATE {T} SET "User id" = 8, note = 'n'"""
INSERT = f"""INSERT INTO {T} VALUES (1, 7, 'x')"""


def test_an_index_is_made_where_the_columns_are_not_null(connection: Connection) -> None:
    orders(connection, '"Id" int PRIMARY KEY, "User id" int NOT NULL, note text')
    execute_plan(planned(connection, {ORDERS: ["User id"]}), connection)
    [facts] = read_identities(connection, [ORDERS])
    assert facts.current.kind == "index"
    assert facts.identity_columns == {"Id", "User id"}
    seen = old_rows(connection, INSERT, UPDATE)
    assert 'old-key: "Id"[integer]:1 "User id"[integer]:7 new-tuple' in seen
    assert planned(connection, {ORDERS: ["User id"]}).steps == (), "a second run finds nothing to do"
    publication = read_publication(connection, PUBLICATION)
    assert publication is not None
    assert publication.own
    assert publication.operations == {"insert", "update", "delete", "truncate"}
    assert set(publication.tables) == {ORDERS}


def test_an_existing_index_over_exactly_the_columns_is_used(connection: Connection) -> None:
    orders(connection, '"Id" int PRIMARY KEY, "User id" int NOT NULL, note text')
    execute(connection, f'CREATE UNIQUE INDEX "Mine" ON {T} ("User id", "Id")')
    execute_plan(planned(connection, {ORDERS: ["User id"]}), connection)
    assert identity(connection, ORDERS) == ("index", "Mine")


def test_a_column_that_may_be_null_needs_full(connection: Connection) -> None:
    orders(connection, '"Id" int PRIMARY KEY, "User id" int, note text')
    execute_plan(planned(connection, {ORDERS: ["User id"]}), connection)
    assert identity(connection, ORDERS) == ("full", None)
    assert 'old-key: "Id"[integer]:1 "User id"[integer]:7 note[text]:\'x\' new-tuple' in old_rows(
        connection, INSERT, UPDATE
    )


def test_a_table_without_a_key_gets_full_before_it_is_published(connection: Connection) -> None:
    orders(connection, '"Id" int, "User id" int, note text')
    plan = planned(connection, {ORDERS: []})
    execute_plan(plan, connection)
    assert identity(connection, ORDERS) == ("full", None)
    script = render(plan.steps)
    assert script.index("REPLICA IDENTITY FULL") < script.index("ADD TABLE")
    old_rows(connection, INSERT, UPDATE)


def test_a_table_without_a_key_is_never_published_as_it_is(connection: Connection) -> None:
    orders(connection, '"Id" int, "User id" int, note text')
    policies: tuple[Policy, ...] = ("check", "ignore")
    for policy in policies:
        [refused] = planned(connection, {ORDERS: []}, policy).outstanding
        assert refused.kind is Kind.REPLICA_IDENTITY
        assert "UPDATE" in str(refused)
    with pytest.raises(HeadraceError):
        execute_plan(planned(connection, {ORDERS: []}, "check"), connection)
    assert read_publication(connection, PUBLICATION) is None


def test_a_primary_key_is_enough_where_nothing_more_is_needed(connection: Connection) -> None:
    orders(connection, '"Id" int PRIMARY KEY, "User id" int, note text')
    execute_plan(planned(connection, {ORDERS: ["Id"]}, "check"), connection)
    assert identity(connection, ORDERS) == ("default", None)


def test_check_alters_nothing_and_shows_the_sql_and_ignore_warns(connection: Connection) -> None:
    orders(connection, '"Id" int PRIMARY KEY, "User id" int NOT NULL, note text')
    plan = planned(connection, {ORDERS: ["User id"]}, "check")
    assert [error.kind for error in plan.outstanding] == [Kind.REPLICA_IDENTITY]
    assert "CREATE UNIQUE INDEX CONCURRENTLY" in str(plan.outstanding[0])
    assert "REPLICA IDENTITY USING INDEX" in render(plan.proposed)
    assert "-- undo: ALTER TABLE" in render(plan.proposed)
    plan = planned(connection, {ORDERS: ["User id"]}, "ignore")
    assert not plan.refused + plan.outstanding
    assert "User id" in plan.warnings[0]
    execute_plan(plan, connection)
    assert identity(connection, ORDERS) == ("default", None)


def test_teardown_restores_what_was(url: str, connection: Connection) -> None:
    orders(connection, '"Id" int PRIMARY KEY, "User id" int NOT NULL, note text')
    execute(connection, "CREATE TABLE users (id int PRIMARY KEY, email text NOT NULL UNIQUE, team int)")
    execute(connection, "ALTER TABLE users REPLICA IDENTITY USING INDEX users_email_key")
    execute_plan(planned(connection, {ORDERS: ["User id"], USERS: ["team"]}), connection)
    assert identity(connection, USERS) == ("full", None)
    create_slot(url, "s_tear").close()
    plan = torn_down(connection, "s_tear")
    execute_plan(plan, connection)
    assert identity(connection, USERS) == ("index", "users_email_key")
    assert identity(connection, ORDERS) == ("default", None)
    [facts] = read_identities(connection, [ORDERS])
    assert [index.primary for index in facts.unique_indexes] == [True]
    assert read_publication(connection, PUBLICATION) is None
    assert read_slot(connection, "s_tear") is None


def test_teardown_ends_where_an_index_is_gone_and_others_published_a_schema(connection: Connection) -> None:
    orders(connection, '"Id" int PRIMARY KEY, "User id" int, note text')
    other = TableName("public", "other")
    for table in (USERS, other):
        execute(
            connection,
            f"CREATE TABLE {quoted(table)} (id int PRIMARY KEY, email text NOT NULL UNIQUE, team int)",
        )
        index = identifier(f"{table.name}_email_key")
        execute(connection, f"ALTER TABLE {quoted(table)} REPLICA IDENTITY USING INDEX {index}")
    execute(connection, "ALTER TABLE users DROP CONSTRAINT users_email_key")
    plan = planned(connection, {ORDERS: ["User id"], USERS: ["team"], other: ["team"]})
    undo = [step.undo for step in plan.steps if "users" in step.undo and "IDENTITY" in step.undo]
    assert undo == ['ALTER TABLE "public"."users" REPLICA IDENTITY NOTHING']
    execute_plan(plan, connection)
    execute(connection, "ALTER TABLE other DROP CONSTRAINT other_email_key")
    if connection.info.server_version >= PARTS_SINCE:
        execute(connection, f"ALTER PUBLICATION {identifier(PUBLICATION)} ADD TABLES IN SCHEMA public")
        execute(connection, "CREATE TABLE keyless (id int)")

    plan = torn_down(connection)
    assert plan.warnings == ("the replica identity of other stays: its index other_email_key is gone",)
    execute_plan(plan, connection)
    assert identity(connection, USERS) == ("nothing", None)
    assert identity(connection, other) == ("full", None)
    assert identity(connection, ORDERS) == ("default", None)
    assert read_publication(connection, PUBLICATION) is None


def test_teardown_leaves_what_others_made(connection: Connection) -> None:
    orders(connection, '"Id" int PRIMARY KEY, "User id" int NOT NULL, note text')
    execute_plan(planned(connection, {ORDERS: ["User id"]}), connection)
    execute(connection, f"""ALTER TABLE {T} REPLICA IDENTITY FULL""")
    plan = torn_down(connection)
    assert "altered since by another role" in plan.warnings[0]
    execute_plan(plan, connection)
    assert identity(connection, ORDERS) == ("full", None)
    execute(connection, 'CREATE PUBLICATION "Pub ""A""" FOR ALL TABLES')
    foreign = read_publication(connection, PUBLICATION)
    plan = plan_teardown([], publication=foreign, slot=None, database=connection.info.dbname)
    assert plan.steps == ()
    assert "stays" in plan.warnings[0]


def test_a_setup_that_fails_half_way_is_finished_by_another_or_undone(
    url: str, connection: Connection
) -> None:
    orders(connection, '"Id" int PRIMARY KEY, "User id" int, note text')
    execute(connection, "CREATE TABLE users (id int PRIMARY KEY, team int)")
    with connect(url, autocommit=False) as reader:
        execute(reader, "SELECT * FROM users")
        with pytest.raises(HeadraceError, match="no lock within") as caught:
            execute_plan(
                planned(connection, {ORDERS: ["User id"], USERS: ["team"]}), connection, lock_timeout=0.2
            )
        assert caught.value.kind is Kind.DATABASE
        publication = read_publication(connection, PUBLICATION)
        assert publication is not None
        assert publication.record is not None
        assert set(publication.record.identities) == {ORDERS}, "the record lists what was done, no more"
        assert publication.tables == {}
    execute_plan(planned(connection, {ORDERS: ["User id"], USERS: ["team"]}), connection)
    execute_plan(torn_down(connection), connection)
    assert {identity(connection, ORDERS), identity(connection, USERS)} == {("default", None)}


def test_an_unfinished_index_is_named_and_replaced(url: str, connection: Connection) -> None:
    orders(connection, '"Id" int PRIMARY KEY, "User id" int NOT NULL, note text')
    plan = planned(connection, {ORDERS: ["User id"]})
    pid = connection.info.backend_pid
    with connect(url) as other, connect(url, autocommit=False) as writer:
        execute(writer, f"LOCK TABLE {T} IN ROW EXCLUSIVE MODE")

        def cancel() -> None:
            waits = "wait_event_type = 'Lock' AND query LIKE 'CREATE UNIQUE INDEX%'"
            cancelled = f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND {waits}"
            assert until(lambda: bool(execute(other, cancelled, (pid,))), 60)

        cancelling = threading.Thread(target=cancel)
        cancelling.start()
        with pytest.raises(HeadraceError, match=r"CREATE UNIQUE INDEX.*An unfinished index may stay"):
            execute_plan(plan, connection)
        cancelling.join()
        writer.rollback()
    publication = read_publication(connection, PUBLICATION)
    assert publication is not None
    assert publication.record is not None
    assert len(publication.record.indexes) == 1
    execute_plan(planned(connection, {ORDERS: ["User id"]}), connection)
    assert execute(connection, "SELECT count(*)::int FROM pg_index WHERE NOT indisvalid") == [(0,)]
    assert identity(connection, ORDERS)[0] == "index"


def test_a_timeout_of_the_role_does_not_end_a_step(url: str, connection: Connection) -> None:
    """An index on a large table takes longer than most statements may."""
    orders(connection, '"Id" int PRIMARY KEY, "User id" int NOT NULL, note text')
    plan = planned(connection, {ORDERS: ["User id"]})
    database = identifier(connection.info.dbname)
    execute(connection, f"ALTER DATABASE {database} SET statement_timeout = '100ms'")
    with connect(url) as limited, connect(url, autocommit=False) as writer:
        execute(writer, f"LOCK TABLE {T} IN ROW EXCLUSIVE MODE")
        ending = threading.Timer(0.5, writer.rollback)
        ending.start()
        execute_plan(plan, limited)
        ending.join()
    assert identity(connection, ORDERS)[0] == "index"


def test_partitions_get_identities_and_the_root_is_published(connection: Connection) -> None:
    execute(
        connection,
        "CREATE TABLE events (id int, day int, who int, PRIMARY KEY (id, day)) PARTITION BY LIST (day)",
    )
    for day in (1, 2):
        execute(connection, f'CREATE TABLE "Day {day}" PARTITION OF events FOR VALUES IN ({day})')
    events = TableName("public", "events")
    plan = planned(connection, {events: ["who"]})
    assert "does not inherit" in plan.warnings[0]
    execute_plan(plan, connection)
    for day in (1, 2):
        assert identity(connection, TableName("public", f"Day {day}")) == ("full", None)
    publication = read_publication(connection, PUBLICATION)
    assert publication is not None
    assert publication.members == {events}
    assert set(publication.tables) == {TableName("public", "Day 1"), TableName("public", "Day 2")}
    assert planned(connection, {events: ["who"]}).steps == ()
    execute_plan(torn_down(connection), connection)
    assert identity(connection, TableName("public", "Day 1")) == ("default", None)


@pytest.mark.parametrize(
    ("clause", "words"),
    [
        ("FOR TABLE users WITH (publish = 'insert, update')", "does not publish delete, truncate"),
        ("FOR TABLE users WHERE (id > 5)", "filters the rows"),
        ("FOR TABLE users (id)", "hides columns of users: team"),
        ("FOR TABLE users WITH (publish_via_partition_root)", "publish_via_partition_root"),
    ],
)
def test_a_publication_that_hides_is_refused(connection: Connection, clause: str, words: str) -> None:
    if "users WITH" not in clause and connection.info.server_version < PARTS_SINCE:
        pytest.skip("this server has no publication of a part of a table")
    execute(connection, "CREATE TABLE users (id int PRIMARY KEY, team int)")
    execute(connection, f'CREATE PUBLICATION "Pub ""A""" {clause}')
    refused = planned(connection, {USERS: ["team"]}, "auto").refused
    [error] = [error for error in refused if error.kind is Kind.PUBLICATION and words in str(error)]
    execute(connection, "ALTER TABLE users REPLICA IDENTITY FULL")
    for statement in error.remedy.removeprefix("Run: ").partition(" Or name")[0].strip("; ").split("; "):
        execute(connection, statement.strip())
    assert planned(connection, {USERS: ["team"]}) == SetupPlan(()), "its remedy mends it"


def test_a_publication_of_a_schema_carries_its_tables(connection: Connection) -> None:
    if connection.info.server_version < 150000:
        return
    execute(connection, "CREATE TABLE users (id int PRIMARY KEY, team int)")
    execute(connection, 'CREATE PUBLICATION "Pub ""A""" FOR TABLES IN SCHEMA public')
    assert planned(connection, {USERS: ["id"]}) == SetupPlan(())
    [report] = covered(connection, {USERS: ["team"]})
    assert (report.published, report.missing, report.manageable) == (True, ("team",), True)
    orders(connection, '"Id" int PRIMARY KEY, note text')
    [elsewhere] = covered(connection, {ORDERS: ["Id"]})
    assert not elsewhere.published
    execute_plan(planned(connection, {USERS: ["id"], ORDERS: ["Id"]}), connection)
    assert planned(connection, {USERS: ["id"], ORDERS: ["Id"]}).steps == ()


def covered(
    connection: Connection, required: dict[TableName, Sequence[str]], *, managed: bool = True
) -> tuple[TableCoverage, ...]:
    return table_coverage(
        read_identities(connection, required),
        required,
        publication=PUBLICATION,
        existing=read_publication(connection, PUBLICATION),
        slot=None,
        managed=managed,
    )


def test_coverage_says_what_is_missing_and_its_sql_mends_it(connection: Connection) -> None:
    """Flusso's hole 13: a key that differs from the replica identity is not noticed."""
    orders(connection, '"Id" int PRIMARY KEY, "User id" int NOT NULL, note text NOT NULL UNIQUE')
    execute(connection, f'ALTER TABLE {T} REPLICA IDENTITY USING INDEX "Order\'s ""x""_note_key"')
    execute(connection, f"CREATE PUBLICATION {identifier(PUBLICATION)} WITH (publish = 'insert')")
    [report] = covered(connection, {ORDERS: ["User id"]})
    assert (report.required, report.covered) == (("Id", "User id"), ())
    assert (report.missing, report.identity) == (("Id", "User id"), 'Order\'s "x"_note_key')
    assert report.hidden == ("does not publish update, delete, truncate",)
    assert (report.manageable, report.published) == (False, False)
    for statement in report.remedy:
        execute(connection, statement)
    [report] = covered(connection, {ORDERS: ["User id"]})
    assert report.complete
    assert report.covered == ("Id", "User id")
    assert 'old-key: "Id"[integer]:1 "User id"[integer]:7 note[text]:' in old_rows(connection, INSERT, UPDATE)


def test_coverage_says_why_a_table_is_not_ours_to_mend(
    server: EmbeddedPostgres, url: str, connection: Connection
) -> None:
    execute(connection, "CREATE TABLE users (id int PRIMARY KEY, team int)")
    execute(connection, 'CREATE VIEW "V" AS SELECT 1 AS id')
    execute(connection, "CREATE ROLE bare LOGIN PASSWORD 'pw'")
    try:
        with connect(as_user(url, "bare", "pw")) as bare:
            [report] = covered(bare, {USERS: ["team"]}, managed=False)
            assert report.why_not == "the table belongs to another role; manage_publication is false"
    finally:
        execute(connection, "DROP ROLE bare")
    [report] = covered(connection, {TableName("public", "V"): []})
    assert report.why_not == "a view's changes are not in the log"
    assert not report.complete


def test_an_identity_that_would_break_the_writers_of_another_publication_is_refused(
    connection: Connection,
) -> None:
    if connection.info.server_version < PARTS_SINCE:
        pytest.skip("this server has no publication of a part of a table")
    execute(connection, "CREATE TABLE users (id int PRIMARY KEY, team int)")
    execute(connection, 'CREATE PUBLICATION "Other" FOR TABLE users (id)')
    [refused] = planned(connection, {USERS: ["team"]}).refused
    assert refused.kind is Kind.REPLICA_IDENTITY
    assert '"Other"' in str(refused)


def test_for_all_tables_needs_no_addition(connection: Connection) -> None:
    execute(connection, "CREATE TABLE users (id int PRIMARY KEY, team int)")
    execute(connection, 'CREATE PUBLICATION "Pub ""A""" FOR ALL TABLES')
    plan = planned(connection, {USERS: ["team"]})
    assert not plan.refused
    assert "by hand" in plan.warnings[0], "its comment is not ours to write the record in"
    execute_plan(plan, connection)
    assert planned(connection, {USERS: ["team"]}) == SetupPlan(())


def test_tables_that_cannot_be_followed_are_named(connection: Connection) -> None:
    execute(connection, "CREATE UNLOGGED TABLE users (id int PRIMARY KEY)")
    execute(connection, 'CREATE VIEW "V" AS SELECT 1 AS id')
    names = (USERS, TableName("public", "V"), TableName("public", "absent"))
    found = " ".join(str(error) for error in planned(connection, {name: [] for name in names}).refused)
    for words in ("users is unlogged", '"V" is a view', "no table absent"):
        assert words in found


def test_a_slot_that_is_older_than_its_publication_is_refused(url: str, connection: Connection) -> None:
    execute(connection, "CREATE TABLE users (id int PRIMARY KEY)")
    create_slot(url, "s_older").close()
    [refused] = planned(connection, {USERS: []}, slot="s_older").refused
    assert refused.kind is Kind.PUBLICATION


def test_a_session_that_may_only_read_is_told_what_makes_it_so(connection: Connection) -> None:
    orders(connection, "id int PRIMARY KEY")
    plan = planned(connection, {ORDERS: ("id",)})
    execute(connection, "SET default_transaction_read_only = on")
    with pytest.raises(HeadraceError, match="CREATE PUBLICATION") as caught:
        execute_plan(plan, connection)
    assert caught.value.kind is Kind.PRIVILEGE
    assert "default_transaction_read_only is on" in caught.value.cause
    assert "another role" in caught.value.remedy


def test_without_the_right_the_statement_is_named(
    server: EmbeddedPostgres, url: str, connection: Connection
) -> None:
    execute(connection, "CREATE TABLE users (id int PRIMARY KEY)")
    execute(connection, "CREATE ROLE bare LOGIN PASSWORD 'pw'")
    try:
        with (
            connect(as_user(url, "bare", "pw")) as bare,
            pytest.raises(HeadraceError, match="CREATE PUBLICATION") as caught,
        ):
            execute_plan(planned(bare, {USERS: []}), bare)
    finally:
        execute(connection, "DROP ROLE bare")
    assert caught.value.kind is Kind.PRIVILEGE


def streamed(url: str, slot: str, word: bytes) -> list[bytes]:
    """The rows that the stream carries up to one with this word, as raw insert messages."""
    found: list[bytes] = []
    with ReplicationConnection(url) as stream:
        stream.start(slot, 0, [PUBLICATION])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and word not in b"".join(found):
            frames = Frames()
            if not stream.receive(frames, 1 << 20):
                stream.wait(0.1)
            found += [data[25:] for data in messages_of(frames) if data[:1] == b"w" and data[25:26] == b"I"]
    return found


def test_extending_a_living_slots_publication_loses_no_transaction(url: str, connection: Connection) -> None:
    """An open writer is waited for; its rows are in a later snapshot, later rows are in the stream."""
    execute(connection, "CREATE TABLE users (id int PRIMARY KEY)")
    execute(connection, "CREATE TABLE b (word text PRIMARY KEY)")
    b = TableName("public", "b")
    execute_plan(planned(connection, {USERS: []}), connection)
    create_slot(url, "s_extend").close()
    plan = planned(connection, {USERS: [], b: []}, slot="s_extend")
    with connect(url, autocommit=False) as writer:
        execute(writer, "INSERT INTO b VALUES ('first')")
        with pytest.raises(HeadraceError, match="no lock within"):
            execute_plan(plan, connection, lock_timeout=0.3)
        publication = read_publication(connection, PUBLICATION)
        assert publication is not None
        assert b not in publication.tables
        extension = threading.Thread(target=execute_plan, args=(plan, connection))
        extension.start()
        time.sleep(0.5)
        assert extension.is_alive(), "the extension waits for the open writer"
        execute(writer, "INSERT INTO b VALUES ('second')")
        writer.commit()
        extension.join()
        with ReadSession(url) as session:
            before = {word for (word,) in session.query("SELECT word FROM public.b")}
        execute(writer, "INSERT INTO b VALUES ('third')")
        writer.commit()
    carried = b"".join(streamed(url, "s_extend", b"third"))
    for word in ("first", "second", "third"):
        assert word in before or word.encode() in carried, word
    assert b"third" in carried


def test_the_simpler_way_loses_a_row(url: str, connection: Connection) -> None:
    """Why the lock is there: the same interleaving without it. If this fails, the lock can go."""
    execute(connection, "CREATE TABLE users (id int PRIMARY KEY)")
    execute(connection, "CREATE TABLE b (word text PRIMARY KEY)")
    execute_plan(planned(connection, {USERS: []}), connection)
    create_slot(url, "s_simple").close()
    with connect(url, autocommit=False) as writer:
        execute(writer, "INSERT INTO b VALUES ('first')")
        execute(connection, 'ALTER PUBLICATION "Pub ""A""" ADD TABLE b')
        with ReadSession(url) as session:
            assert session.query("SELECT word FROM public.b") == []
        execute(writer, "INSERT INTO b VALUES ('second')")
        writer.commit()
    carried = b"".join(streamed(url, "s_simple", b"second"))
    assert b"second" in carried
    assert b"first" not in carried
