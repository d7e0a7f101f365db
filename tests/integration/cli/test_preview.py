"""What is seen before anything runs: everything that is wrong, the SQL, a document. Nothing is altered.

The commands run in this process, as they would in one of their own: they are many.
"""

from __future__ import annotations

import contextlib
import io
import json

import pytest
import urllib3

from headrace.cli import main
from headrace.postgres.connection import connect, execute
from integration.cli.command_line import PETS, SCHEMA, Deployment, Outcome

PAIRS = """
CREATE TABLE pairs (a text, b int, note numeric, gone bool NOT NULL DEFAULT false, PRIMARY KEY (a, b));
INSERT INTO pairs VALUES ('x:y', 1, 12345678901234567890.10, false), ('x%', 2, NULL, true), ('z', 3, 0, false)
"""
PAIR_SCHEMA = """\
version: 1
table: pairs
primary_key: [a, b]
soft_delete: {column: gone}
fields:
  - keyword: a
  - decimal: note
  - constant: seven
    value: 7
"""


def typed(deployment: Deployment, *words: str) -> Outcome:
    """What `headrace WORDS` prints in the deployment's folder, and how it ends."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(deployment.folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main(list(words))
            code: object = 0
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int | None)
    return Outcome(code or 0, out.getvalue(), err.getvalue())


@pytest.fixture
def pairs(people: Deployment) -> Deployment:
    with connect(people.url) as connection:
        for statement in PAIRS.split(";"):
            execute(connection, statement)
    people.schema = PAIR_SCHEMA
    people.write()
    return people


def test_types_of_documents_are_printed_for_the_indexes_that_are_named(people: Deployment) -> None:
    told = typed(people, "schema", "types", people.name, "--language", "typescript")
    assert (told.code, told.err) == (0, "")
    assert f"`headrace schema types --language typescript {people.name}`" in told.out
    assert "  name: string;\n" in told.out
    assert typed(people, "schema", "types", "--language", "python", "--offline").out.count("(TypedDict)") == 1
    assert "no enabled index 'x'" in typed(people, "schema", "types", "x", "--language", "python").refused(
        2, "USAGE"
    )
    assert "Add --language python" in typed(people, "schema", "types").refused(2, "USAGE")


def test_a_file_that_cannot_be_read_hides_nothing_of_the_others(people: Deployment) -> None:
    """Files, tables, filters and the cluster at once; each with its line, and a caret below its column."""
    people.more = '[[index]]\nname = "other"\nschema = "other.schema.yml"\n'
    people.schema = (
        SCHEMA.replace(
            "fields:\n",
            "filters:\n  - raw: 'public.nothing(name)'\n  - {column: id, op: eq, value: x}\nfields:\n",
        )
        + "  - text: nane\n"
    )
    people.write()
    (people.folder / "other.schema.yml").write_text(SCHEMA.replace("- text", "- txet"))
    told = typed(people, "check")
    assert told.code == 2
    assert [kind for kind, _ in told.errors] == ["SCHEMA", *["BINDING"] * 3, "SINK_UNREACHABLE"]
    assert "other.schema.yml:6:5: unknown type 'txet'. Did you mean 'text'?" in told.errors[0][1]
    assert "    6 │   - txet: name\n      │     ^\n" in told.err
    assert "people.schema.yml:5:10: the database says: function public.nothing" in told.errors[1][1]
    assert "    5 │   - raw: 'public.nothing(name)'\n      │          ^\n" in told.err
    assert 'invalid input syntax for type bigint: "x"' in told.errors[2][1]
    assert "the table people has no column 'nane'. Did you mean 'name'?" in told.errors[3][1]
    assert "5 errors, 1 warning" in told.err
    assert people.left_in_database() == []


def test_what_check_finds_is_data_for_programs(people: Deployment) -> None:
    people.schema = SCHEMA + PETS
    people.write()
    found = json.loads(typed(people, "check", "--format", "json").out)
    assert found["ok"] is False
    keys = {"level", "code", "text", "file", "line", "column", "remedy", "sql"}
    assert {frozenset(one) for one in found["findings"]} == {frozenset(keys)}
    [index] = [one for one in found["findings"] if one["code"] == "HEADRACE_BINDING"]
    assert (index["level"], index["file"], index["line"], index["column"]) == (
        "warning", "people.schema.yml", 7, 5,
    )  # fmt: skip
    assert index["text"].startswith(
        "no index of pets begins with (person_id): each chunk of up to 1000 documents reads all of pets"
    )
    [identity] = [one for one in found["findings"] if one["code"] == "HEADRACE_REPLICA_IDENTITY"]
    with connect(people.url) as connection:
        for one in (index, identity):
            for statement in one["sql"]:
                execute(connection, statement)
    after = json.loads(typed(people, "check", "--format", "json").out)
    assert {one["code"] for one in after["findings"]} == {"HEADRACE_DISK", "HEADRACE_SINK_UNREACHABLE"}


def test_a_mistake_in_the_deployment_file_has_its_line_number_and_not_its_text(people: Deployment) -> None:
    """The line may be that of a password."""
    people.source = 'replica_identitty = "auto"'
    people.write()
    told = typed(people, "check", "--offline")
    assert "headrace.toml:6: unknown key 'source.replica_identitty'" in told.err
    assert "│" not in told.err
    [found] = json.loads(typed(people, "check", "--offline", "--format", "json").out)["findings"]
    assert (found["file"], found["line"], found["column"]) == ("headrace.toml", 6, None)


def test_a_raw_filter_that_may_not_be_is_told_without_a_database(people: Deployment) -> None:
    """Decision 0014."""
    people.schema = (
        SCHEMA + "filters:\n  - raw: \"id IN (SELECT 1)\"\n  - raw: at > 'today'\n  - raw: now() > at\n"
    )
    people.write()
    told = typed(people, "check", "--offline")
    assert [kind for kind, _ in told.errors] == ["SCHEMA"] * 3
    assert all("unsafe: true" in text for _, text in told.errors)
    people.schema = SCHEMA + 'filters:\n  - raw: "id IN (SELECT 1)"\n    unsafe: true\n'
    people.write()
    assert typed(people, "check", "--offline").errors == []


def test_documents_are_shown_without_slot_publication_and_cluster(pairs: Deployment) -> None:
    """Not even the cluster's address is asked for."""
    file = pairs.folder / "headrace.toml"
    file.write_text(file.read_text().replace(f'url = "{pairs.sink}"', 'url = { env = "NOT_SET" }'))
    told = typed(pairs, "preview", pairs.name, "--id", "x%3Ay:1", "--timing")
    assert told.code == 0
    assert told.out == '{\n  "a": "x:y",\n  "note": 12345678901234567890.10,\n  "seven": 7\n}\n'
    assert "ms," in told.err
    assert pairs.left_in_database() == []


def test_a_junction_row_that_stands_twice_gives_one_row_and_an_id_has_no_padding(people: Deployment) -> None:
    with connect(people.url) as connection:
        for statement in (
            "CREATE TABLE books (isbn char(8) PRIMARY KEY)",
            "CREATE TABLE shelves (id int PRIMARY KEY)",
            "CREATE TABLE places (isbn char(8), shelf int)",
            "INSERT INTO books VALUES ('97')",
            "INSERT INTO shelves VALUES (1), (2)",
            "INSERT INTO places VALUES ('97', 1), ('97', 2), ('97', 1)",
        ):
            execute(connection, statement)
    people.schema = _TWICE
    people.write()
    told = typed(people, "preview", people.name)
    assert told.err.splitlines() == [f"{people.name} 97"]
    assert json.loads(told.out) == {"isbn": "97      ", "shelves": [{"id": 1}, {"id": 2}]}


_TWICE = """\
version: 1
table: books
primary_key: isbn
fields:
  - keyword: isbn
  - many_to_many: shelves
    table: shelves
    primary_key: id
    through: {table: places, left_key: isbn, right_key: shelf}
    fields:
      - integer: id
"""


def test_an_id_that_no_live_row_has_is_told_and_the_others_are_shown(pairs: Deployment) -> None:
    """Unknown, softly deleted, of too few parts, of another type, and badly escaped."""
    words = [word for one in ("n:1", "x%25:2", "z", "z:abc", "x:y:1") for word in ("--id", one)]
    told = typed(pairs, "preview", pairs.name, *words, "--id", "z:3")
    assert told.code == 1
    assert told.err.count("no live row has this key") == 5
    assert json.loads(told.out) == {"a": "z", "note": 0, "seven": 7}


def test_the_first_live_documents_are_shown_in_the_order_of_the_key(pairs: Deployment) -> None:
    told = typed(pairs, "preview", pairs.name, "--limit", "5")
    assert (told.code, told.err.splitlines()) == (0, [f"{pairs.name} x%3Ay:1", f"{pairs.name} z:3"])
    assert typed(pairs, "preview", pairs.name).err.splitlines() == [f"{pairs.name} x%3Ay:1"]
    with connect(pairs.url) as connection:
        execute(connection, "TRUNCATE pairs")
    told = typed(pairs, "preview", pairs.name)
    assert (told.code, "has no live row" in told.err) == (1, True)


def test_what_a_field_costs_the_index_is_a_table_and_data(people: Deployment) -> None:
    """No cluster is needed; the costliest stands first."""
    people.schema = SCHEMA + PETS
    people.write()
    nothing = typed(people, "preview", people.name, "--cost")
    assert (nothing.code, "no document was found" in nothing.err) == (1, True)
    with_pets(people, 3)
    told = typed(people, "preview", people.name, "--cost")
    assert told.code == 0
    lines = [line.split() for line in told.out.splitlines()]
    assert f"{people.name}: looked at 2 documents" in told.out
    assert ["Lucene", "documents", "4.0", "each,", "at", "most", "4"] in lines
    at = next(number for number, line in enumerate(lines) if line[:1] == ["field"])
    assert lines[at + 1][:4] == ["pets", "nested", "3.0", "3"]
    assert lines[at + 2][:4] == ["pets.name", "text,", ".keyword,", ".keyword_lowercase"]
    found = json.loads(typed(people, "preview", people.name, "--cost", "--format", "json").out)
    assert (found["index"], found["documents"], found["lucene_documents"]) == (people.name, 2, 4.0)
    assert [field["path"] for field in found["fields"]] == ["pets", "pets.name", "name", "id"]
    shown = typed(people, "preview", people.name).out
    assert found["bytes"] == len(json.dumps(json.loads(shown), separators=(",", ":")))
    assert "do not go together" in typed(people, "preview", people.name, "--cost", "--id", "1").refused(
        2, "USAGE"
    )


def with_pets(people: Deployment, count: int) -> None:
    """Give two people so many pets each."""
    with connect(people.url) as connection:
        for statement in (
            "TRUNCATE people CASCADE",
            "INSERT INTO people VALUES (1, 'Ann'), (2, 'Bob')",
            f"INSERT INTO pets SELECT i, 1 + i % 2, 'pet' FROM generate_series(10, {2 * count + 9}) i",
        ):
            execute(connection, statement)


def test_an_index_that_is_not_there_is_told_with_the_one_that_is_meant(people: Deployment) -> None:
    wrong = people.name.replace("people", "poeple")
    for words in (["preview", wrong], ["schema", "show", wrong]):
        assert f"Did you mean {people.name!r}?" in typed(people, *words).refused(2, "USAGE")
    assert "do not go together" in typed(people, "preview", people.name, "--id", "1", "--limit", "1").refused(
        2, "USAGE"
    )


def test_mapping_sql_and_routes_of_an_index_are_shown(people: Deployment) -> None:
    people.schema = SCHEMA + PETS
    people.write()
    told = typed(people, "schema", "show", people.name)
    assert told.code == 0
    assert '"type": "nested"' in told.out
    assert 'FROM "public"."pets" AS t1' in told.out
    assert "pets in pets: person_id is the key, without a query" in told.out
    found = json.loads(typed(people, "schema", "show", people.name, "--format", "json").out)
    assert found["mapping"]["mappings"]["properties"]["id"] == {"type": "long"}
    assert found["old_rows"] == {"people": ["id"], "pets": ["person_id"]}
    assert {route["table"] for route in found["routes"]} == {"people", "pets"}
    assert list(found["more_keys"]) == ["4"]
    assert "documents by 4 keys and more" in told.out
    with connect(people.url) as connection:
        for statement in (found["keys"], *found["more_keys"].values()):
            execute(connection, f"EXPLAIN {statement}", ([],))


def test_a_mapping_needs_no_database(people: Deployment) -> None:
    people.url = "postgresql://me:s3cret-word@127.0.0.1:9/shop"
    people.write()
    told = typed(people, "schema", "show", people.name, "--offline")
    assert (told.code, '"dynamic": "strict"' in told.out) == (0, True)
    assert "FROM" not in told.out


def test_the_schema_for_editors_is_printed_without_any_file(people: Deployment) -> None:
    (people.folder / "headrace.toml").unlink()
    told = typed(people, "schema", "json")
    assert (told.code, json.loads(told.out)["title"]) == (0, "Headrace schema file")


def test_what_the_cluster_refuses_of_an_index_is_found_by_making_one(whole: Deployment) -> None:
    """The index is made under a name of its own, and deleted again."""
    whole.more = 'mappings_file = "own.json"'
    whole.write()
    (whole.folder / "own.json").write_text('{"properties": {"name": {"analyzer": "nowhere"}}}')
    told = typed(whole, "check")
    assert [kind for kind, _ in told.errors] == ["SINK_REJECTED"]
    assert "people.schema.yml" in told.errors[0][1]
    assert "nowhere" in told.errors[0][1]
    (whole.folder / "own.json").write_text('{"properties": {"name": {"norms": false}}}')
    whole.schema = SCHEMA.replace("- text: name", "- {text: name, options: {fields: {}}}")
    whole.schema += f"{PETS}    options: {{enabled: false}}\n"
    whole.write()
    assert typed(whole, "check").code == 0
    held = urllib3.request("GET", f"{whole.sink}/_cat/indices/*headrace_check*?expand_wildcards=all&h=index")
    assert held.data == b""


def test_a_name_that_somebody_else_holds_is_found(whole: Deployment) -> None:
    urllib3.request("PUT", f"{whole.sink}/other_{whole.name}", json={"aliases": {whole.name: {}}})
    told = typed(whole, "check")
    assert [kind for kind, _ in told.errors] == ["SINK_REJECTED"]
    assert f"the name {whole.name} is taken by an alias of the index other_{whole.name}" in told.errors[0][1]
    assert "headrace adopt" in told.errors[0][1]
    urllib3.request("DELETE", f"{whole.sink}/other_{whole.name}")
    assert typed(whole, "check").code == 0
