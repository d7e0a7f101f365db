"""A deployment of one index of a test's own tables, and what the naive oracle says of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.harness import CONVERGED_WITHIN
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from headrace.schema.load import load_schema
from support.driven_run import DrivenRun
from support.oracle import naive_documents
from support.shop_oracle import Documents, differences


class OwnTables(DrivenRun):
    """A database with its `tables`, and a deployment; the slot is dropped by `close`.

    Args:
        name: of slot, publication and index; the prefix is it and an underscore.
        sinks: the lines of the deployment file behind the primary's first ones.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        url: str,
        sink_url: str,
        *,
        tables: Sequence[str],
        schema: str,
        sinks: str = "",
    ) -> None:
        self.name, self.prefix, self.url = name, f"{name}_", url
        self.run(*tables)
        file = folder / f"{name}.schema.yml"
        file.write_text(schema)
        self._specs = [load_schema(file, name)]
        self.config = folder / "headrace.toml"
        self.config.write_text(
            f'prefix = "{self.prefix}"\n[source]\ntype = "postgres"\nconnection_url = {json.dumps(url)}\n'
            'replica_identity = "auto"\n'
            f'[[index]]\nname = "{name}"\nschema = "{file.name}"\n'
            f'[sinks.primary]\ntype = "opensearch"\nurl = "{sink_url}"\nnumber_of_replicas = 0\n{sinks}'
        )
        super().__init__(self.config, name, folder)

    def run(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with connect(self.url, autocommit=False) as connection:
            for statement in statements:
                execute(connection, statement)

    def close(self) -> None:
        """End the run however it can be ended, and drop the slot."""
        super().close()
        with connect(self.url) as connection:
            drop_slot(connection, self.name, timeout=60)

    def converges(self, read: Callable[[], Mapping[str, Any]], timeout: float = CONVERGED_WITHIN) -> None:
        """Return once what is read is what the database says; no one may write meanwhile."""
        expected: Documents = naive_documents(self.url, self._specs)[self.name]  # type: ignore[assignment]
        end = time.monotonic() + timeout
        while lines := differences(expected, dict(read())):
            self.assert_running()
            assert time.monotonic() < end, "\n".join([*lines, self.last_output()])
            time.sleep(0.2)
