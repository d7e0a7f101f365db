"""How many documents a second does either form of assembly read? `python bench/assembly.py [--quick]`.

Customers with ten orders each, the product of each order, tags through a junction, and a sum; first without
an index on the columns that lead to orders and tags, then with one. PostgreSQL alone, one connection: chunks
of keys, and a backfill range of 8 MiB of customers. What a few keys take without an index stands for any
number of them, because there the correlated form reads both tables for each.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from harness import report
from headrace.assembly.lowering import plan_document
from headrace.assembly.plan import DocumentPlan
from headrace.assembly.read_strategies import ReadStrategy, strategy_for_blocks, strategy_for_keys
from headrace.assembly.statement import keys_statement, range_parameters, range_statement
from headrace.catalog import complete, read_catalog
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.model.names import CtidRange
from headrace.postgres.connection import connect, execute
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema
from headrace.snapshot.planning import plan_ranges

BAR_WITHOUT_INDEX = 20.0
BAR_WITH_INDEX = 0.75
CUSTOMERS = 60_000
KEYS = 1_000
SAMPLE = 10
RANGE_BYTES = 8 << 20
_TABLES = """
CREATE TABLE public.products (id bigint PRIMARY KEY, name text, price numeric(10,2));
CREATE TABLE public.tags (id bigint PRIMARY KEY, name text);
CREATE TABLE public.customers (id bigint PRIMARY KEY, name text, note text);
CREATE TABLE public.orders (id bigint PRIMARY KEY, customer_id bigint, product_id bigint,
                            total numeric(12,2), placed_at timestamptz, note text);
CREATE TABLE public.customer_tags (id bigint PRIMARY KEY, customer_id bigint, tag_id bigint);
INSERT INTO public.products SELECT i, 'product ' || i, i FROM generate_series(1, 5000) i;
INSERT INTO public.tags SELECT i, 'tag ' || i FROM generate_series(1, 200) i;
INSERT INTO public.customers SELECT i, 'customer ' || i, repeat('x', 300) FROM generate_series(1, {0}) i;
INSERT INTO public.orders SELECT i, 1 + i * 7919 % {0}, 1 + i * 31 % 5000, i % 1000,
    '2026-01-01Z'::timestamptz + i * '1 s'::interval, repeat('y', 60)
    FROM generate_series(1::bigint, 10 * {0}) i;
INSERT INTO public.customer_tags SELECT i, 1 + i * 7919 % {0}, 1 + i * 37 % 200
    FROM generate_series(1::bigint, 3 * {0}) i
"""
_INDEXES = (
    "CREATE INDEX ON public.orders (customer_id)",
    "CREATE INDEX ON public.customer_tags (customer_id)",
)
_SCHEMA = """version: 1
table: customers
primary_key: id
fields:
  - keyword: name
  - has_many: orders
    table: orders
    primary_key: id
    foreign_key: customer_id
    order_by: [{column: placed_at, direction: desc}]
    fields:
      - decimal: total
      - timestamp: placed_at
      - {belongs_to: product, table: products, primary_key: id, column: product_id, fields: [{keyword: name}]}
  - many_to_many: tags
    table: tags
    primary_key: id
    through: {table: customer_tags, left_key: customer_id, right_key: tag_id}
    fields: [{keyword: name}]
  - {sum: spent, table: orders, foreign_key: customer_id, column: total, value_type: decimal}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a third of the rows, and fewer repetitions")
    quick = parser.parse_args().quick
    customers = CUSTOMERS // 3 if quick else CUSTOMERS
    report.machine()
    held = []
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        EmbeddedPostgres(durable=False) as postgres,
    ):
        url = postgres.create_database("assembly")
        _make(url, _TABLES.format(customers).split(";"))
        for case, indexes in (("without_index", ()), ("with_index", _INDEXES)):
            _make(url, indexes)
            with ReadSession(url) as session:
                reading = Reading.prepare(session, Path(folder), customers, 3 if quick else 7)
                held += list(_compare(case, reading))
    report.machine()
    sys.exit(not all(held))


def _make(url: str, statements: tuple[str, ...] | list[str]) -> None:
    with connect(url) as connection:
        for statement in (*statements, "VACUUM ANALYZE"):
            execute(connection, statement)


@dataclass(frozen=True, slots=True)
class Reading:
    """Documents of the customers, read in a given form, timed; the rates are the best of several."""

    session: ReadSession
    plan: DocumentPlan
    part: CtidRange
    customers: int
    times: int

    @classmethod
    def prepare(cls, session: ReadSession, folder: Path, customers: int, times: int) -> Reading:
        """The plan with the indexes that there are now."""
        path = folder / "customers.schema.yml"
        path.write_text(_SCHEMA)
        spec = load_schema(path, "customers")
        catalog = read_catalog(session, spec.tables())
        plan = plan_document(complete(spec, catalog), catalog)
        parts = plan_ranges(session, plan.table, RANGE_BYTES)
        return cls(session, plan, parts[0], customers, times)

    def chunk(self, form: ReadStrategy, count: int) -> float:
        """Documents for each second of chunks of so many keys."""
        keys = [str(1 + number * 7 % self.customers) for number in range(count)]
        statement = keys_statement(self.plan, form)
        return self._best(
            lambda: self.session.query(statement, [keys], reusable=form is ReadStrategy.CORRELATED)
        )

    def range(self, form: ReadStrategy) -> float:
        """Documents for each second of a range."""
        statement, bounds = range_statement(self.plan, self.part, form), range_parameters(self.part)
        return self._best(lambda: list(self.session.stream(statement, bounds)))

    def _best(self, read: Callable[[], list[tuple[str, str]]]) -> float:
        rates = []
        for _ in range(self.times):
            begin = perf_counter()
            found = len(read())
            rates.append(found / (perf_counter() - begin))
        return max(rates)


def _compare(case: str, reading: Reading) -> Iterator[bool]:
    indexed = case == "with_index"
    rows = []
    for what, count in (("10 keys", 10), ("100 keys", 100), ("1000 keys", KEYS), ("8 MiB", 0)):
        chosen = (
            strategy_for_keys(reading.plan, count)
            if count
            else strategy_for_blocks(reading.plan, _blocks(reading))
        )
        rates = {form: _rate(reading, form, count, indexed=indexed) for form in ReadStrategy}
        taken = rates[chosen]
        rows.append((what, *(f"{rates[form]:,.0f}" for form in ReadStrategy), chosen.value))
        if count == KEYS or not count:
            name = f"assembly.{'chunk' if count else 'range'}_{case}"
            if indexed:
                yield report.result(name, taken / max(rates.values()), BAR_WITH_INDEX)
            else:
                yield report.result(name, taken / rates[ReadStrategy.CORRELATED], BAR_WITHOUT_INDEX)
    heads = (f"documents/s, {case.replace('_', ' ')}", *(form.value for form in ReadStrategy), "chosen")
    report.table(heads, rows)


def _rate(reading: Reading, form: ReadStrategy, count: int, *, indexed: bool) -> float:
    if form is ReadStrategy.CORRELATED and not indexed:
        return reading.chunk(form, SAMPLE)
    return reading.chunk(form, count) if count else reading.range(form)


def _blocks(reading: Reading) -> int:
    last = reading.part.last_block
    return (reading.plan.table.page_estimate if last is None else last + 1) - reading.part.first_block


if __name__ == "__main__":
    main()
