"""Does the graph of docs/guides/recipes.md have the rows of its tables? In a classic session."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.datasources.test_recipes import EMPTIED, FIRST, LATER, Shop, recipe

pytestmark = pytest.mark.long


def test_a_graph_has_a_node_for_each_row(spark: SparkSession, database: str, tmp_path: Path) -> None:
    """In a classic session, whose function changes what this process holds."""
    [program] = recipe("Rows as nodes of a graph")
    shop = Shop(spark, database, tmp_path)
    shop.write(*FIRST, *LATER)
    for again, statements in enumerate(((), EMPTIED)):
        shop.write(*statements)
        shop.run(program.replace("nodes = {}\n", "", again))
        nodes = shop.names["nodes"]
        orders = {
            f"orders:{key}": {"id": key, "customer": customer, "total": float(total)}
            for key, customer, total in shop.orders()
        }
        assert {key: node for key, node in nodes.items() if key.startswith("orders:")} == orders
        assert nodes["customers:1"] == {"id": 1, "region": "north"}
    shop.close()
