"""What an operator does beside a pipeline that serves: documents in quarantine, and names of other tools."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.cli import main
from headrace.errors import HeadraceError
from headrace.postgres.connection import connect, execute
from headrace.sinks.opensearch import Client, Endpoint, Generations
from headrace.sinks.opensearch.adoption import holders
from headrace.state import Quarantine, Quarantined, StateKey
from headrace.tools import quarantined_documents
from integration.cli.stock import Stock
from support.http_proxy import Answer, HttpProxy, Request


@pytest.fixture
def quarantine(stock: Stock) -> Iterator[Quarantine]:
    with contextlib.closing(Client(Endpoint((stock.sink,)))) as client:
        yield Quarantine(client, StateKey(stock.name, stock.prefix))


def typed(capsys: pytest.CaptureFixture[str], stock: Stock, *words: str) -> tuple[int, str, str]:
    """Exit code, output and messages of `headrace WORDS`."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([*words, "--config", str(stock.config)])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


def refused(id_: str, generation: str, index: str = "stock") -> Quarantined:
    return Quarantined.now(index, id_, "not a number", 16, generation)


def listed(capsys: pytest.CaptureFixture[str], stock: Stock, *words: str) -> list[dict[str, Any]]:
    code, out, _ = typed(capsys, stock, "quarantine", "list", *words, "--format", "json")
    assert code == 0
    found: list[dict[str, Any]] = json.loads(out)
    return found


def test_documents_in_quarantine_are_listed_rebuilt_and_forgotten(
    stock: Stock, quarantine: Quarantine, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that was deleted meanwhile, and one whose id can never be."""
    assert listed(capsys, stock) == []
    with connect(stock.url) as connection:
        execute(connection, "INSERT INTO stock VALUES (repeat('x', 600), 1, 'long')")
    [present, gone] = sorted(stock.ids())[:2]
    long = f"1.00:{'x' * 600}"
    with connect(stock.url) as connection:
        code, _, shop = gone.partition(":")
        execute(
            connection, "DELETE FROM stock WHERE code = $1::numeric AND shop = $2", (code, _decoded(shop))
        )
    mine = [refused(one, stock.generation) for one in (present, gone, long)]
    quarantine.put([*mine, refused("1", "other_1", index="other")])
    assert {one["id"] for one in listed(capsys, stock, "stock")} == {present, gone, long}
    assert [one["position"] for one in listed(capsys, stock, "stock", present)] == ["0/10"]
    _, out, _ = typed(capsys, stock, "quarantine")
    assert "not a number" in out
    with stock.followed():
        code_, _, err = typed(capsys, stock, "quarantine", "retry", "stock")
    assert code_ == 1
    assert "built again, and accepted: 2 of 3 documents" in err
    [left] = listed(capsys, stock, "stock")
    assert left["id"] == long
    assert "bytes" in left["reason"]
    assert gone not in stock.ids()
    assert typed(capsys, stock, "quarantine", "drop", "--yes")[0] == 0
    assert listed(capsys, stock) == []


@pytest.mark.parametrize("action", ["list", "retry", "drop"])
def test_the_quarantine_of_an_unknown_index_is_not_called_empty(
    stock: Stock, quarantine: Quarantine, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    """An index that the deployment does not name any more, but that has entries, is known."""
    code, _, err = typed(capsys, stock, "quarantine", action, "Stock")
    assert (code, "Did you mean 'stock'?" in err) == (2, True)
    quarantine.put([refused("1", "gone_1", index="gone")])
    assert typed(capsys, stock, "quarantine", action, "gone", "2", "--yes")[0] == 0
    assert typed(capsys, stock, "quarantine", action, "stock")[0] == 0


def test_an_index_that_does_not_fit_holds_up_no_other_ones_verification_or_retry(
    stock: Stock, quarantine: Quarantine, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = stock.config.with_name("wrong.schema.yml")
    wrong.write_text(stock.config.with_name("stock.schema.yml").read_text() + "  - keyword: nothing\n")
    text = f'{stock.config.read_text()}\n[[index]]\nname = "wrong"\nschema = "{wrong.name}"\n'
    stock.config.write_text(text)
    id_ = next(iter(stock.ids()))
    quarantine.put([refused("1", "wrong_1", index="wrong"), refused(id_, stock.generation)])
    with stock.followed():
        assert typed(capsys, stock, "verify", "stock")[0] == 0
        assert "nothing" in typed(capsys, stock, "verify", "wrong")[2]
        code, _, err = typed(capsys, stock, "quarantine", "retry")
        assert (code, "built again, and accepted: 1 of 2 documents" in err) == (1, True)
        assert "wrong 1: " in err
        assert typed(capsys, stock, "quarantine", "retry", "wrong")[0] == 2
        wrong.write_text("version: 7\n")
        assert typed(capsys, stock, "verify", "stock")[0] == 0
        for command in ("preview", "reindex"):
            assert typed(capsys, stock, command, "stock")[0] == 0
        assert typed(capsys, stock, "quarantine", "retry", "stock")[0] == 0
        assert "'7'" in typed(capsys, stock, "verify", "wrong")[2]
    assert [one["index"] for one in listed(capsys, stock)] == ["wrong"]


def test_the_quarantine_of_a_secondary_cluster_is_its_own(
    stock: Stock, quarantine: Quarantine, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = {"type": "opensearch", "url": stock.sink, "prefix": f"{stock.name}_o_", "number_of_replicas": 0}
    lines = [f"{name} = {json.dumps(value)}" for name, value in beside.items()]
    stock.config.write_text("\n".join([stock.config.read_text(), "[sinks.other]", *lines, ""]))
    made = stock.seed_beside("other")
    id_, key = next(iter(stock.ids())), StateKey(stock.name, stock.prefix, "other")
    with contextlib.closing(Client(Endpoint((stock.sink,)))) as client:
        Quarantine(client, key).put([refused(id_, made.generation)])
    assert listed(capsys, stock) == []
    assert [entry["id"] for entry in listed(capsys, stock, "--sink", "other")] == [id_]
    with stock.followed():
        code, _, err = typed(capsys, stock, "quarantine", "retry", "--sink", "other")
        assert code == 0, err
        assert "accepted: 1 of 1 document" in err
        assert typed(capsys, stock, "verify", "stock", "--sink", "other")[0] == 0
    assert listed(capsys, stock, "--sink", "other") == []


def test_what_a_retry_cannot_replace_stays_and_what_it_could_is_gone_before_it_fails(
    stock: Stock, quarantine: Quarantine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version beyond the log fences every write."""
    monkeypatch.setattr(quarantined_documents, "_AT_ONCE", 2)
    first, ahead, gone, last = sorted(stock.ids())[:4]
    stock.ask("PUT", ahead, {"label": "by hand"}, version=2**60)
    quarantine.put([refused(one, stock.generation) for one in (first, ahead, gone, last)])
    with stock.followed():
        code, _, err = typed(capsys, stock, "quarantine", "retry")
    assert code == 1
    assert "built again, and accepted: 3 of 4 documents" in err
    assert "fenced: its version 1152921504606846976 is ahead of the database's log" in err
    assert [one["id"] for one in listed(capsys, stock)] == [ahead]

    quarantine.drop(stock.generation, {ahead: 2**60})
    quarantine.put([refused(one, stock.generation) for one in (first, gone, last)])
    bulks = itertools.count()

    error = {"type": "security_exception", "reason": "no permissions for [indices:data/write/bulk[s]]"}
    forbidden = {"errors": True, "items": [{"index": {"status": 403, "error": error}}]}

    def refuse_second(request: Request) -> Answer | None:
        is_bulk = f"{stock.generation}.write".encode() in request.body
        return Answer(200, json.dumps(forbidden).encode()) if is_bulk and next(bulks) else None

    with HttpProxy(stock.sink, spoil=refuse_second) as front, stock.followed():
        stock.config.write_text(stock.config.read_text().replace(stock.sink, front.url))
        assert "no permissions for [indices:data/write/bulk" in typed(capsys, stock, "quarantine", "retry")[2]
    stock.config.write_text(stock.config.read_text().replace(front.url, stock.sink))
    assert len(listed(capsys, stock)) == 1


def _decoded(part: str) -> str:
    return part.replace("%3A", ":").replace("%25", "%")


def test_a_name_of_another_tool_is_adopted_and_served(
    stock: Stock, quarantine: Quarantine, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client(Endpoint((stock.sink,)))
    name, old = f"{stock.name}x", f"{stock.name}x_old"
    client.call("PUT", f"/{old}", {"aliases": {name: {}}})
    code, out, err = typed(capsys, stock, "adopt", "stock", "--name", name, "--yes")
    assert code == 0, err
    back = json.loads(out)
    [held] = holders(client, name)
    assert held.index.startswith(f"{stock.prefix}stock_")
    assert "leads to it already" in typed(capsys, stock, "adopt", "stock", "--name", name)[2].replace(
        held.index, "it"
    )
    client.call("POST", "/_aliases", back)
    assert [one.index for one in holders(client, name)] == [old]
    client.call("DELETE", f"/{old}")
    client.call("PUT", f"/{name}")
    code, _, err = typed(capsys, stock, "adopt", "stock", "--name", name)
    assert (code, "--delete-index" in err) == (1, True), "refused before anything is asked"
    code, out, err = typed(capsys, stock, "adopt", "stock", "--name", name, "--yes", "--delete-index")
    assert (code, "only a copy of yours can restore it" in err) == (0, True)
    assert f"to free the name {name} again" in err
    assert json.loads(out)["actions"] == [back["actions"][0]]
    assert [one.index for one in holders(client, name)] == [held.index]
    with pytest.raises(HeadraceError):
        client.call("PUT", f"/{name}")
    client.close()


def test_a_generation_published_before_the_answer_gets_the_name(
    stock: Stock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{stock.name}y"
    with contextlib.closing(Client(Endpoint((stock.sink,)))) as client:
        generations = Generations(client, stock.prefix)
        [before] = generations.existing("stock")

        def agree() -> str:
            generations.publish(later)  # as a run does while the operator thinks
            return "y"

        later = generations.create("stock", "cd", {"settings": {"index": {}}, "mappings": {}})
        try:
            monkeypatch.setattr("builtins.input", agree)
            code, _, err = typed(capsys, stock, "adopt", "stock", "--name", name)
            assert (code, f"{name} leads to {later.index}\n" in err) == (0, True), err
            assert [holder.index for holder in holders(client, name)] == [later.index]
        finally:
            generations.publish(before)
            generations.drop(later)
