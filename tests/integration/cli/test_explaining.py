"""What `headrace explain` says of documents with unusual ids; no Spark: the pipeline has nothing to do."""

from __future__ import annotations

import dataclasses
import html
import json
import time
from contextlib import closing
from typing import Any

import pytest
import urllib3

from headrace.cli import main
from headrace.pipeline.project import open_project
from headrace.postgres.connection import connect, execute
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import Counters, DeferredKeys, Quarantine, Quarantined, StateStore
from headrace.status import StatusBoard, StatusServer
from headrace.tools.explain import Explainer, answer
from integration.cli.stock import Stock


def explained(
    capsys: pytest.CaptureFixture[str], stock: Stock, id_: str, *, code: int = 0
) -> tuple[str, dict[str, str]]:
    """The verdict of `headrace explain stock ID`, and its facts; it ends with this exit code."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["explain", "stock", id_, "--config", str(stock.config), "--format", "json"])
    told = capsys.readouterr()
    assert ended.value.code == code, told.err
    printed: dict[str, Any] = json.loads(told.out)
    assert printed["right"] == (code == 0)
    return printed["verdict"], {fact["name"]: fact["value"] for fact in printed["facts"]}


def change(stock: Stock, statement: str) -> None:
    with connect(stock.url) as connection:
        execute(connection, statement)


def apply_everything(stock: Stock) -> None:
    """Note that the whole log is applied, as a run does after the last change."""
    project = open_project(stock.config, {})
    with closing(Client(Endpoint((stock.sink,)))) as client, connect(stock.url) as connection:
        [(end,)] = execute(connection, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint + 1000000")
        meta = StateStore(client, project.key)
        state = meta.load()
        assert state is not None
        meta.advance(end, Counters())


@pytest.mark.long
def test_a_document_that_is_right(stock: Stock, capsys: pytest.CaptureFixture[str]) -> None:
    verdict, facts = explained(capsys, stock, "3.50:a%3A%25")
    assert verdict == "stock/3.50:a%3A%25 is in the index as the database has it now"
    assert facts["row"] == "in stock"
    assert facts["generation"] == stock.generation
    assert facts["document"].startswith("written with every change up to ")
    assert (facts["deferred"], facts["in quarantine"]) == ("no", "no")


def test_a_row_that_a_filter_leaves_out(stock: Stock, capsys: pytest.CaptureFixture[str]) -> None:
    verdict, facts = explained(capsys, stock, "7.50:b")
    assert "is not in the index: its row in stock is filtered out by NOT hidden" in verdict
    assert "stock.schema.yml:4" in facts["left out by"]
    assert facts["document"] == "none"


@pytest.mark.long
@pytest.mark.parametrize("id_", ["900.50:b", "x:y", "1", "1:2:3", "9e99:b", "<b>:'\""])
def test_a_key_that_no_row_has(stock: Stock, capsys: pytest.CaptureFixture[str], id_: str) -> None:
    verdict, _ = explained(capsys, stock, id_)
    assert verdict == f"stock/{id_} is not in the index: stock has no row with this key"


def test_a_change_that_waits_and_one_that_is_lost(stock: Stock, capsys: pytest.CaptureFixture[str]) -> None:
    change(stock, "UPDATE stock SET label = 'another' WHERE shop = 'b' AND code = 4.50")
    change(stock, "DELETE FROM stock WHERE shop = 'b' AND code = 5.50")
    change(stock, "INSERT INTO stock VALUES ('b', 500, 'new')")
    verdict, _ = explained(capsys, stock, "4.50:b", code=1)
    assert "is in the index in an earlier state: its change waits in the log" in verdict
    verdict, _ = explained(capsys, stock, "5.50:b", code=1)
    assert "is still in the index, but should not be: stock has no row with this key" in verdict
    verdict, _ = explained(capsys, stock, "500.00:b", code=1)
    assert "is not in the index yet: its change waits in the log, the documents are " in verdict
    apply_everything(stock)
    verdict, _ = explained(capsys, stock, "4.50:b", code=1)
    assert verdict.endswith("in an earlier state, although every change is applied")


def test_an_edited_schema_file_that_no_run_has_taken_up(
    stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    file = stock.config.parent / "stock.schema.yml"
    file.write_text(f"{file.read_text()}  - boolean: hidden\n")
    verdict, _ = explained(capsys, stock, "3.50:b", code=1)
    assert verdict.endswith(
        "earlier state: stock was built from other files, or other columns, than there are now"
    )
    with pytest.raises(SystemExit):
        main(["explain", "stock", "3.50:b", "--config", str(stock.config)])
    assert "→ `headrace reload`" in capsys.readouterr().out
    project = open_project(stock.config, {})
    explainer = Explainer(project, project.resolve())
    trace = explainer.trace("stock", "3.50:b")
    assert trace.generation is not None
    building = dataclasses.replace(
        trace.generation, generation="next", hash=trace.files_hash, backfilled_at=None, published=False
    )
    rebuilding = dataclasses.replace(trace, state=trace.state.changed(building))
    assert answer(rebuilding).verdict.endswith("stock is being rebuilt from the files of now")
    pinned = dataclasses.replace(trace.generation, pinned=trace.files_hash)
    assert "a rollback serves" in answer(dataclasses.replace(trace, generation=pinned)).verdict


def test_a_document_in_quarantine_and_one_that_is_deferred(
    stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    project = open_project(stock.config, {})
    change(stock, "UPDATE stock SET label = 'another' WHERE shop = 'b' AND code = 4.50")
    with closing(Client(Endpoint((stock.sink,)))) as client:
        held = Quarantined.now("stock", "3.50:b", "mapper_parsing_exception", 1000, stock.generation)
        Quarantine(client, project.key).put([held])
        DeferredKeys(client, project.key).add(stock.generation, [[("4.50", "b")]], 2000)
        meta = StateStore(client, project.key)
        state = meta.load()
        assert state is not None
        meta.advance(state.applied + 8, Counters(), deferred=True)
    verdict, facts = explained(capsys, stock, "3.50:b", code=1)
    assert verdict == "the cluster refused stock/3.50:b: it is in quarantine"
    assert facts["in quarantine"].startswith("since 20")
    assert "mapper_parsing_exception" not in str(facts)  # a reason may quote the document
    verdict, facts = explained(capsys, stock, "4.50:b", code=1)
    assert "it waits to be written later" in verdict
    assert facts["deferred"] == "yes"


def test_an_unknown_index_is_named_with_those_there_are(
    stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", "stok", "1", "--config", str(stock.config)])
    assert ended.value.code == 2
    assert "stock" in capsys.readouterr().err


def test_people_read_lines(stock: Stock, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain", "stock", "3.50:b", "--config", str(stock.config)])
    verdict, *facts = capsys.readouterr().out.splitlines()
    assert verdict.startswith("stock/3.50:b is in the index")
    assert any(line.startswith("  applied ") for line in facts)


def test_the_console_says_the_same_within_a_second(stock: Stock, capsys: pytest.CaptureFixture[str]) -> None:
    project = open_project(stock.config, {})
    explainer = Explainer(project, project.resolve())
    with StatusServer(StatusBoard(["stock"]), "127.0.0.1:0", explains=explainer) as server:
        seconds = []
        for _ in range(3):
            began = time.monotonic()
            page = urllib3.request("GET", f"http://{server.address}/?document=stock/7.50:b").data.decode()
            seconds.append(time.monotonic() - began)
        assert html.escape(explained(capsys, stock, "7.50:b")[0]) in page
        assert min(seconds) < 3
        unknown = urllib3.request("GET", f"http://{server.address}/?document=stok/1").data.decode()
        assert "HEADRACE_USAGE" in unknown
