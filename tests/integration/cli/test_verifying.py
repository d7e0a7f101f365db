"""What `headrace verify` makes of indexes with unusual ids; no Spark: the pipeline has nothing to do."""

from __future__ import annotations

import gzip
import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import urllib3

from headrace.cli import main
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.pipeline.deferred_documents import DeferredDocuments
from headrace.pipeline.project import open_project
from headrace.postgres.connection import connect, execute
from headrace.sinks.opensearch import Client, Endpoint
from headrace.sinks.opensearch.client import READ_ATTEMPTS
from headrace.state import Counters, DeferredKeys, StateKey, StateStore
from headrace.state.sink_notes import SecondarySinkNotes
from headrace.state.verifications import Verifications
from headrace.tools.applied_position import AppliedPosition
from integration.cli.stock import TABLES, Stock
from support.http_proxy import Answer, HttpProxy, Request


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
        with closing(Client(Endpoint((stock.sink,)))) as client:
            results = Verifications(client, StateKey(stock.name, stock.prefix))
            noted = results.results(["stock", "other"])["stock"]
            assert (noted.text.partition(": ")[2], noted.drift) == ("210 documents, 11 wrong", 11)
            assert verified(capsys, stock, "--sample", "0.000001")[0] == 0
            noted = results.results(["stock"])["stock"]
            assert noted.drift == 11, "a sample that meets none says nothing of the others"
            assert "all right; 11 wrong by the verification before" in noted.text
            code, report = verified(capsys, stock, "--repair")
            assert (code, report["repair"]["repaired"]) == (0, 2 + len(extra))
            assert verified(capsys, stock)[0] == 0
            noted = results.results(["stock"])["stock"]
            assert (noted.text.partition(": ")[2], noted.drift) == ("210 documents, all right", 0)
            results.forget("stock")
            assert results.results(["stock"]) == {}


def test_a_sample_without_documents_is_refused(stock: Stock, capsys: pytest.CaptureFixture[str]) -> None:
    """It would find every index right."""
    with pytest.raises(SystemExit) as ended:
        main(["verify", "stock", "--config", str(stock.config), "--sample", "0"])
    assert ended.value.code == 2
    assert "a sample of 0 % holds no document" in " ".join(capsys.readouterr().err.split())


def test_a_cluster_that_is_busy_for_seconds_is_waited_for(
    database: str, opensearch: EmbeddedOpenSearch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a node whose heap is full until its next collection, for all that reads documents."""
    with connect(database) as connection:
        for statement in TABLES:
            execute(connection, statement)
    refused: list[float] = []

    def spoil(request: Request) -> Answer | None:
        reads = f"{stock.prefix}stock" in request.target
        if not reads or (refused and time.monotonic() > refused[0] + 4.0):
            return None
        refused.append(time.monotonic())
        return Answer(429, b'{"error":{"type":"circuit_breaking_exception","reason":"full"}}')

    with HttpProxy(opensearch.url) as node:
        stock = Stock(tmp_path, database, node.url)
        stock.seed()
        with stock.followed():
            node.spoil = spoil
            assert verified(capsys, stock)[0] == 0
    assert len(refused) > READ_ATTEMPTS
    stock.drop()


@pytest.mark.long
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


@pytest.mark.long
def test_what_a_row_became_that_nobody_applied_is_undecided(
    stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    """No pipeline: a new row may be on its way, and so may everything else that differs."""
    with connect(stock.url) as connection:
        execute(connection, "INSERT INTO stock VALUES ('b', 99, 'new')")
    code, report = verified(capsys, stock)
    assert (code, drift(report), report["undecided"]["count"]) == (1, NONE, 1)
    assert "nobody reads the slot" in report["undecided"]["why"]


def test_a_row_that_cannot_be_read_is_named_and_the_others_are_compared(
    stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    """The schema's filter divides by the length of a label."""
    with connect(stock.url) as connection:
        execute(connection, "UPDATE stock SET label = '' WHERE shop IN ('b', '%41') AND code = 3.50")
    stock.ask("DELETE", "3.50:b")
    stock.ask("DELETE", "4.50:b")
    stock.ask("PUT", "03.50:b", {"shop": "x"})
    with stock.followed():
        code, report = verified(capsys, stock)
        assert (code, drift(report)) == (1, NONE | {"missing": {"4.50:b"}, "extra": {"03.50:b"}})
        reason = "a condition of the row of stock: the database says: division by zero (SQLSTATE 22012)"
        unreadable = [{"id": one, "why": reason} for one in ("3.50:%2541", "3.50:b")]
        assert report["unreadable"] == {"count": 2, "ahead": 0, "first": unreadable}
        code, said = typed(capsys, stock, "verify", "stock", "--repair")
        assert (code, "Rows that cannot be read have no right document" in said) == (1, True)
        with connect(stock.url) as connection:
            execute(connection, "UPDATE stock SET label = 'right' WHERE label = ''")
        code, report = verified(capsys, stock)
        assert (code, report["unreadable"]["count"]) == (1, 0)
        assert drift(report) == NONE | {"missing": {"3.50:b"}, "different": {"3.50:%2541"}}


def test_beside_a_row_that_cannot_be_read_each_document_counts_once(
    stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that are no documents, a range of nothing else too: what the index holds of them is one extra."""
    with connect(stock.url) as connection:
        execute(connection, "UPDATE stock SET label = '' WHERE shop = 'b' AND code = 3.50")
        execute(
            connection,
            "INSERT INTO stock SELECT 'a:%', 1000 + i * 0.01, 'x', true FROM generate_series(1, 2500) AS i",
        )
        execute(connection, "VACUUM ANALYZE stock")
    stock.ask("DELETE", "4.50:ü/?#")
    for extra in ("7.50:b", "14.50:%2541", "1001.00:a%3A%25", "no:row"):
        stock.ask("PUT", extra, {"shop": "x"})
    with stock.followed():
        code, report = verified(capsys, stock)
        assert code == 1
        assert {kind: report[kind]["count"] for kind in drift(report)} == {
            "missing": 1,
            "extra": 4,
            "different": 0,
        }
        assert (report["documents"], report["ids"]) == (6 * 35 - 1, 6 * 35 - 1 + 4)
        assert (report["in_flight"], report["changing"], report["unreadable"]["count"]) == (0, 0, 1)
        code, report = verified(capsys, stock, "--repair")
        assert (code, report["repair"]["repaired"], report["repair"]["left"]["count"]) == (1, 5, 0)
        assert "3.50:b" in stock.ids()
        code, report = verified(capsys, stock)
        assert (code, drift(report), report["unreadable"]["count"]) == (1, NONE, 1)


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


_BESIDE = """
[sinks.other]
type = "opensearch"
url = "{url}"
prefix = "{prefix}"
number_of_replicas = 0

[sinks.printed]
type = "stdout"
"""


def typed(capsys: pytest.CaptureFixture[str], stock: Stock, command: str, *words: str) -> tuple[int, str]:
    """Exit code and messages of a command."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([command, *words, "--config", str(stock.config)])
    return int(str(ended.value.code)), capsys.readouterr().err


@pytest.mark.long
def test_a_secondary_sink_is_compared_and_repaired_as_the_primary_is(
    stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is deferred for it may be in flight, and whoever waits is told so; the primary is left alone."""
    prefix = f"{stock.name}_other_"
    stock.config.write_text(stock.config.read_text() + _BESIDE.format(url=stock.sink, prefix=prefix))
    for command, words in (("verify", ["stock"]), ("wait", [])):
        code, said = typed(capsys, stock, command, *words, "--sink", "othre")
        assert (code, "Did you mean 'other'?" in said) == (2, True)
        code, said = typed(capsys, stock, command, *words, "--sink", "printed")
        assert code == 2
        assert "'printed' is no search cluster" in said
        assert "Known here: other, primary." in said
        code, said = typed(capsys, stock, command, *words, "--sink", "other")
        assert (code, "HEADRACE_SLOT_UNKNOWN" in said) == (1, True)
        assert "no run has used the sink 'other' yet" in said
    made = stock.seed_beside("other")
    beside, there = ("--sink", "other"), f"{prefix}stock"
    with stock.followed(), closing(Client(Endpoint((stock.sink,)))) as client:
        code, report = verified(capsys, stock, *beside)
        assert (code, drift(report)) == (0, NONE)
        assert (report["alias"], report["generation"], report["sink"]) == (there, made.generation, "other")
        stock.ask("DELETE", "3.50:b", index=there)
        stock.ask("PUT", "no:row", {"shop": "x"}, index=there)
        assert verified(capsys, stock)[0] == 0
        assert verified(capsys, stock, "--sink", "primary")[0] == 0
        code, report = verified(capsys, stock, *beside)
        assert (code, drift(report)) == (1, NONE | {"missing": {"3.50:b"}, "extra": {"no:row"}})
        assert (
            "`headrace verify stock --sink other --repair`"
            in typed(capsys, stock, "verify", "stock", *beside)[1]
        )

        notes = SecondarySinkNotes(client, StateKey(stock.name, stock.prefix, "other"))
        notes.deferred.add(made.generation, [[("3.50", "b")]], 1)
        notes.note_away("it is full")
        code, report = verified(capsys, stock, *beside)
        assert (code, drift(report), report["undecided"]["count"]) == (1, NONE, 2)
        assert report["undecided"]["why"] == "the sink 'other' is away: it is full"
        code, said = typed(capsys, stock, "wait", *beside, "--timeout", "0.5")
        assert (code, "HEADRACE_BEHIND" in said, "it is full" in said) == (1, True, True)
        assert typed(capsys, stock, "wait")[0] == 0
        notes.forget()
        assert typed(capsys, stock, "wait", *beside, "--searchable")[0] == 0

        code, report = verified(capsys, stock, *beside, "--repair")
        assert (code, report["repair"]["repaired"]) == (0, 2)
        assert verified(capsys, stock, *beside)[0] == verified(capsys, stock)[0] == 0


def test_an_ingest_pipeline_of_a_settings_file_alters_documents_and_they_are_right(
    database: str, tmp_path: Path, opensearch: EmbeddedOpenSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only ids are compared, as with one of the sink; `check` says that it is missing.

    The embedded node has no ingest role: a proxy does what the pipeline would do.
    """

    def ingest(request: Request) -> Answer | None:
        if "_bulk" not in request.target:
            return None
        url, body = f"{opensearch.url}{request.target}&pipeline=_none", request.body
        body = gzip.decompress(body) if request.headers.get("content-encoding") == "gzip" else body
        kind = {"content-type": request.headers["content-type"]}
        answer = urllib3.request("POST", url, body=body.replace(b'"line', b'"LINE'), headers=kind)
        return Answer(answer.status, answer.data)

    with connect(database) as connection:
        for statement in TABLES:
            execute(connection, statement)
    (tmp_path / "settings.json").write_text('{"index": {"default_pipeline": "labelled"}}')
    pipeline = f"{opensearch.url}/_ingest/pipeline/labelled"
    with HttpProxy(opensearch.url, spoil=ingest) as node:
        stock = Stock(tmp_path, database, node.url, 'settings_file = "settings.json"\n')
        assert "no ingest pipeline 'labelled'" in typed(capsys, stock, "check")[1]
        assert urllib3.request("PUT", pipeline, json={"processors": [{"drop": {}}]}).status == 200
        assert "ingest pipeline" not in typed(capsys, stock, "check")[1]
        stock.seed()
        with stock.followed():
            code, report = verified(capsys, stock)
        assert (code, drift(report), report["contents"]) == (0, NONE, False)
        with pytest.raises(SystemExit) as ended:
            main(["explain", "stock", "3.50:b", "--config", str(stock.config)])
        assert ended.value.code == 0
        assert "is in the index, altered by an ingest pipeline" in capsys.readouterr().out
    stock.drop()
    urllib3.request("DELETE", pipeline)


def test_a_document_is_compared_as_a_value(stock: Stock, capsys: pytest.CaptureFixture[str]) -> None:
    """As `verify` does: the order of keys and zeros at a number's end do not count."""
    stock.ask("PUT", "3.50:b", {"label": 'line\nand "quote" é 3', "code": 3.5, "shop": "b"})
    with stock.followed():
        assert verified(capsys, stock)[0] == 0
    with pytest.raises(SystemExit) as ended:
        main(["explain", "stock", "3.50:b", "--config", str(stock.config)])
    assert ended.value.code == 0


def test_a_wait_is_not_over_while_all_documents_are_written_again(stock: Stock) -> None:
    """As after a partition was detached: its rows are gone without a change in the log."""
    project = open_project(stock.config, {})
    with AppliedPosition(project.resolve(), project.key) as applied:
        store = StateStore(applied.client, project.key)
        state = store.load()
        assert state is not None
        assert applied.covers(applied.state(), state.applied)
        renewal = DeferredDocuments(applied.client, project.key, store, [], [], lambda _: None)
        renewal.renew(state.generations[0], state.applied)
        assert not applied.covers(applied.state(), state.applied)
        store.advance(state.applied + 1, Counters())  # a later batch, as an idle position
        assert applied.state().ahead == state.applied + 1
        assert not applied.covers(applied.state(), state.applied)
        DeferredKeys(applied.client, project.key).forget()
        assert applied.covers(applied.state(), state.applied)
