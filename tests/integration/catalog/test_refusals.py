"""What keeps documents from being right is told with its reason and what mends it, from a real database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from headrace.catalog import findings, read_catalog
from headrace.catalog.access import unreadable_tables
from headrace.catalog.binding import BindingFinding
from headrace.catalog.checks import function_findings, label_findings
from headrace.catalog.usage import used_columns
from headrace.errors import Kind
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec

DDL = """
CREATE SCHEMA closed;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE users (
    id bigint PRIMARY KEY, tags text[], moods mood[], sizes int4range, spans int4range[],
    born date, seen timestamptz, name text, hidden bool, level int, boss bigint NOT NULL DEFAULT 0
);
CREATE TABLE orders (id bigint PRIMARY KEY, user_id bigint, at timestamptz, code text, state text);
CREATE INDEX orders_open ON orders (user_id) WHERE state = 'open';
INSERT INTO orders SELECT i, i % 10, now(), 'c' || i, 'open' FROM generate_series(1, 20000) i;
ANALYZE orders;
CREATE TABLE fresh (id bigint PRIMARY KEY, user_id bigint);
CREATE TABLE later (id bigint PRIMARY KEY DEFERRABLE, user_id bigint, code text NOT NULL UNIQUE DEFERRABLE);
CREATE TABLE partly (id bigint NOT NULL, code text NOT NULL, user_id bigint);
CREATE UNIQUE INDEX partly_open ON partly (id) WHERE user_id IS NOT NULL;
CREATE UNIQUE INDEX partly_lower ON partly (code, lower(code));
CREATE TABLE half (id bigint NOT NULL, user_id bigint);
INSERT INTO half VALUES (1, 1), (1, 1);
CREATE TABLE loose (id bigint UNIQUE, user_id bigint);
CREATE TABLE parent (id bigint PRIMARY KEY, name text);
CREATE INDEX ON users (boss);
ALTER TABLE users ADD FOREIGN KEY (boss) REFERENCES parent NOT VALID;
CREATE TABLE child (more text) INHERITS (parent);
CREATE VIEW people AS SELECT u.id, u.name, o.code FROM users u JOIN orders o ON o.user_id = u.id;
CREATE MATERIALIZED VIEW kept AS SELECT id FROM people;
CREATE TABLE by_mood (m mood PRIMARY KEY);
CREATE TABLE closed.secrets (id bigint PRIMARY KEY, user_id bigint);
CREATE FUNCTION always(text) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true';
CREATE FUNCTION sometimes(text) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RETURN random() < 0.5; END';
CREATE FUNCTION "Looks Up"(text) RETURNS bool LANGUAGE sql STABLE AS 'SELECT EXISTS (SELECT FROM users)';
"""

HEAD = "version: 1\ntable: users\nprimary_key: id\nfields:\n"


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    made: str = postgres.create_database("catalog_refusals")
    with psycopg.connect(made, autocommit=True) as connection:
        connection.execute(DDL)
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("CREATE UNIQUE INDEX CONCURRENTLY half_id ON half (id)")
        connection.execute("CREATE INDEX half_user ON half (user_id)")
        connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'half_user'::regclass")
    return made


@pytest.fixture(scope="module")
def session(url: str) -> Iterator[ReadSession]:
    with ReadSession(url) as opened:
        yield opened


def load(folder: Path, text: str) -> IndexSpec:
    file = folder / "users.schema.yml"
    file.write_text(text)
    return load_schema(file, "users")


def found(folder: Path, session: ReadSession, text: str) -> list[BindingFinding]:
    spec = load(folder, text)
    return findings(spec, read_catalog(session, spec.tables()))


def many(table: str, key: str = "id", column: str = "user_id") -> str:
    return (
        f"{HEAD}  - has_many: x\n    table: {table}\n    primary_key: {key}\n    foreign_key: {column}\n"
        "    fields: []\n"
    )


def test_a_missing_index_is_told_with_what_every_document_reads(tmp_path: Path, session: ReadSession) -> None:
    """Of the table's size, as the last ANALYZE has told it; a partial index serves only its own rows."""
    [one] = found(tmp_path, session, many("orders"))
    assert one.level == "warning"
    assert "each chunk of up to 1000 documents reads all of orders (about 20,000 rows, 1.3 MB)" in str(
        one.error
    )
    assert one.error.sql == ('CREATE INDEX CONCURRENTLY ON "public"."orders" ("user_id");',)
    [one] = found(tmp_path, session, many("fresh"))
    assert "reads all of fresh (its size is not known: it was never analysed)" in str(one.error)


def test_a_missing_index_upwards_is_told_with_what_every_change_reads(
    tmp_path: Path, session: ReadSession
) -> None:
    text = (
        "version: 1\ntable: orders\nfields:\n  - belongs_to: user_id\n    table: users\n    primary_key: id\n"
        "    fields: []\n"
    )
    [one] = found(tmp_path, session, text)
    assert "each change of users reads all of orders" in str(one.error)


def test_an_index_that_was_never_finished_counts_as_none(tmp_path: Path, session: ReadSession) -> None:
    key, lookup = found(tmp_path, session, many("half"))
    assert key.level == "error"
    assert "no valid unique index has exactly these columns, all NOT NULL" in str(key.error)
    assert (lookup.level, lookup.error.sql) == (
        "warning",
        ('CREATE INDEX CONCURRENTLY ON "public"."half" ("user_id");',),
    )


NO_KEYS = [
    (
        ("later", "id"),
        "the constraint later_pkey is deferrable",
        'ALTER TABLE "public"."later" DROP CONSTRAINT "later_pkey", ADD PRIMARY KEY ("id");',
    ),
    (
        ("later", "code"),
        "the constraint later_code_key is deferrable",
        'ALTER TABLE "public"."later" DROP CONSTRAINT "later_code_key", ADD UNIQUE ("code");',
    ),
    (("partly", "id"), "no valid unique index has exactly these columns, all NOT NULL", None),
    (("partly", "code"), "no valid unique index has exactly these columns, all NOT NULL", None),
    (
        ("loose", "id"),
        "id may be NULL, and loose_id_key tells NULLs apart",
        'ALTER TABLE "public"."loose" ALTER COLUMN "id" SET NOT NULL;',
    ),
    (("orders", "code"), "index has exactly these columns, all NOT NULL. Write `primary_key: [id]`", None),
]


@pytest.mark.parametrize(("declared", "said", "sql"), NO_KEYS)
def test_what_is_no_key_is_refused_with_the_reason(
    tmp_path: Path, session: ReadSession, declared: tuple[str, str], said: str, sql: str | None
) -> None:
    """Hole 13 of flusso: a declared key that is none is not noticed."""
    table, key = declared
    [one] = [one for one in found(tmp_path, session, many(table, key)) if one.level == "error"]
    text = f"{one.error.cause.partition(', in `')[0]}. {one.error.remedy}"
    assert f"({key}) is no key of {table}: " in text
    assert said in text
    assert one.error.sql == (() if sql is None else (sql,))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("people", "people is a view: its changes are not in the log|Name what it reads: orders, users."),
        ("kept", "kept is a materialized view: its changes are not in the log|Name what it reads: people."),
        ("parent", "parent has children by INHERITS|a partitioned table"),
    ],
)
def test_what_has_no_changes_of_its_own_in_the_log_is_refused(
    tmp_path: Path, session: ReadSession, table: str, said: str
) -> None:
    [one] = found(tmp_path, session, f"version: 1\ntable: {table}\nprimary_key: id\nfields: []")
    assert one.level == "error"
    assert all(part in str(one.error) for part in said.split("|"))


def test_a_foreign_table_is_refused(tmp_path: Path, url: str, session: ReadSession) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE FOREIGN DATA WRAPPER nobody; CREATE SERVER far FOREIGN DATA WRAPPER nobody"
        )
        connection.execute("CREATE FOREIGN TABLE away (id bigint) SERVER far")
    [one] = found(tmp_path, session, "version: 1\ntable: away\nprimary_key: id\nfields: []")
    assert "away is a foreign table: its changes are not in the log" in str(one.error)
    assert "Run Headrace on the server that holds its rows." in str(one.error)


@pytest.mark.parametrize(
    ("field", "remedy"),
    [
        (
            "keyword: spans",
            'Write `custom: spans` with `postgres: ["int4range[]"]` and `opensearch: keyword`.',
        ),
        ("keyword: sizes", 'Write `custom: sizes` with `postgres: ["int4range"]` and `opensearch: keyword`.'),
    ],
)
def test_what_no_plain_type_reads_is_told_how_to_write(
    tmp_path: Path, session: ReadSession, field: str, remedy: str
) -> None:
    [one] = found(tmp_path, session, f"{HEAD}  - {field}\n")
    assert remedy in str(one.error)
    key = field.partition(": ")[2]
    declared = remedy.split("`")[3]
    assert (
        found(tmp_path, session, f"{HEAD}  - custom: {key}\n    {declared}\n    opensearch: keyword\n") == []
    )


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("text: name", "users.name may be NULL, and the field is required"),
        ("text: name, default: x", ""),
        ("long: id", ""),
        ("geo: g, lat: level, lon: id", "users.level may be NULL"),
        (
            "belongs_to: id, table: parent, primary_key: id, fields: []",
            "no foreign key keeps the row of parent",
        ),
        ("belongs_to: boss, table: parent, primary_key: id, fields: []", "keeps the row of parent"),
    ],
)
def test_a_required_field_must_have_what_the_database_allows_to_be_missing(
    tmp_path: Path, session: ReadSession, field: str, said: str
) -> None:
    told = found(tmp_path, session, f"{HEAD}  - {{{field}, required: true}}\n")
    warned = [str(one.error) for one in told if one.level == "warning"]
    assert len(warned) == bool(said)
    assert all(said in one for one in warned)


@pytest.mark.parametrize("moment", ["now", " Today ", "yesterday 10:00"])
def test_a_moment_is_no_value_of_a_filter(tmp_path: Path, session: ReadSession, moment: str) -> None:
    """Decision 0014: nothing in the log says that today has become yesterday."""
    for column in ("born", "seen"):
        condition = f"{{column: {column}, op: gte, value: '{moment}'}}"
        [one] = found(
            tmp_path, session, f"{HEAD}  []\nfilters: [{condition}]".replace("fields:\n", "fields:")
        )
        assert "is another moment at every reading" in str(one.error)
    condition = f"{{column: name, op: eq, value: '{moment}'}}"
    text = f"{HEAD}  []\nfilters: [{condition}]".replace("fields:\n", "fields:")
    assert found(tmp_path, session, text) == []


@pytest.mark.parametrize(("field", "wrong"), [("integer: level", "many"), ("boolean: hidden", "maybe")])
def test_a_default_that_the_index_would_refuse_is_an_error(
    tmp_path: Path, session: ReadSession, field: str, wrong: str
) -> None:
    [one] = found(tmp_path, session, f"{HEAD}  - {field}\n    default: {wrong}\n")
    assert f"the default '{wrong}' is no" in str(one.error)
    assert (
        found(tmp_path, session, f"{HEAD}  - {field}\n    default: {1 if 'level' in field else True}\n") == []
    )


@pytest.mark.parametrize(
    ("raw", "level", "said"),
    [
        ("public.always(name)", None, ""),
        ("public.sometimes(name)", "error", "the function public.sometimes is VOLATILE"),
        ("PUBLIC . Sometimes (name)", "error", "the function public.sometimes is VOLATILE"),
        ('public."Looks Up"(name)', "warning", "the function public.Looks Up is STABLE"),
        ("pg_notify('a', name) IS NULL", "error", "the function pg_notify is VOLATILE"),
        ("lower(name) = 'public.sometimes(x)'", None, ""),
        ("to_char(born, 'YYYY') = '2000'", None, ""),
    ],
)
def test_functions_in_raw_filters_are_looked_up(
    tmp_path: Path, session: ReadSession, raw: str, level: str | None, said: str
) -> None:
    """Decision 0014. A list of words knows PostgreSQL's own functions; only the catalog knows the users'."""
    quoted = json.dumps(raw)
    nested = f"  - count: n\n    table: users\n    foreign_key: id\n    filters: [{{raw: {quoted}}}]\n"
    for text in (HEAD + nested, f"version: 1\ntable: users\nfields: []\nfilters: [{{raw: {quoted}}}]\n"):
        told = function_findings(session, [load(tmp_path, text)])
        assert [one.level for one in told] == ([] if level is None else [level])
        assert all(said in str(one.error) for one in told)
        accepted = load(tmp_path, text.replace("{raw:", "{unsafe: true, raw:"))
        assert function_findings(session, [accepted]) == []


@pytest.mark.parametrize(
    ("variants", "said"),
    [
        ("[sad, ok]", []),
        ("[ok, sad]", []),
        ("[sda, ok]", ["no label 'sda'", "leave out 'sad'"]),
        ("[ok]", ["leave out 'sad'"]),
    ],
)
def test_variants_are_held_against_the_enums_labels(
    tmp_path: Path, session: ReadSession, variants: str, said: list[str]
) -> None:
    field = f"{{enum: m, variants: {variants}}}"
    spec = load(tmp_path, f"version: 1\ntable: by_mood\nfields: [{{object: o, fields: [{field}]}}]")
    told = label_findings(session, [spec], read_catalog(session, spec.tables()))
    assert [one.level for one in told] == ["warning"] * len(said)
    assert all(part in str(one.error) for part, one in zip(said, told, strict=True))
    assert "Did you mean 'sad'?" in str(told[0].error) if len(said) > 1 else True


ROLE = "refused_reader"


@pytest.fixture
def reader(url: str) -> Iterator[tuple[psycopg.Connection, ReadSession]]:
    """An admin's connection, and a session of a role without a right."""
    parts = urlsplit(url)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'x'".encode())
        try:
            with ReadSession(f"postgresql://{ROLE}:x@{parts.hostname}:{parts.port}{parts.path}") as session:
                yield admin, session
        finally:
            admin.execute(f"DROP OWNED BY {ROLE}".encode())
            admin.execute(f"DROP ROLE {ROLE}".encode())


def test_what_may_not_be_read_is_found_by_trying_each_table(
    tmp_path: Path, reader: tuple[psycopg.Connection, ReadSession]
) -> None:
    """One column that may not be read is enough; each grant that is told mends its table."""
    admin, session = reader
    text = many("orders") + (
        "  - has_many: y\n    table: secrets\n    schema: closed\n    primary_key: id\n"
        "    foreign_key: user_id\n    fields: []\n"
    )
    spec = load(tmp_path, text)
    catalog = read_catalog(session, spec.tables())
    usage = used_columns([spec], catalog)
    admin.execute(f"GRANT SELECT ON users TO {ROLE}".encode())
    admin.execute(f"GRANT SELECT (id) ON orders TO {ROLE}".encode())
    refused = unreadable_tables(session, usage, catalog, [spec.table])
    assert set(refused) == {TableName("public", "orders"), TableName("closed", "secrets")}
    assert {error.kind for error in refused.values()} == {Kind.PRIVILEGE}
    causes = [error.cause for error in refused.values()]
    assert f"the role {ROLE} may not use the schema of closed.secrets" in causes
    assert f"the role {ROLE} may not read orders" in causes
    for error in refused.values():
        admin.execute(" ".join(error.sql).encode())
    assert unreadable_tables(session, usage, catalog, [spec.table]) == {}


def test_row_security_that_would_hide_rows_is_told(
    tmp_path: Path, reader: tuple[psycopg.Connection, ReadSession]
) -> None:
    admin, session = reader
    admin.execute("CREATE TABLE rls (id bigint PRIMARY KEY); ALTER TABLE rls ENABLE ROW LEVEL SECURITY")
    admin.execute(f"GRANT SELECT ON rls TO {ROLE}".encode())
    spec = load(tmp_path, "version: 1\ntable: rls\nprimary_key: id\nfields: [{long: id}]")
    catalog = read_catalog(session, spec.tables())
    [error] = unreadable_tables(session, used_columns([spec], catalog), catalog, [spec.table]).values()
    assert "row security on rls would hide rows" in error.cause
    admin.execute(" ".join(error.sql).encode())
    assert unreadable_tables(session, used_columns([spec], catalog), catalog, [spec.table]) == {}


def test_the_partitions_of_a_root_are_tried_too(
    tmp_path: Path, reader: tuple[psycopg.Connection, ReadSession]
) -> None:
    """A backfill reads them by themselves; a grant on the whole table does not reach them."""
    admin, session = reader
    admin.execute("CREATE TABLE parted (id bigint PRIMARY KEY) PARTITION BY LIST (id)")
    admin.execute("CREATE TABLE parted_rest PARTITION OF parted DEFAULT")
    admin.execute(f"GRANT SELECT ON parted TO {ROLE}".encode())
    spec = load(tmp_path, "version: 1\ntable: parted\nprimary_key: id\nfields: [{long: id}]")
    catalog = read_catalog(session, spec.tables())
    usage = used_columns([spec], catalog)
    assert set(unreadable_tables(session, usage, catalog, [spec.table])) == {
        TableName("public", "parted_rest")
    }
    assert unreadable_tables(session, usage, catalog, []) == {}
