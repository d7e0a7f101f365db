"""Does every command that prints data print it as JSON, under the keys that its help lists?"""

from __future__ import annotations

import json
import re
import threading
from contextlib import closing
from typing import Any

import pytest
import typer

from headrace.cli import main
from headrace.cli.app import app
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import create_slot
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import Mailbox, OrderKind, Quarantine, Quarantined, StateKey
from integration.cli.command_line import PETS, SCHEMA, Deployment
from integration.cli.stock import Stock

COMMANDS = typer.main.get_group(app).commands


def checked(command: str, text: str) -> dict[str, Any]:
    """Return the object that a command printed; all of its keys are documented."""
    found = json.loads(text)
    assert isinstance(found, dict)
    assert found.keys() <= set(re.findall(r"`(\w+)`", COMMANDS[command].help or "")), command
    return found


def printed(capsys: pytest.CaptureFixture[str], stock: Stock, *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([*words, "--config", str(stock.config), "--format", "json"])
    return int(ended.value.code or 0), checked(words[0], capsys.readouterr().out)


def test_what_would_be_asked_is_printed_and_not_done_without_yes(whole: Deployment) -> None:
    whole.schema = SCHEMA + PETS
    whole.source = 'replica_identity = "auto"'
    whole.write()
    told = whole.type("setup", "--format", "json")
    found = checked("setup", told.out)
    assert (told.code, found["done"], "CREATE PUBLICATION" in found["sql"]) == (1, False, True)
    assert "add --yes" in told.err
    assert whole.left_in_database() == []
    done = whole.type("setup", "--yes", "--format", "json")
    assert (done.code, checked("setup", done.out)["sql"]) == (0, found["sql"])
    again = whole.type("setup", "--format", "json")
    assert (again.code, checked("setup", again.out)["sql"], json.loads(again.out)["done"]) == (0, "", True)

    create_slot(whole.url, whole.name).close()
    kept = whole.type("slots", "drop", whole.name, "--format", "json")
    assert (kept.code, checked("slots", kept.out)["done"]) == (1, False)
    dropped = whole.type("slots", "drop", whole.name, "--yes", "--format", "json")
    assert (dropped.code, checked("slots", dropped.out)["slot"]) == (0, whole.name)

    told = whole.type("teardown", "--indexes", "--format", "json")
    found = checked("teardown", told.out)
    assert (told.code, found["done"], found["aliases"]) == (1, False, [whole.name])
    assert "DROP PUBLICATION" in found["sql"]
    assert whole.type("teardown", "--indexes", "--yes", "--format", "json").code == 0
    assert whole.left_in_database() == []


def test_the_files_that_are_written_are_listed_with_what_comes_next(people: Deployment) -> None:
    variables = {"DATABASE_URL": people.url}
    told = people.type("init", "--table", "people", "--folder", "new", "--format", "json", **variables)
    found = checked("init", told.out)
    assert "new/headrace.toml" in found["written"]
    assert found["next"][0] == "headrace check --config new/headrace.toml"

    node = {"table": "people", "columns": ["id", "unheard_of"]}
    tree = [{"database": "d", "index": "people", "nodes": node}]
    (people.folder / "schema.json").write_text(json.dumps(tree))
    words = ("convert", "pgsync", "schema.json", "--folder", "moved", "--format", "json")
    told = people.type(*words, **variables)
    found = checked("convert", told.out)
    assert told.code == 1, "something is left to do"
    assert "moved/people.schema.yml" in found["written"]
    assert any("unheard_of" in note["text"] and note["is_open"] for note in found["notes"])
    assert found["next"][0][0] == "headrace check --config moved/headrace.toml"


def test_documents_are_printed_one_on_a_line(people: Deployment) -> None:
    with connect(people.url) as connection:
        execute(connection, "INSERT INTO people VALUES (1, E'two\nlines'), (2, 'Bo')")
    told = people.type("preview", people.name, "--limit", "2", "--format", "json")
    assert [json.loads(line) for line in told.out.splitlines()] == [
        {"id": 1, "name": "two\nlines"},
        {"id": 2, "name": "Bo"},
    ]


def test_an_error_has_the_others_beside_it(people: Deployment) -> None:
    people.schema = SCHEMA.replace("- text", "- txet").replace("- long", "- lnog")
    people.write()
    error = json.loads(people.type("setup", "--format", "json").err)["error"]
    assert [found["code"] for found in (error, *error["more"])] == ["HEADRACE_SCHEMA"] * 2
    assert (error["exit_code"], "lnog" in error["cause"], "txet" in error["more"][0]["cause"]) == (
        2,
        True,
        True,
    )


def test_a_wait_and_orders_print_what_came_of_them(stock: Stock, capsys: pytest.CaptureFixture[str]) -> None:
    with stock.followed():
        code, found = printed(capsys, stock, "wait", "--searchable")
    assert (code, found["searchable"], re.fullmatch(r"\w+/\w+", found["lsn"]) is None) == (0, True, False)
    code, found = printed(capsys, stock, "reindex", "stock")
    assert (code, found["kind"], found["index"], found["state"]) == (0, "reindex", "stock", "open")
    code, found = printed(capsys, stock, "reload", "--wait", "1")
    assert (code, found["kind"], found["state"]) == (0, "reload", "open")
    with closing(Client(Endpoint((stock.sink,)))) as client:
        mailbox = Mailbox(client, StateKey(stock.name, stock.prefix))
        answering = threading.Thread(target=_answer_pause, args=(mailbox,))
        answering.start()
        code, found = printed(capsys, stock, "pause")
        answering.join()
        mailbox.forget()
    assert (code, found["kind"], found["state"], found["result"]) == (0, "pause", "done", {"paused": {}})
    assert found["id"]


def _answer_pause(mailbox: Mailbox) -> None:
    ended = threading.Event()
    while not ended.wait(0.05):
        for order in mailbox.open_orders():
            if order.kind is OrderKind.PAUSE:
                mailbox.answer(order.id, result={"paused": {}})
                return


def test_what_becomes_of_refused_documents_and_of_a_name_is_data(
    stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(Client(Endpoint((stock.sink,)))) as client:
        quarantine = Quarantine(client, StateKey(stock.name, stock.prefix))
        id_ = min(stock.ids())
        quarantine.put([Quarantined.now("stock", id_, "not a number", 16, stock.generation)])
        code, found = printed(capsys, stock, "quarantine", "drop")
        assert (code, found["done"], found["entries"][0]["id"]) == (1, False, id_)
        with stock.followed():
            assert printed(capsys, stock, "quarantine", "retry") == (0, {"found": 1, "left": []})
        assert printed(capsys, stock, "quarantine", "drop") == (0, {"entries": [], "done": True})

        name = f"{stock.name}x"
        code, found = printed(capsys, stock, "adopt", "stock", "--name", name)
        assert (code, found["done"], found["before"], found["undo"]) == (1, False, [], None)
        code, found = printed(capsys, stock, "adopt", "stock", "--name", name, "--yes")
        assert (code, found["done"], found["index"]) == (0, True, stock.generation)
        assert found["undo"]["actions"]
