"""What `headrace verify` makes of indexes with unusual ids; no Spark: the pipeline has nothing to do."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
import urllib3

from headrace.cli import main
from headrace.postgres.connection import connect, execute
from integration.cli.stock import Stock


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
