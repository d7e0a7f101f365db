"""docs/guides/moving.md, From PGSync, as it stands: convert, look, follow, take the name over, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import headrace
from e2e.walkthrough import blocks, commands, shell, typed
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import connect, execute
from headrace.sinks.opensearch import Client, Endpoint

DATA = Path(__file__).parents[1] / "data" / "pgsync"
CONVERT, FOLLOW, SWITCH, BACK = blocks("From PGSync", "sh")


@dataclass
class Mover:
    """The folder of somebody who has PGSync, and the servers."""

    folder: Path
    url: str
    client: Client
    convert: str
    """The command that converts."""

    def write(self, *indexes: str) -> None:
        """Keep only these indexes of the file; of none: all."""
        entries = json.loads((DATA / "schema.json").read_text())
        kept = [entry for entry in entries if not indexes or entry["index"] in indexes]
        (self.folder / "schema.json").write_text(json.dumps(kept, indent=2))


@pytest.fixture
def mover(
    postgres: EmbeddedPostgres,
    opensearch: EmbeddedOpenSearch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Mover]:
    url = postgres.create_database("town")
    with connect(url) as connection:
        connection.execute((DATA / "tables.sql").read_bytes())
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("ELASTICSEARCH_URL", opensearch.url)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "moved"))
    client = Client(Endpoint((opensearch.url,)))
    yield Mover(tmp_path, url, client, commands(CONVERT)[0].replace('"$ELASTICSEARCH_URL"', opensearch.url))
    client.close()
    postgres.drop_database("town")


def test_the_files_of_pgsync_are_converted_checked_and_shown(
    mover: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    mover.write("groups", "people")
    _, folder, check, preview = commands(CONVERT)
    code, _, said = typed(mover.convert)
    assert (code, "error" in said) == (0, False), said
    assert "wrote moved/headrace.toml" in said
    written = "".join(file.read_text() for file in Path("moved").iterdir())
    assert str(urlsplit(mover.url).password) not in written + said
    code, _, said = typed(mover.convert)
    assert (code, "exists already" in said) == (2, True)
    assert typed(f"{mover.convert} --force")[0] == 0
    monkeypatch.chdir(folder.split()[1])
    code, _, said = typed(check)
    assert "error" not in said, said
    assert "groups" in said
    code, out, _ = typed(preview)
    assert code == 0
    assert json.loads(out)["group"] == [{"id": 1, "group_name": "climbers"}, {"id": 2, "group_name": "cooks"}]


def test_the_cluster_takes_every_index_of_pgsyncs_examples(
    mover: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left to do is listed with its line, with exit code 1; the rest is a whole deployment."""
    mover.write()
    code, _, said = typed(mover.convert)
    assert code == 1
    left = re.findall(r"^error schema\.json:\d+: (.*?)[:,;]", said, re.MULTILINE)
    assert left == [
        "plugins are your own Python code",
        "plugins are your own Python code",
        "album_view is a view",
        "label_view is a view",
        "several foreign keys lead from area_above to area",
    ], said
    monkeypatch.chdir("moved")
    code, _, said = typed("headrace check")
    assert not re.findall(r"^error.*$", said, re.MULTILINE)


@pytest.mark.long
def test_readers_move_from_pgsyncs_index_and_back(mover: Mover, monkeypatch: pytest.MonkeyPatch) -> None:
    mover.write("groups")
    client = mover.client
    keyword = {"mappings": {"properties": {"name": {"type": "keyword"}}}}
    client.call("PUT", "/groups", keyword)
    client.call("PUT", "/groups/_doc/1?refresh=true", {"id": 1, "name": "as PGSync wrote it"})
    assert typed(mover.convert)[0] == 0
    monkeypatch.chdir("moved")
    setup, run, verify = commands(FOLLOW)
    copy, _, adopt = commands(SWITCH)[0].rpartition(" && ")
    assert typed(f"{setup} --yes")[0] == 0
    assert run == "headrace run"
    pipeline = headrace.Pipeline.from_file("headrace.toml")
    with pipeline.start() as running:
        running.wait_ready(timeout=180)
        assert typed(verify)[0] == 0
        shell(copy)
        assert typed(f"{adopt} --yes")[0] == 0
        with connect(mover.url) as connection:
            execute(connection, "UPDATE person SET name = 'Patricia' WHERE id = 1")
        running.wait(searchable=True)
        assert client.read("/groups/_doc/1").json()["_source"]["name"] == "Patricia"
        [line] = commands(BACK)
        shell(line)
        assert client.read("/groups/_doc/1").json()["_source"]["name"] == "as PGSync wrote it"
        mapping = client.read("/groups/_mapping").json()["groups_before"]["mappings"]
        assert mapping["properties"]["name"] == {"type": "keyword"}
        client.call("PUT", "/groups/_doc/2", {"name": "and goes on"})
    pipeline.teardown(indexes=True)
    client.call("DELETE", "/groups_before")
