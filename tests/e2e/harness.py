"""The deployments that the end-to-end tests run, and the oracle for their documents."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import urllib3

from headrace.postgres.connection import connect, execute
from headrace.tools.demo.shop import INDEXES, create_shop, write_deployment
from support.driven_run import DrivenRun
from support.shop_oracle import Documents, actual_documents, differences, expected_documents
from support.slots import drop_slots

CONVERGED_WITHIN = 120.0
"""Seconds; on a machine that is busy with other tests too."""

Touched = dict[str, set[str]]
"""Which documents of which index a change concerns."""


class Shop:
    """A shop database and what its documents should be."""

    def __init__(self, url: str, users: int) -> None:
        self.url = url
        self._seen, self._expected = (), dict[str, Documents]()
        create_shop(url, users=users)

    def run(self, *statements: str, commit: bool = True) -> None:
        """Run statements in one transaction."""
        with connect(self.url, autocommit=False) as connection:
            execute(connection, "SET LOCAL search_path = public")
            for statement in statements:
                execute(connection, statement)
            if not commit:
                connection.rollback()

    def change(self, *statements: str) -> Touched:
        """Run statements in one transaction and say which documents must differ afterwards."""
        before = self.expected()
        self.run(*statements)
        after = self.expected()
        return {index: ids for index in INDEXES if (ids := _changed(before[index], after[index]))}

    def ids(self, sql: str) -> list[int]:
        """The first column of a query's rows."""
        with connect(self.url) as connection:
            execute(connection, "SET search_path = public")
            return [row[0] for row in execute(connection, sql)]

    def texts(self, sql: str) -> list[str | None]:
        """The first column of a query's rows, which are texts."""
        with connect(self.url) as connection:
            execute(connection, "SET search_path = public")
            return [row[0] for row in execute(connection, sql)]

    def id(self, sql: str) -> int:
        """The only value of a query that must find one row at least."""
        return self.ids(sql)[0]

    def expected(self) -> dict[str, Documents]:
        """The documents of each index; built anew where anything was committed since."""
        with connect(self.url) as connection:
            # With the server: a promoted standby may be at the same transaction as its primary was.
            [seen] = execute(connection, "SELECT pg_current_snapshot()::text, inet_server_port()")
        if seen != self._seen:
            self._expected = expected_documents(self.url)
            self._seen = seen
        return self._expected

    def drop_slots(self) -> None:
        """Drop the slots that deployments left on this database."""
        drop_slots(self.url)


def _changed(before: Documents, after: Documents) -> set[str]:
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


class Headrace(DrivenRun):
    """One deployment of the shop and the process tree that runs it, if it runs.

    Args:
        folder: for configuration, output and marks.
        name: of slot and publication, and the indexes' prefix; unique on both servers.
    """

    def __init__(self, folder: Path, shop: Shop, sink_url: str, name: str) -> None:
        self.shop = shop
        self.sink_url = sink_url
        self.prefix = f"{name}_"
        config = write_deployment(folder / name, shop.url, sink_url, self.prefix)
        small_bulks = config.read_text().replace("[sinks.primary]", "[sinks.primary]\nbatch_size = 200")
        config.write_text(small_bulks)
        self.config = config
        self.name = name
        super().__init__(config, name, folder)

    def confirmed(self) -> int:
        """Where its slot stands (bytes)."""
        return self.shop.id(
            "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots "
            f"WHERE slot_name = '{self.name}'"
        )

    def documents(self, index: str) -> Documents:
        """What a reader finds under the alias of an index."""
        return actual_documents(self.sink_url, f"{self.prefix}{index}")

    def served(self, index: str) -> set[str]:
        """The concrete indexes behind the alias of an index."""
        answer = urllib3.request("GET", f"{self.sink_url}/{self.prefix}{index}", timeout=30)
        return set(answer.json())

    def differences(self) -> list[str]:
        """What is wrong in all indexes now, as the oracle sees it; a few lines for each."""
        return [*self._compared(self.shop.expected())]

    def converges(self, timeout: float = CONVERGED_WITHIN) -> None:
        """Return once every index is what the database says; no one may write meanwhile."""
        expected = self.shop.expected()
        end = time.monotonic() + timeout
        while any(self._compared(expected)):
            if time.monotonic() > end:
                lines = "\n".join(self._compared(expected))
                raise AssertionError(f"after {timeout:.0f} s:\n{lines}\n{self.last_output()}")
            self.assert_running()
            time.sleep(0.1)

    def set_refresh_interval(self, index: str, interval: str | None) -> None:
        """Change how often the cluster refreshes an index by itself; None: as it does by default."""
        response = urllib3.request(
            "PUT",
            f"{self.sink_url}/{self.prefix}{index}/_settings",
            json={"index": {"refresh_interval": interval}},
            timeout=30,
        )
        assert response.status == 200, response.data

    def found(self, index: str, query: str) -> list[str]:
        """The ids that a search finds, without a refresh."""
        response = urllib3.request(
            "GET", f"{self.sink_url}/{self.prefix}{index}/_search", fields={"q": query}, timeout=30
        )
        assert response.status == 200, response.data
        return [hit["_id"] for hit in response.json()["hits"]["hits"]]

    def version(self, index: str, key: str) -> int:
        """The version of a document, which every write of it raises or repeats."""
        response = urllib3.request("GET", f"{self.sink_url}/{self.prefix}{index}/_doc/{key}", timeout=30)
        assert response.status == 200, response.data
        version: int = response.json()["_version"]
        return version

    def _compared(self, expected: Mapping[str, Documents]) -> Iterator[str]:
        for index, documents in expected.items():
            try:
                yield from (f"{index} {line}" for line in differences(documents, self.documents(index)))
            except LookupError as error:
                yield f"{index}: {error}"
