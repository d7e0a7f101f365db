"""What `headrace verify` makes of indexes with unusual ids; no Spark: the pipeline has nothing to do."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import urllib3

from headrace.cli import main
from headrace.cli.applied import Applied
from headrace.cli.inspection import inspect
from headrace.cli.project import Here, Project, open_project
from headrace.cli.seeding import Seeding
from headrace.postgres.connection import connect, execute
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import create_slot, drop_slot
from headrace.sinks.opensearch import Client, Counters, MetaIndex, PipelineState, Wish
from headrace.snapshot import plan_ranges
from headrace.spark.worker import Worker
from headrace.status.board import StatusBoard
from headrace.testing.opensearch import EmbeddedOpenSearch

_TABLES = (
    """CREATE TABLE stock (shop text, code numeric(6,2), label text, hidden boolean NOT NULL DEFAULT false,
                          PRIMARY KEY (shop, code)) PARTITION BY LIST (shop)""",
    "CREATE TABLE stock_a PARTITION OF stock FOR VALUES IN ('a:%')",
    "CREATE TABLE stock_rest PARTITION OF stock DEFAULT",
    """INSERT INTO stock SELECT shop, code + 0.50, E'line\\nand "quote" é ' || code, code % 7 = 0
       FROM unnest(ARRAY['a:%', 'b', 'ü/?#', 'with space', '%41', '']) AS shop,
            generate_series(1, 40) AS code""",
)
_SCHEMA = """\
version: 1
table: stock
primary_key: [code, shop]
filters: [{ raw: "NOT hidden" }]
fields:
  - keyword: shop
  - decimal: code
  - keyword: label
"""
_VERSION = "?version_type=external_gte&version="


class Stock:
    """A deployment whose index `stock` is seeded, and a pipeline that only notes how far the quiet log is."""

    def __init__(self, folder: Path, url: str, sink: str) -> None:
        self.name = f"stock_{uuid.uuid4().hex[:8]}"
        self.prefix = f"{self.name}_"
        self.url, self.sink = url, sink
        self.config = folder / "headrace.toml"
        (folder / "stock.schema.yml").write_text(_SCHEMA)
        self.config.write_text(
            f'prefix = "{self.prefix}"\n[source]\ntype = "postgres"\nconnection_url = {json.dumps(url)}\n'
            f'slot = "{self.name}"\npublication = "{self.name}"\n'
            f'[sinks.primary]\ntype = "opensearch"\nurl = "{sink}"\n'
            '[[index]]\nname = "stock"\nschema = "stock.schema.yml"\n'
        )
        self._project: Project = open_project(self.config, {})
        self._here: Here = self._project.resolve()

    def seed(self) -> None:
        """Make the slot and the index, and publish it."""
        project, here = self._project, self._here
        with connect(here.database) as connection:
            inspection = inspect(project, here, connection, reading=False)
        with create_slot(here.database, project.slot) as slot:
            point = slot.consistent_point
        with contextlib.closing(Client(here.sink)) as client:
            seeding = Seeding(inspection, here, client, StatusBoard())
            made = dataclasses.replace(seeding.make("stock", 0), seeded_at=point, published=True)
            self.generation = made.generation
            server = inspection.server
            state = PipelineState(
                system_identifier=str(server.system_identifier),
                timeline=server.timeline,
                database_oid=server.database_oid,
                slot=project.slot,
                publication=project.publication,
                phase="following",
                consistent_point=point,
                applied=point,
                generations=(made,),
            )
            with contextlib.closing(Worker(seeding.work(state.generations))) as worker:
                for part in self._ranges(inspection.catalog):
                    worker.seed(made.generation, part, point, None)
            MetaIndex(client, project.slot, project.prefix).save(state)
            seeding.finish(made)
            seeding.serve(made)
        with connect(
            here.database
        ) as connection:  # an edit by hand counts a version up: the log is beyond it
            execute(connection, "CREATE TABLE elsewhere (id int)")

    def _ranges(self, catalog: Any) -> list[Any]:
        with ReadSession(self._here.database) as session:
            return list(plan_ranges(session, catalog[self._project.specs["stock"].table], 8 << 20))

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """As by a run in which nothing changes: whoever waits is told how far the log is."""
        ended = threading.Event()
        thread = threading.Thread(target=self._follow, args=(ended,))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _follow(self, ended: threading.Event) -> None:
        with Applied(self._here, self.name, self.prefix) as applied:
            meta = MetaIndex(applied.client, self.name, self.prefix)
            wish = Wish(applied.client, self.name, self.prefix)
            meta.load()
            while not ended.wait(0.02):
                meta.advance(min(wish.read(), applied.end_of_log()), Counters())

    def ask(self, method: str, key: str, body: object = None, version: int | None = None) -> None:
        """Alter a document behind the pipeline's back."""
        fence = "" if version is None else f"{_VERSION}{version}"
        url = f"{self.sink}/{self.prefix}stock/_doc/{quote(key, safe='')}{fence}"
        answer = urllib3.request(method, url, json=body, timeout=30)
        assert answer.status < 300, answer.data

    def ids(self) -> set[str]:
        """Every id of the index."""
        alias = f"{self.sink}/{self.prefix}stock"
        urllib3.request("POST", f"{alias}/_refresh")
        found = urllib3.request("POST", f"{alias}/_search?size=1000", json={"_source": False}).json()
        return {hit["_id"] for hit in found["hits"]["hits"]}

    def drop(self) -> None:
        """Drop the slot."""
        with connect(self.url) as connection:
            drop_slot(connection, self.name)


@pytest.fixture
def stock(database: str, tmp_path: Path, opensearch: EmbeddedOpenSearch) -> Iterator[Stock]:
    with connect(database) as connection:
        for statement in _TABLES:
            execute(connection, statement)
    made = Stock(tmp_path, database, opensearch.url)
    made.seed()
    yield made
    made.drop()


def verified(capsys: pytest.CaptureFixture[str], stock: Stock, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of `headrace verify stock`."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["verify", "stock", "--config", str(stock.config), "--format", "json", *words])
    told = capsys.readouterr()
    assert ended.value.code in (0, 1), told.err
    return int(str(ended.value.code)), json.loads(told.out)


def drift(report: dict[str, Any]) -> dict[str, set[str]]:
    return {kind: {one["id"] for one in report[kind]["first"]} for kind in ("missing", "extra", "different")}


NONE: dict[str, set[str]] = {"missing": set(), "extra": set(), "different": set()}


def test_composite_ids_with_any_characters_under_a_prefix(
    stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a partitioned table, in the order of its key, which is not the order of the id."""
    with stock.followed():
        code, report = verified(capsys, stock)
        assert (code, drift(report)) == (0, NONE)
        assert report["documents"] == report["ids"] == len(stock.ids()) == 6 * 35
        assert report["alias"] == f"{stock.prefix}stock"
        lost, altered = "3.50:a%3A%25", "4.50:ü/?#"
        extra = {
            "3.50:a:%",
            "03.50:b",
            "3.5:b",
            "x:y",
            "1",
            "1:2:3",
            "5.50:with space ",
            "\x01 ü\u2028",
            "9e99:b",
        }
        assert {lost, altered, "3.50:", "3.50:%2541", "3.50:with space"} <= stock.ids()
        stock.ask("DELETE", lost)
        stock.ask("PUT", altered, {"shop": "ü/?#", "code": 4.5, "label": "another"})
        for one in extra:
            stock.ask("PUT", one, {"shop": "x"})
        code, report = verified(capsys, stock)
        assert (code, drift(report)) == (1, {"missing": {lost}, "extra": extra, "different": {altered}})
        assert report["different"]["first"][0]["path"] == "label"
        code, report = verified(capsys, stock, "--repair")
        assert (code, report["repair"]["repaired"]) == (0, 2 + len(extra))
        assert verified(capsys, stock)[0] == 0


def test_a_sample_is_the_same_for_the_same_seed_and_finds_what_is_in_it(
    stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    with stock.followed():
        _, report = verified(capsys, stock, "--sample", "50", "--seed", "one")
        assert report["sample"] == {"percent": 50.0, "seed": "one"}
        assert 60 < report["documents"] == report["ids"] < 150
        for one in stock.ids():
            stock.ask("DELETE", one)
        code, some = verified(capsys, stock, "--sample", "50", "--seed", "one")
        assert (code, some["missing"]["count"], some["ids"]) == (1, report["documents"], 0)
        _, other = verified(capsys, stock, "--sample", "20")
        assert other["sample"]["seed"]
        assert 10 < other["missing"]["count"] < 80
        code, all_ = verified(capsys, stock, "--repair")
        assert (code, all_["repair"]["repaired"]) == (0, 6 * 35)


def test_equal_values_in_other_bytes_are_right(stock: Stock, capsys: pytest.CaptureFixture[str]) -> None:
    """As an earlier version may have written them."""
    with stock.followed():
        url = f"{stock.sink}/{stock.prefix}stock/_doc/{quote('3.50:b', safe='')}"
        held = urllib3.request("GET", url).json()["_source"]
        stock.ask("PUT", "3.50:b", dict(reversed(held.items())))
        code, report = verified(capsys, stock)
        assert (code, drift(report)) == (0, NONE)


def test_what_a_row_became_that_nobody_applied_is_undecided(
    stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    """No pipeline: a new row may be on its way, and so may everything else that differs."""
    with connect(stock.url) as connection:
        execute(connection, "INSERT INTO stock VALUES ('b', 99, 'new')")
    code, report = verified(capsys, stock)
    assert (code, drift(report), report["undecided"]["count"]) == (1, NONE, 1)
    assert "nobody reads the slot" in report["undecided"]["why"]


def test_what_was_not_built_from_these_files_is_not_compared(
    stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["verify", *words, "--config", str(stock.config)])
        return int(str(ended.value.code)), capsys.readouterr().err

    code, said = refused("stok")
    assert code == 2
    assert "Did you mean 'stock'?" in said
    code, said = refused("stock", "--slot", "nobodys")
    assert (code, "HEADRACE_SLOT_UNKNOWN" in said) == (1, True)
    schema = stock.config.parent / "stock.schema.yml"
    schema.write_text(schema.read_text().replace("  - keyword: label\n", ""))
    code, said = refused("stock")
    assert (code, "HEADRACE_SCHEMA_CHANGED" in said) == (1, True)
