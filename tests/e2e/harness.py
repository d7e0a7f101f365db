"""How do the end-to-end tests drive the product? As an operator does: its command line, its HTTP, kill -9."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import urllib3

import headrace
from headrace.postgres.connection import connect, execute
from headrace.testing.oracle import Documents, actual_documents, differences, expected_documents
from headrace.testing.processes import free_port, tail
from headrace.testing.shop import INDEXES, create_shop, write_deployment

READY_WITHIN = 120.0
CONVERGED_WITHIN = 60.0
ENDED_WITHIN = 30.0
"""Seconds; the last one is the contract's."""

Touched = dict[str, set[str]]
"""Which documents of which index a change concerns."""


class Shop:
    """A shop database and what its documents should be."""

    def __init__(self, url: str, users: int) -> None:
        self.url = url
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

    def id(self, sql: str) -> int:
        """The only value of a query that must find one row at least."""
        return self.ids(sql)[0]

    def expected(self) -> dict[str, Documents]:
        """The documents of each index."""
        return {index: expected_documents(self.url, index) for index in INDEXES}

    def drop_slots(self) -> None:
        """Drop the slots that deployments left on this database."""
        self.ids(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE database = current_database() AND NOT active"
        )


def _changed(before: Documents, after: Documents) -> set[str]:
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


class Headrace:
    """One deployment of the shop and the process tree that runs it, if it runs.

    Args:
        folder: for configuration, output and marks.
        name: of slot and publication, and the indexes' prefix; unique on both servers.
    """

    def __init__(self, folder: Path, shop: Shop, sink_url: str, name: str) -> None:
        self.shop = shop
        self.sink_url = sink_url
        self.prefix = f"{name}_"
        self.output = folder / f"{name}.log"
        self._name = name
        self._mark = folder / f"{name}.mark"
        self._config = write_deployment(folder / name, shop.url, sink_url, self.prefix)
        small_bulks = self._config.read_text().replace("[sinks.primary]", "[sinks.primary]\nbatch_size = 200")
        self._config.write_text(small_bulks)
        self._address = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, failpoint: str = "") -> None:
        """Start `headrace run`; with the name of a commit point, it stands still there, to be killed."""
        assert self._process is None, "it runs already"
        self._mark.unlink(missing_ok=True)
        self._address = f"127.0.0.1:{free_port()}"
        armed = {"HEADRACE_FAILPOINT": failpoint, "HEADRACE_FAILPOINT_MARK": str(self._mark)}
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "headrace", "run", "--config", str(self._config)),
                    *("--slot", self._name, "--publication", self._name),
                    *("--public-address", self._address),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(armed if failpoint else {}),
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Return once every index is seeded and the stream follows."""
        self._until(lambda: self._status("/readyz") == 200, "was not ready", READY_WITHIN)

    def wait_failpoint(self) -> None:
        """Return once it stands still at the commit point that it was started with."""
        self._until(self._mark.exists, "did not reach its commit point", READY_WITHIN)

    def kill(self) -> None:
        """Kill -9 every process of the tree, Spark's Java and its Python workers too."""
        members = self.members()
        assert members, "nothing runs that could be killed"
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
        psutil.wait_procs(members, timeout=ENDED_WITHIN)
        self._collect()
        assert self.members() == []

    def kill_first(self) -> None:
        """Kill -9 the process that was started, and none of those that it started."""
        assert self._process is not None
        self._process.kill()

    def terminate(self) -> None:
        """SIGTERM; it must end within 30 s, with exit code 0, and leave no process behind."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(ENDED_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no end within {ENDED_WITHIN:.0f} s of SIGTERM\n{self._said()}") from None
        left = psutil.wait_procs(self.members(), timeout=5)[1]
        for process in left:
            process.kill()
        self._collect()
        assert code == 0, f"exit code {code} after SIGTERM\n{self._said()}"
        assert left == []

    def close(self) -> None:
        """End it however it can be ended."""
        if self.members():
            self.kill()
        self._collect()

    def members(self) -> list[psutil.Process]:
        """The living processes of the tree: all of the session that the first one leads."""
        return [one for one in psutil.process_iter() if self._is_member(one)]

    def documents(self, index: str) -> Documents:
        """What a reader finds under the alias of an index."""
        return actual_documents(self.sink_url, f"{self.prefix}{index}")

    def differences(self) -> list[str]:
        """What is wrong in all indexes now, as the oracle sees it; a few lines for each."""
        return self._compared(self.shop.expected())

    def converges(self, timeout: float = CONVERGED_WITHIN) -> None:
        """Return once every index is what the database says; no one may write meanwhile."""
        expected = self.shop.expected()
        found: list[str] = []
        end = time.monotonic() + timeout
        while found := self._compared(expected):
            if time.monotonic() > end:
                lines = "\n".join(found)
                raise AssertionError(f"after {timeout:.0f} s:\n{lines}\n{self._said()}")
            self._assert_lives()
            time.sleep(0.1)

    def version(self, index: str, key: str) -> int:
        """The version of a document, which every write of it raises or repeats."""
        response = urllib3.request("GET", f"{self.sink_url}/{self.prefix}{index}/_doc/{key}", timeout=30)
        assert response.status == 200, response.data
        version: int = response.json()["_version"]
        return version

    def _compared(self, expected: Mapping[str, Documents]) -> list[str]:
        lines = []
        for index, documents in expected.items():
            try:
                lines += [f"{index} {line}" for line in differences(documents, self.documents(index))]
            except LookupError as error:
                lines.append(f"{index}: {error}")
        return lines

    def _until(self, condition: Callable[[], bool], failure: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition():
            self._assert_lives()
            if time.monotonic() > end:
                raise AssertionError(f"it {failure} within {seconds:.0f} s\n{self._said()}")
            time.sleep(0.05)

    def _assert_lives(self) -> None:
        if self._process is not None and (code := self._process.poll()) is not None:
            raise AssertionError(f"it ended by itself with exit code {code}\n{self._said()}")

    def _status(self, path: str) -> int:
        try:
            return urllib3.request("GET", f"http://{self._address}{path}", retries=False, timeout=5).status
        except urllib3.exceptions.HTTPError:
            return 0

    def _is_member(self, process: psutil.Process) -> bool:
        if self._process is None:
            return False
        try:
            return os.getsid(process.pid) == self._process.pid and process.status() != psutil.STATUS_ZOMBIE
        except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            return False

    def _collect(self) -> None:
        if self._process is not None:
            self._process.wait(ENDED_WITHIN)
            self._process = None

    def _said(self) -> str:
        return f"its output ends:\n{tail(self.output, 40)}"


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Ours without settings that a developer's shell may hold, with the tested source first."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    ours.pop("DATABASE_URL", None)
    source = str(Path(headrace.__file__).parents[1])
    return {**ours, "PYTHONPATH": os.pathsep.join([source, *filter(None, [ours.get("PYTHONPATH")])]), **more}
