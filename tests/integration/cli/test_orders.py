"""`headrace orders`: who asked a deployment for what, when, and what came of it."""

from __future__ import annotations

import json
from contextlib import closing

from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import Mailbox, OrderKind, StateKey
from headrace.state.orders import OrderError, new_order
from integration.cli.command_line import Deployment


def test_the_last_orders_are_listed_with_what_came_of_them(whole: Deployment) -> None:
    nothing = whole.type("orders")
    assert (nothing.code, nothing.out, "no orders yet" in nothing.err) == (0, "", True)
    assert json.loads(whole.type("orders", "--format", "json").out) == []
    with closing(Client(Endpoint((whole.sink,)))) as client:
        mailbox = Mailbox(client, StateKey(whole.name, ""))
        done = mailbox.submit(new_order(OrderKind.REINDEX, "people", by="ada", client="10.0.0.7"))
        mailbox.answer(done.id, "readers see people_2", result={"generation": "people_2"})
        failed = mailbox.submit(new_order(OrderKind.VERIFY, "people", "spare", by="bob@ops"))
        mailbox.answer(failed.id, error=OrderError("HEADRACE_DATABASE", "no such table", "Look."))
        mailbox.submit(new_order(OrderKind.LOG_LEVEL, options={"level": "debug"}, by="ci"))
        listed = json.loads(whole.type("orders", "--format", "json").out)
        rows = whole.type("orders").out.splitlines()
        mailbox.forget()
    assert [(order["kind"], order["state"]) for order in listed] == [
        ("reindex", "done"),
        ("verify", "failed"),
        ("log level", "open"),
    ]
    assert (listed[0]["id"], listed[0]["result"]) == (done.id, {"generation": "people_2"})
    assert listed[1]["error"]["remedy"] == "Look."
    assert rows[0].split() == [*"asked at order index by state what came of it".split()]
    assert "ada from 10.0.0.7" in rows[1]
    assert "readers see people_2" in rows[1]
    assert "people in spare" in rows[2]
    assert "no such table" in rows[2]
    assert len(rows) == 4
