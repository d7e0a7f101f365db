"""What the designer's page asks, over HTTP and against a real PostgreSQL: also where much is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import urllib3

from headrace.config.load import load_deployment
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.tools.designer.database import DesignDatabase
from headrace.tools.designer.files import DeploymentFolder
from headrace.tools.designer.server import DesignServer

TABLES = """
CREATE TYPE mood AS ENUM ('low', 'high');
CREATE TABLE people (
    id int PRIMARY KEY, name text NOT NULL, mood mood, password_hash text, deleted_at timestamptz
);
CREATE TABLE pets (id int PRIMARY KEY, person_id int NOT NULL REFERENCES people, name text, weight numeric);
CREATE TABLE keyless (person_id int REFERENCES people);
COMMENT ON COLUMN people.name IS 'What people call them';
INSERT INTO people SELECT n, 'person ' || n, 'low' FROM generate_series(1, 20) n;
INSERT INTO pets SELECT n, 1 + n % 2, 'pet ' || n, n FROM generate_series(1, 900) n;
ANALYZE;
"""
FILE = """\
# People, as the search shows them.
version: 1
table: people   # the root
primary_key: id
fields:
  - text: name  # never the full one
  # their animals
  - has_many: pets
    table: pets
    primary_key: id
    foreign_key: person_id
    fields:
      - keyword: name
"""


@dataclass
class Asker:
    """What the page does: asks with the token of its address."""

    url: str

    def ask(self, what: str, *, status: int = 200, headers: dict[str, str] | None = None, **body: Any) -> Any:
        address, _, token = self.url.partition("#")
        given = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        answer = urllib3.request(
            "POST", f"{address}api/{what}", body=json.dumps(body), headers={**given, **(headers or {})}
        )
        assert answer.status == status, answer.data
        return answer.json()

    def edit(self, schema: dict[str, Any], **edit: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("view", **page(schema), edit=edit)
        return found

    def look(self, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("look", **page(schema), **more)
        return found


def page(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: schema[key] for key in ("index", "file", "text", "fingerprint")}


def texts(found: dict[str, Any]) -> str:
    return "\n".join(f"{entry['text']} {entry['remedy']}" for entry in found["problems"])


def relation(node: dict[str, Any], name: str) -> str:
    return next(str(each["id"]) for each in node["relations"] if each["name"] == name)


@contextmanager
def served(url: str, folder: Path) -> Iterator[Asker]:
    files = DeploymentFolder(folder, url, "http://127.0.0.1:9200", {"DATABASE_URL": url})
    with DesignServer(DesignDatabase(url), files, "127.0.0.1:0") as server:
        yield Asker(server.url)


@pytest.fixture(scope="module")
def people(postgres: EmbeddedPostgres) -> str:
    url = postgres.create_database("designed_people")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLES)
    return url


def test_from_a_table_to_the_files_of_a_deployment(people: str, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with served(people, folder) as asker:
        found = asker.ask("database")
        assert [(table["table"], table["has_key"]) for table in found["tables"]] == [
            ("keyless", False),
            ("people", True),
            ("pets", True),
        ]
        schema = asker.ask("start", table="people")
        assert "soft_delete:\n  column: deleted_at" in schema["text"]
        assert "- enum: mood\n    variants: [low, high]" in schema["text"]
        assert "# password_hash: looks like a secret" in schema["text"]
        assert "description: What people call them" in schema["text"]
        schema = asker.edit(schema, op="column", column="mood", on=False)
        pets = relation(schema["tree"], "pets")
        schema = asker.edit(schema, op="aggregate", relation=pets, word="sum", column="weight")
        schema = asker.edit(schema, op="order", at=["pets"], column="weight", value="desc")
        schema = asker.edit(schema, op="limit", at=["pets"], value="3")
        schema = asker.edit(schema, op="filter", at=["pets"], column="weight", word="gt", value="10")
        look = asker.look(schema, id="2")
        document = json.loads(look["document"]["body"])
        assert [pet["id"] for pet in document["pets"]] == [899, 897, 895]
        assert document["sum_pets_weight"] == sum(range(1, 900, 2))
        assert "mood" not in document
        assert asker.look(schema, another=True)["document"]["id"].isdigit()
        saved = asker.ask("save", **page(schema))
        assert saved["written"] == ["people.schema.yml", "headrace.toml", "headrace.schema.json"]
        assert saved["next"][0] == f"headrace check --config {folder}/headrace.toml"
        again = asker.ask("start", table="people")
        assert again["file"] == "people_2.schema.yml", "a file that is there is no suggestion's name"
    [entry] = load_deployment(folder / "headrace.toml", {}).enabled
    assert (entry.name, entry.schema_path.read_text()) == ("people", schema["text"])


def test_what_will_hurt_is_measured(people: str, tmp_path: Path) -> None:
    with served(people, tmp_path) as asker:
        schema = asker.ask("start", table="people")
        found = asker.look(schema)
        sql = [statement for entry in found["problems"] for statement in entry["sql"]]
        assert any("CREATE INDEX CONCURRENTLY" in statement and "person_id" in statement for statement in sql)
        assert found["cost"]["lists"]["pets"] == [45.0, 450]


def test_a_file_is_edited_in_place_and_saved_only_where_it_is_as_loaded(people: str, tmp_path: Path) -> None:
    file = tmp_path / "people.schema.yml"
    file.write_bytes(FILE.replace("\n", "\r\n").encode())
    file.chmod(0o640)
    with served(people, tmp_path) as asker:
        assert asker.ask("database")["files"] == [{"file": file.name, "index": "people"}]
        schema = asker.ask("open", file=file.name)
        schema = asker.edit(schema, op="column", at=["pets"], column="weight")
        schema = asker.edit(schema, op="column", at=["pets"], column="name", on=False)
        wanted = FILE.replace("      - keyword: name\n", "      - decimal: weight\n")
        assert schema["text"] == wanted
        fingerprint = asker.ask("save", **page(schema))["fingerprint"]
        assert file.read_bytes() == wanted.replace("\n", "\r\n").encode()
        assert file.stat().st_mode & 0o777 == 0o640
        refused = asker.ask("save", status=409, **page(schema))
        assert "has been changed on disk meanwhile" in texts(refused)
        schema["fingerprint"] = fingerprint
        asker.ask("save", **page(schema))
        file.write_text("# somebody else was here\n" + FILE)
        schema["fingerprint"] = fingerprint
        asker.ask("save", status=409, **page(schema))
        assert file.read_text().startswith("# somebody else")
        asker.ask("save", **page(schema), force=True)
        assert not file.read_text().startswith("# somebody else")
        new = asker.ask("start", table="people") | {"file": file.name, "fingerprint": ""}
        assert "exists already" in texts(asker.ask("save", status=409, **page(new)))
        for name in ("../evil.schema.yml", "/tmp/evil.yml", "headrace.toml", "a\0.yml"):
            assert "not the name of a schema file" in texts(
                asker.ask("save", status=422, **page(schema | {"file": name}))
            )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "headrace.schema.json",
        "headrace.toml",
        "people.schema.yml",
    ]


def test_mistakes_are_told_and_nothing_is_edited_meanwhile(people: str, tmp_path: Path) -> None:
    with served(people, tmp_path) as asker:
        schema = asker.ask("start", table="people") | {"text": FILE + "  - txet: bio\n"}
        found = asker.ask("view", **page(schema))
        assert found["tree"] is None
        assert (found["text"], found["problems"][0]["line"]) == (schema["text"], 14)
        assert "Did you mean 'text'?" in texts(found)
        edit = {"op": "column", "column": "mood"}
        assert "unknown type" in texts(asker.ask("view", status=422, **page(schema), edit=edit))
        asker.ask("save", status=422, **page(schema))
        gone = asker.ask(
            "view", status=422, **page(schema | {"text": FILE}), edit={"op": "column", "at": ["gone"]}
        )
        assert texts(gone) == "the schema has no join gone It has changed meanwhile: look again."
        unknown = schema | {"text": FILE.replace("keyword: name", "keyword: nmae")}
        assert "has no column 'nmae'" in texts(asker.look(unknown))
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("index", ["2024_orders", "my-index", "", "x" * 64])
def test_nothing_is_saved_that_a_run_could_not_load(people: str, tmp_path: Path, index: str) -> None:
    with served(people, tmp_path) as asker:
        schema = asker.ask("start", table="people")
        named = schema | {"index": index, "file": "other.schema.yml"}
        refused = asker.ask("save", status=422, **page(named))
        assert "nothing is written" in texts(refused)
        assert "is no name" in texts(refused)
        assert list(tmp_path.iterdir()) == []
        asker.ask("save", **page(schema))
        before = {file: file.read_bytes() for file in tmp_path.iterdir()}
        assert "is no name" in texts(asker.ask("save", status=422, **page(named)))
        assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_an_index_is_added_only_to_a_deployment_that_still_loads(people: str, tmp_path: Path) -> None:
    """Lines for the index that do not fit the file, and a name that differs in case alone, are refused."""
    config, entry = tmp_path / "headrace.toml", '{ name = "people", schema = "people.schema.yml" }'
    (tmp_path / "people.schema.yml").write_text(FILE)
    config.write_text(f'index = [{entry}]\n[source]\ntype = "postgres"\nconnection_url = "{people}"\n')
    before = config.read_bytes()
    with served(people, tmp_path) as asker:
        schema = asker.ask("start", table="pets")
        assert "nothing is written" in texts(asker.ask("save", status=422, **page(schema)))
        assert config.read_bytes() == before
        config.write_text(
            f'[source]\ntype = "postgres"\nconnection_url = "{people}"\n[[index]]\n{entry[2:-2]}'.replace(
                ", ", "\n"
            )
        )
        before = config.read_bytes()
        assert "twice" in texts(asker.ask("save", status=422, **page(schema | {"index": "PEOPLE"})))
        assert config.read_bytes() == before
        asker.ask("save", **page(schema))
    assert [index.name for index in load_deployment(config, {}).enabled] == ["people", "pets"]


def test_a_schema_file_of_any_name_is_suggested_a_name_that_loads(people: str, tmp_path: Path) -> None:
    for name in ("my-index", "my_index", "2024", "é"):
        (tmp_path / f"{name}.schema.yml").write_text(FILE)
    with served(people, tmp_path) as asker:
        found = {each["file"]: each["index"] for each in asker.ask("database")["files"]}
        assert len(set(found.values())) == 4
        for file in found:
            asker.ask("save", **page(asker.ask("open", file=file)))
    assert {entry.name for entry in load_deployment(tmp_path / "headrace.toml", {}).enabled} == set(
        found.values()
    )


HOSTILE = [
    'a "quoted" one',
    "<script>alert(1)</script>",
    "Mixed Case",
    "new\nline",
    "../up",
    "é\u2028\x7f",
    "null",
]


@pytest.mark.long
def test_hostile_names_are_names(postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    url = postgres.create_database("designed_hostile")
    with psycopg.connect(url, autocommit=True) as connection:
        for name in HOSTILE:
            table = psycopg.sql.Identifier(name)
            connection.execute(
                psycopg.sql.SQL(
                    "CREATE TABLE {0} ({0} int PRIMARY KEY, {1} text, {2} int REFERENCES {0});"
                    "INSERT INTO {0} VALUES (1, 'x', 1);"
                    "COMMENT ON TABLE {0} IS E'<b>: it''s \"so\" #\\n x'"
                ).format(table, psycopg.sql.Identifier(f"{name} 2"), psycopg.sql.Identifier(f"{name} 3"))
            )
    with served(url, tmp_path) as asker:
        labels = [table["table"] for table in asker.ask("database")["tables"]]
        assert len(labels) == len(HOSTILE)
        for label in labels:
            schema = asker.ask("start", table=label)
            assert schema["problems"] == []
            for column in schema["tree"]["columns"]:
                assert column["at"] is not None
                schema = asker.edit(schema, op="column", column=column["name"], on=False)
            for column in schema["tree"]["columns"]:
                schema = asker.edit(schema, op="column", column=column["name"])
            schema = asker.edit(
                schema,
                op="filter",
                column=schema["tree"]["columns"][1]["name"],
                word="in",
                value="x, it's: #",
            )
            found = asker.look(schema)
            assert [entry for entry in found["problems"] if entry["level"] == "error"] == []
            assert json.loads(found["document"]["body"])
            asker.ask("save", **page(schema))
    assert len(list(tmp_path.glob("*.schema.yml"))) == len(HOSTILE)
    assert not (tmp_path.parent / "up.schema.yml").exists()
    assert len(load_deployment(tmp_path / "headrace.toml", {}).enabled) == len(HOSTILE)


def test_a_role_that_may_read_half_of_it(people: str, tmp_path: Path) -> None:
    with psycopg.connect(people, autocommit=True) as connection:
        connection.execute(
            "CREATE ROLE half LOGIN PASSWORD 'half'; GRANT SELECT (id, name) ON people TO half;"
        )
    half = psycopg.conninfo.make_conninfo(people, user="half", password="half")
    try:
        with served(half, tmp_path) as asker:
            schema = asker.ask("start", table="people")
            said = texts(asker.look(schema))
            assert "the role half may not read people" in said
            assert "the role half may not read pets" in said
            assert 'GRANT SELECT ON "public"."pets" TO "half"' in said
            readable = "version: 1\ntable: people\nprimary_key: id\nfields: [{long: id}, {text: name}]\n"
            found = asker.look(schema | {"text": readable})
            assert json.loads(found["document"]["body"]) == {"id": 1, "name": "person 1"}
    finally:
        with psycopg.connect(people, autocommit=True) as connection:
            connection.execute("DROP OWNED BY half; DROP ROLE half")


@pytest.mark.long
def test_two_thousand_tables_are_shown_at_once(postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    url = postgres.create_database("designed_many")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SET synchronous_commit = off; CREATE TABLE t_0 (id int PRIMARY KEY, name text);"
            "INSERT INTO t_0 VALUES (1, 'root')"
        )
        for first in range(1, 2000, 500):  # the locks of one transaction are bounded
            connection.execute(
                "DO $$ BEGIN FOR n IN "
                f"{first}..{first + 499} LOOP EXECUTE format('CREATE TABLE t_%s (id int PRIMARY KEY, "
                "name text, parent int REFERENCES t_%s)', n, n / 10); END LOOP; END $$"
            )
    with served(url, tmp_path) as asker:
        began = time.monotonic()
        assert len(asker.ask("database")["tables"]) == 2001
        schema = asker.ask("start", table="t_0")
        assert time.monotonic() - began < 10
        assert len(schema["tree"]["joins"]) == 9
        assert asker.look(schema)["document"]["id"] == "1"
    postgres.drop_database("designed_many")


def test_a_database_that_is_away_leaves_the_files_to_work_on(tmp_path: Path) -> None:
    (tmp_path / "people.schema.yml").write_text(FILE)
    with served("postgresql://me@127.0.0.1:9/none", tmp_path) as asker:
        found = asker.ask("database")
        assert (found["tables"], [file["file"] for file in found["files"]]) == ([], ["people.schema.yml"])
        assert "127.0.0.1:9" in texts(found)
        schema = asker.ask("open", file="people.schema.yml")
        assert (schema["text"], schema["tree"]) == (FILE, None)
        asker.ask("look", status=422, **page(schema))
        asker.ask("save", **page(schema | {"text": FILE + "# more\n"}))
    assert (tmp_path / "people.schema.yml").read_text() == FILE + "# more\n"


def test_a_table_that_is_locked_does_not_hang_the_page(people: str, tmp_path: Path) -> None:
    with served(people, tmp_path) as asker, psycopg.connect(people) as other:
        schema = asker.ask("start", table="people")
        other.execute("LOCK TABLE pets")
        began = time.monotonic()
        found = asker.ask("look", status=422, **page(schema))
        assert time.monotonic() - began < 8
        assert "lock" in texts(found)


def test_only_the_page_with_the_token_is_answered(people: str, tmp_path: Path) -> None:
    with served(people, tmp_path) as asker:
        address = asker.url.partition("#")[0]
        asker.ask("database", status=401, headers={"Authorization": "Bearer wrong"})
        asker.ask("database", status=421, headers={"Host": "evil.example"})
        asker.ask("database", status=421, headers={"Origin": "http://evil.example"})
        asker.ask("database", status=415, headers={"Content-Type": "text/plain"})
        assert urllib3.request("GET", f"{address}api/database").status == 405
        assert urllib3.request("GET", address, headers={"Host": "evil.example"}).status == 421
        whole = urllib3.request("GET", address)
        assert "script-src 'self'" in whole.headers["Content-Security-Policy"]
        assert b"people" not in whole.data


@pytest.mark.long
def test_the_command_prints_an_address_and_ends_when_it_is_told(people: str, tmp_path: Path) -> None:
    def start(*words: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "headrace",
            "design",
            "--no-browser",
            "--folder",
            str(tmp_path),
            *words,
        ]
        environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    with start() as refused:
        _, said = refused.communicate(timeout=60)
        assert (refused.returncode, "no database is named" in said) == (2, True)
    with start(people) as running:
        assert running.stdout is not None
        asker = Asker(running.stdout.readline().strip())
        try:
            assert len(asker.ask("database")["tables"]) == 3
        finally:
            running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)
        assert running.returncode == 0
        assert "3 tables" in said
        assert "because the URL has a password" in said
    with start(people, "--format", "json") as running:
        assert running.stdout is not None
        asker = Asker(json.loads(running.stdout.readline())["url"])
        try:
            assert len(asker.ask("database")["tables"]) == 3
        finally:
            running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
