"""Use the product as a user does: type a command and read what it prints."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import urllib3

import headrace
from headrace.postgres.connection import connect, execute
from support.warm_commands import run_command

NOWHERE = "http://127.0.0.1:9"
"""A cluster that is not there: nothing listens on that port."""
PEOPLE = """
CREATE TABLE people (id bigint PRIMARY KEY, name text NOT NULL);
CREATE TABLE pets (id bigint PRIMARY KEY, person_id bigint NOT NULL REFERENCES people, name text NOT NULL);
CREATE TABLE notes (text text)
"""
SCHEMA = """\
version: 1
table: people
primary_key: id
fields:
  - long: id
  - text: name
"""
PETS = """\
  - has_many: pets
    table: pets
    primary_key: id
    foreign_key: person_id
    fields:
      - text: name
"""
NO_SPARK = {"HEADRACE_CONF": "spark.driver.memory=nonsense"}
"""A run that is typed is refused before it needs Spark, whose start beside the checks costs seconds."""
_ERROR = re.compile(r"^error \[HEADRACE_(?P<kind>[A-Z_]+)\] (?P<text>.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[tuple[str, str]]:
        """Kind and text of each error line."""
        return [(match["kind"], match["text"]) for match in _ERROR.finditer(self.err)]

    def refused(self, code: int, kind: str) -> str:
        """The text of the only error, which has this exit code and kind."""
        assert [found for found, _ in self.errors] == [kind], self.err
        assert self.code == code, self.err
        return self.errors[0][1]


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Ours without settings that a developer's shell may hold."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HEADRACE_", "PRIMARY_OPENSEARCH")) and name != "DATABASE_URL"
    }
    source = str(Path(headrace.__file__).parents[1])
    return {**ours, "PYTHONPATH": source, **more}


@dataclass
class Deployment:
    """A folder with files for the table `people`, and the commands that are typed in it.

    Attributes:
        name: of the slot, the publication and the index.
        source: more lines of [source].
    """

    folder: Path
    url: str
    sink: str = NOWHERE
    name: str = "people"
    schema: str = SCHEMA
    source: str = 'replica_identity = "check"'
    more: str = ""
    secrets: list[str] = field(default_factory=list)

    def write(self) -> None:
        """Write the files anew."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "people.schema.yml").write_text(self.schema)
        (self.folder / "headrace.toml").write_text(
            f'[source]\ntype = "postgres"\nconnection_url = {json.dumps(self.url)}\n'
            f'slot = "{self.name}"\npublication = "{self.name}"\n{self.source}\n'
            f'[sinks.primary]\ntype = "opensearch"\nurl = "{self.sink}"\n'
            f'[[index]]\nname = "{self.name}"\nschema = "people.schema.yml"\n{self.more}\n'
        )

    def type(self, *words: str, answer: str = "", **variables: str) -> Outcome:
        """Type `headrace WORDS` in the folder; no password and no traceback may be printed.

        A run can only be one that is refused.
        """
        done = run_command(words, self.folder, environment(NO_SPARK | variables), answer=answer)
        printed = done.stdout + done.stderr
        assert "Traceback" not in printed, printed
        for secret in (urlsplit(self.url).password, *self.secrets):
            assert secret is None or secret not in printed
        return Outcome(done.returncode, done.stdout, done.stderr)

    def left_in_database(self, url: str = "") -> list[str]:
        """What of ours is in the database: slots, publications, indexes, replica identities."""
        sql = """
            SELECT 'slot ' || slot_name FROM pg_replication_slots WHERE database = current_database()
            UNION ALL SELECT 'publication ' || pubname FROM pg_publication
            UNION ALL SELECT 'index ' || relname FROM pg_class WHERE relname LIKE '%headrace%'
            UNION ALL SELECT 'identity of ' || relname FROM pg_class
            WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relreplident <> 'd'
        """
        with connect(url or self.url) as connection:
            return sorted(row[0] for row in execute(connection, sql))

    def left_in_cluster(self) -> list[str]:
        """The indexes of this deployment and what the cluster remembers of it."""
        indexes = urllib3.request("GET", f"{self.sink}/_cat/indices?format=json&expand_wildcards=all").json()
        own = sorted(one["index"] for one in indexes if one["index"].startswith(f"{self.name}_"))
        state = urllib3.request("GET", f"{self.sink}/headrace_meta/_doc/{self.name}").json()
        return own + (["state"] if state.get("found") else [])
