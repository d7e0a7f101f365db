"""What do values of hundreds of megabytes do to a deployment? Nothing, where no document reads them."""

from __future__ import annotations

import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace

_MEGABYTES = 450
"""More than half of this and the JVM that once carried it has no room; an UPDATE of a table with REPLICA
IDENTITY FULL has it twice, and PostgreSQL sends no message of a gigabyte."""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_wide_value_that_no_document_reads_stops_nothing(deploy: Deploy) -> None:
    with deploy() as pipeline:
        shop = pipeline.shop
        shop.run("ALTER TABLE users ADD COLUMN wide text", "ALTER TABLE users REPLICA IDENTITY FULL")
        pipeline.start()
        pipeline.wait_ready()
        wide = f"repeat('0123456789', {_MEGABYTES * 100_000})"
        for value, name in ((wide, "wide"), ("NULL", "narrow again")):
            shop.run(f"UPDATE users SET wide = {value}, name = '{name}' WHERE id = 1")
            pipeline.wait_until(lambda name=name: _name(pipeline) == name, f"did not write {name!r}", 240)
        assert pipeline.is_ready()
        pipeline.converges()
        pipeline.terminate()


def _name(pipeline: Headrace) -> object:
    return pipeline.documents("users")["1"]["name"]
