"""Does the oracle of any schema agree with the one that was written by hand for the shop?"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.schema.load import load_schema
from headrace.tools.demo.shop import INDEXES, create_shop, write_deployment
from support.oracle import naive_documents
from support.oracle.raw import holds
from support.oracle.tables import read_tables
from support.shop_oracle import expected_documents
from support.shop_workload import Workload


def test_it_says_of_the_shop_what_was_written_by_hand(database: str, tmp_path: Path) -> None:
    create_shop(database, users=60)
    with Workload(database, seed=3) as workload:
        for _ in range(150):
            workload.step()
    folder = write_deployment(tmp_path, database, "").parent
    found = naive_documents(database, [load_schema(folder / f"{one}.schema.yml", one) for one in INDEXES])
    for index, expected in expected_documents(database).items():
        assert found[index] == expected
        assert len(expected) > 10


@pytest.mark.parametrize(
    ("sql", "true_of"),
    [
        ("name <> 'a'", "b"),
        ("NOT (name = 'a')", "b"),
        ("name <> 'a' OR name IS NULL", "bn"),
        ("lower(\"Big\") = 'x' AND things.name IS NOT NULL", "ab"),
        ("coalesce(number, 0) < 2", "an"),
        ("length(name) >= 1 AND NOT number IS NULL", "ab"),
        ("(number = 1 OR number = 2) AND on_sale", "a"),
    ],
)
def test_a_raw_condition_means_what_it_means_to_the_server(database: str, sql: str, true_of: str) -> None:
    with connect(database) as connection:
        execute(connection, 'CREATE TABLE things (name text, "Big" text, number int, on_sale bool)')
        execute(
            connection,
            "INSERT INTO things VALUES ('a', 'X', 1, true), ('b', 'x', 2, null), (null, 'x', null, true)",
        )
        rows = execute(connection, f"SELECT name FROM things WHERE {sql}")
    table = read_tables(database, [TableName("public", "things")])[TableName("public", "things")]
    found = [row["name"] for row in table.rows if holds(sql, row, table) is True]
    assert found == [name for (name,) in rows] == [None if one == "n" else one for one in true_of]
