"""What does each choice in a schema file cost the cluster? `python bench/field_cost.py [--quick]`.

Orders with ten lines each go into an empty index by `_bulk` on two connections, then the index is refreshed;
no PostgreSQL and no Spark. Each choice is measured several times, each time beside the default: its ratio is
the median of those pairs. The node's processor time says the same where other work slows the clock.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from statistics import median
from time import perf_counter
from typing import Any

import urllib3

from harness import report
from harness.bare import BULK_BYTES, CONNECTIONS, Sending
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import IndexOptions, mapping
from headrace.sinks.opensearch.settings import backfill_settings

DOCUMENTS = 10_000
LINES = 10
_ALIAS = "orders"
_SCHEMA = """version: 1
table: orders
primary_key: id
fields:
  - long: id
  - uuid: reference
  - keyword: email
  - text: name
  - keyword: city
  - enum: status
  - decimal: total
  - timestamp: placed_at
  - text: note
  - has_many: lines
    table: lines
    primary_key: id
    foreign_key: order_id
    fields:
      - long: id
      - identifier: sku
      - text: product
      - keyword: color
      - integer: quantity
      - decimal: price
      - timestamp: at
"""
_WORDS = (
    "river mill wheel stone water grain flour sack miller bread oven village road cart horse field".split()
)

Properties = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to have the orders in an index; `change` alters the default mapping's properties."""

    name: str
    change: Callable[[Properties], object] = lambda _properties: None
    options: IndexOptions = field(default_factory=IndexOptions)
    lines: int = LINES
    note_words: int = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a third of the orders, 3 turns instead of 7")
    quick = parser.parse_args().quick
    documents = DOCUMENTS // 3 if quick else DOCUMENTS
    report.machine()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, EmbeddedOpenSearch() as opensearch:
        path = Path(folder) / "orders.schema.yml"
        path.write_text(_SCHEMA)
        spec = load_schema(path, _ALIAS)
        fill(opensearch.url, spec, CHOICES[0], documents)  # Java compiles what runs often
        measured: dict[str, list[tuple[Filling, Filling]]] = {choice.name: [] for choice in CHOICES}
        for _ in range(3 if quick else 7):
            for choice in CHOICES[1:]:
                pair = [fill(opensearch.url, spec, one, documents) for one in (CHOICES[0], choice)]
                measured[choice.name].append((pair[0], pair[1]))
    report.machine()
    rows = []
    for choice in CHOICES[1:]:
        pairs = measured[choice.name]
        rows.append(
            (
                choice.name,
                f"{len(bodies_of(choice, 100)[0]) / 100:,.0f}",
                str(choice.lines),
                f"{median(own.rate for _, own in pairs):,.0f}",
                f"{median(own.rate / default.rate for default, own in pairs):.2f}",
                f"{median(own.processor / default.processor for default, own in pairs):.2f}",
            )
        )
    defaults = [default for pairs in measured.values() for default, _ in pairs]
    size = f"{len(bodies_of(CHOICES[0], 100)[0]) / 100:,.0f}"
    rate = f"{median(default.rate for default in defaults):,.0f}"
    heads = ("choice", "bytes each", "nested", "documents/s", "of the default", "processor time, of it")
    report.table(heads, [(CHOICES[0].name, size, str(LINES), rate, "1", "1"), *rows])


@dataclass(frozen=True, slots=True)
class Filling:
    """One filling of an index: documents for each second, and the node's processor time (ms)."""

    rate: float
    processor: float


def fill(url: str, spec: IndexSpec, choice: Choice, documents: int) -> Filling:
    """Fill an empty index and delete it."""
    body = mapping(spec, choice.options)
    choice.change(body["mappings"]["properties"])
    settings = body["settings"]["index"]
    settings |= {**backfill_settings({}), "number_of_replicas": 0, "refresh_interval": "-1"}
    call(url, "PUT", "/orders_1", {**body, "aliases": {_ALIAS: {}}})
    bodies: Queue[bytes | None] = Queue()
    for bulk in (*bodies_of(choice, documents), *[None] * CONNECTIONS):
        bodies.put(bulk)
    senders = [Sending(url) for _ in range(CONNECTIONS)]
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        before, begin = processor_time(url), perf_counter()
        for sent in [threads.submit(sender, bodies) for sender in senders]:
            sent.result()
        call(url, "POST", "/orders_1/_refresh")
        filling = Filling(documents / (perf_counter() - begin), processor_time(url) - before)
    for sender in senders:
        sender.close()
    call(url, "DELETE", "/orders_1")
    return filling


def processor_time(url: str) -> float:
    """Return the milliseconds of processor time that the node has taken."""
    [node] = call(url, "GET", "/_nodes/stats/process")["nodes"].values()
    return float(node["process"]["cpu"]["total_in_millis"])


def call(url: str, method: str, path: str, body: object = None) -> Any:
    """Send one request that must succeed; return its answer."""
    answer = urllib3.request(method, url + path, json=body, timeout=120)
    assert answer.status == 200, answer.data[:300]
    return answer.json()


def bodies_of(choice: Choice, documents: int) -> list[bytes]:
    """The bulk requests of so many orders."""
    bodies, lines, size = [], [], 0
    for number in range(documents):
        action = json.dumps({"index": {"_index": _ALIAS, "_id": str(number)}})
        line = f"{action}\n{json.dumps(order(number, choice))}\n".encode()
        lines.append(line)
        size += len(line)
        if size >= BULK_BYTES:
            bodies.append(b"".join(lines))
            lines, size = [], 0
    return [*bodies, b"".join(lines)]


def order(number: int, choice: Choice) -> dict[str, Any]:
    """One order."""
    return {
        "id": number,
        "reference": f"{number * 7919:08x}-0000-4000-8000-{number:012x}",
        "email": f"{words(number, 1)}.{number}@example.org",
        "name": words(number, 2),
        "city": words(number % 300, 1),
        "status": ("new", "paid", "shipped")[number % 3],
        "total": number % 1000 + 0.5,
        "placed_at": f"2026-01-{1 + number % 28:02}T12:00:00+00:00",
        "note": words(number, choice.note_words),
        "lines": [line(number, place) for place in range(choice.lines)],
    }


def line(number: int, place: int) -> dict[str, Any]:
    """One line of an order."""
    product = (number * 31 + place * 17) % 5000
    return {
        "id": number * LINES + place,
        "sku": f"SKU-{product:05}-{place}",
        "product": words(product, 3),
        "color": _WORDS[product % 7],
        "quantity": 1 + place % 4,
        "price": product / 10,
        "at": f"2026-02-{1 + place:02}T12:00:00+00:00",
    }


def words(seed: int, count: int) -> str:
    """Return words that look arbitrary, the same for the same seed."""
    return " ".join(
        f"{_WORDS[(seed * 7 + place * 5) % len(_WORDS)]}{(seed + place) % 97}" for place in range(count)
    )


def _leaves(properties: Properties) -> list[Properties]:
    found: list[Properties] = []
    for declared in properties.values():
        inner = declared.get("properties")
        found += [declared] if inner is None else _leaves(inner)
    return found


def _without_subfields(*names: str) -> Callable[[Properties], None]:
    def change(properties: Properties) -> None:
        for declared in _leaves(properties):
            for name in names:
                declared.get("fields", {}).pop(name, None)

    return change


def _with_each(types: Sequence[str], **more: object) -> Callable[[Properties], None]:
    def change(properties: Properties) -> None:
        for declared in _leaves(properties):
            if declared["type"] in types:
                declared.update(more)

    return change


def _replace(name: str, **declared: object) -> Callable[[Properties], None]:
    return lambda properties: properties.update({name: declared})


_NUMBERS = ("long", "integer", "double", "date")
CHOICES = (
    Choice("the default"),
    Choice("auto_subfields = false", options=IndexOptions(auto_subfields=False)),
    Choice("no .text below keyword", _without_subfields("text")),
    Choice("no .keyword_lowercase", _without_subfields("keyword_lowercase")),
    Choice("no .keyword below text", _without_subfields("keyword")),
    Choice("lines as plain objects", lambda properties: properties["lines"].update(type="object")),
    Choice("half of the lines", lines=LINES // 2),
    Choice("no lines", lines=0),
    Choice("lines kept, not indexed", _replace("lines", type="object", enabled=False)),
    Choice("numbers, dates: index false", _with_each(_NUMBERS, index=False)),
    Choice("text without norms", _with_each(("text",), norms=False)),
    Choice("a note of 200 words", note_words=200),
    Choice("… kept, not indexed", _replace("note", type="text", index=False), note_words=200),
)


if __name__ == "__main__":
    main()
