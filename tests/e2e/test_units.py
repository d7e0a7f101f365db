"""What fails, or is altered, for one index leaves the others of the run as they are.

One deployment goes through it all; each test leaves every index right.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3

import headrace
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import retrying
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from headrace.schema.load import load_schema
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import GenerationState, StateKey, StateStore
from support.driven_run import DrivenRun
from support.oracle import naive_documents
from support.pauses import in_thread
from support.shop_oracle import actual_documents, differences

TABLES = """
CREATE TABLE good (id int PRIMARY KEY, name text);
CREATE TABLE bad (id int PRIMARY KEY, name text, host text);
CREATE TABLE shop (id int PRIMARY KEY, name text);
CREATE TABLE event (id int, day int, shop_id int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM (0) TO (10);
CREATE TABLE account (id int PRIMARY KEY, name text, extra text, n int);
CREATE TABLE entry (id int PRIMARY KEY, account_id int, v bigint);
CREATE TABLE word (id int PRIMARY KEY, name text);
CREATE FUNCTION folded(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT lower($1)';
CREATE FUNCTION is_shown(text) RETURNS bool LANGUAGE plpgsql IMMUTABLE SET search_path = public
    AS 'BEGIN RETURN folded($1) <> ''hidden''\\; END';
INSERT INTO word SELECT i, 'word ' || i FROM generate_series(1, 20) i;
INSERT INTO good SELECT i, 'good ' || i FROM generate_series(1, 20) i;
INSERT INTO bad SELECT i, 'bad ' || i, '10.0.0.' || i FROM generate_series(1, 20) i;
INSERT INTO shop SELECT i, 'shop ' || i FROM generate_series(1, 9) i;
INSERT INTO event SELECT i, i % 10, 1 + i % 9 FROM generate_series(1, 40) i;
INSERT INTO account SELECT i, 'account ' || i, 'extra ' || i, i FROM generate_series(1, 9) i;
INSERT INTO entry SELECT i, 1 + i % 9, i FROM generate_series(1, 40) i
"""
GOODS = """\
version: 1
table: good
fields:
  - keyword: name
"""
BADS = """\
version: 1
table: bad
fields:
  - keyword: name
"""
SHOPS = """\
version: 1
table: shop
primary_key: id
fields:
  - keyword: name
  - has_many: events
    table: event
    primary_key: [id, day]
    foreign_key: shop_id
    fields: [{ integer: id }]
"""
ACCOUNTS = """\
version: 1
table: account
fields:
  - keyword: name
  - sum: total
    table: entry
    foreign_key: account_id
    column: v
    value_type: long
"""
WORDS = """\
version: 1
table: word
filters: [{ raw: "public.is_shown(name)" }]
fields:
  - keyword: name
"""
MARKS = """
def mark(batch):
    return batch
"""
MISFIT = "  - custom: host\n    postgres: [text]\n    opensearch: ip\n"
LABEL = "  - keyword: label\n    column: name\n"


class Units(DrivenRun):
    def __init__(self, folder: Path, url: str, sink: str, name: str) -> None:
        self.url, self.sink, self.name, self.prefix, self.folder = url, sink, name, f"{name}_", folder
        self.files = {"goods": GOODS, "bads": BADS, "shops": SHOPS, "accounts": ACCOUNTS, "words": WORDS}
        text = (
            f'prefix = "{self.prefix}"\non_error = "stop"\n'
            '[source]\ntype = "postgres"\nreplica_identity = "auto"\n'
            f"connection_url = {json.dumps(url)}\n"
            f'[sinks.primary]\ntype = "opensearch"\nurl = "{sink}"\nnumber_of_replicas = 0\n'
        )
        for index in self.files:
            text += f'[[index]]\nname = "{index}"\nschema = "{index}.yml"\n'
            text += 'settings_file = "copied.json"\n' if index == "accounts" else ""
            text += 'transform = "units_marks:mark"\n' if index == "shops" else ""
        (folder / "units_marks.py").write_text(MARKS)
        (folder / "copied.json").write_text('{"number_of_replicas": 1}')
        (folder / "headrace.toml").write_text(text)
        self.write()
        self.sql(TABLES)
        super().__init__(folder / "headrace.toml", name, folder, ready_within=400)
        source = Path(headrace.__file__).parents[1]
        self.variables = {"PYTHONPATH": os.pathsep.join([str(source), str(folder)])}

    def write(self, **more: str) -> None:
        """Write the schema files, with more lines of those that are named."""
        for index, text in self.files.items():
            (self.folder / f"{index}.yml").write_text(text + more.get(index, ""))

    def sql(self, text: str) -> None:
        """Run each statement in a transaction of its own; a semicolon inside of one has a backslash."""
        with connect(self.url) as connection:
            for statement in re.split(r"(?<!\\);", text):
                execute(connection, statement.replace("\\;", ";"))

    def transaction(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with connect(self.url, autocommit=False) as connection:
            for statement in statements:
                execute(connection, statement)

    def wrong(self, indexes: Sequence[str]) -> list[str]:
        """What readers see that the database does not say; a few lines for each index."""
        known = [load_schema(self.folder / f"{index}.yml", index) for index in indexes if index != "words"]
        expected = naive_documents(self.url, known)
        if "words" in indexes:  # the oracle knows no functions of a user's
            with connect(self.url) as connection:
                rows = execute(connection, "SELECT id, name FROM word WHERE lower(name) <> 'hidden'")
            expected["words"] = {str(id_): {"name": name} for id_, name in rows}
        lines = []
        for index, documents in expected.items():
            found = differences(documents, actual_documents(self.sink, self.prefix + index))  # type: ignore[arg-type]
            lines += [f"{index}: {line}" for line in found]
        return lines

    def converges(self, *indexes: str, seconds: float = 180) -> None:
        """Return once these indexes, else all, are what the database says; no one may write meanwhile."""
        end = time.monotonic() + seconds
        while wrong := self.wrong(indexes or tuple(self.files)):
            assert time.monotonic() < end, "\n".join([*wrong, self.last_output()])
            self.assert_running()
            time.sleep(0.2)

    def is_followed(self, index: str) -> bool:
        """Insert a row into the table of `goods` or `bads`, and wait until readers see it."""
        table, id_ = index[:-1], int(time.monotonic() * 1000) % 1_000_000_000
        self.sql(f"INSERT INTO {table} (id, name) VALUES ({id_}, 'new')")
        seen = f"{self.sink}/{self.prefix}{index}/_doc/{id_}"
        self.wait_until(lambda: urllib3.request("GET", seen).status == 200, f"did not follow {table}", 120)
        return True

    def generations(self, index: str) -> list[GenerationState]:
        """All generations of an index in the saved state, oldest first."""
        with closing(Client(Endpoint((self.sink,)))) as client:
            for attempt in retrying():  # its index may be just being made
                with attempt:
                    state = StateStore(client, StateKey(self.name, self.prefix)).load()
        return [] if state is None else list(state.of(index))

    def served(self) -> dict[str, str]:
        """The generation that readers see of each index."""
        return {
            index: entry.generation
            for index in self.files
            for entry in self.generations(index)
            if entry.published
        }

    def indexes(self, index: str) -> set[str]:
        """The generations of an index that the cluster has."""
        found = urllib3.request("GET", f"{self.sink}/_cat/indices/{self.prefix}{index}_*?h=index")
        return set(found.data.decode().split())

    def of_board(self, index: str) -> dict[str, Any]:
        """What `/status` says about an index."""
        return next((shown for shown in self.status().get("indexes", ()) if shown["name"] == index), {})

    def error(self, index: str) -> str:
        """What `/status` says is wrong with an index."""
        return self.of_board(index).get("error") or ""

    def reload(self) -> None:
        """Let the run take up the files."""
        answer = self.run_command("reload", seconds=200)
        assert answer.returncode == 0, answer.stderr + self.last_output()

    @contextmanager
    def cluster_setting(self, name: str, value: object) -> Iterator[None]:
        """Give the cluster a setting while this is entered."""
        self.set_cluster(name, value)
        try:
            yield
        finally:
            self.set_cluster(name, None)

    def set_cluster(self, name: str, value: object) -> None:
        """Give the cluster a setting; None: its default."""
        body = {"transient": {name: value}}
        answer = urllib3.request("PUT", f"{self.sink}/_cluster/settings", json=body)
        assert answer.status == 200, answer.data


@contextmanager
def units_on(postgres: EmbeddedPostgres, sink: str, folder: Path, name: str) -> Iterator[Units]:
    """The deployment with a database of its own; at the end its run, slot and database are gone."""
    run = Units(folder, postgres.create_database(name), sink, name)
    try:
        yield run
    finally:
        run.close()
        with connect(run.url) as connection:
            drop_slot(connection, name, timeout=60)
        postgres.drop_database(name)


@pytest.fixture(scope="module")
def unstarted(
    postgres: EmbeddedPostgres, opensearch: EmbeddedOpenSearch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Units]:
    with units_on(postgres, opensearch.url, tmp_path_factory.mktemp("units"), "units") as units:
        yield units


@pytest.fixture(scope="module")
def run(unstarted: Units) -> Units:
    unstarted.close()  # where the test before has failed
    (unstarted.folder / "units_marks.py").write_text(MARKS)
    unstarted.start()
    unstarted.wait_ready()
    return unstarted


def test_a_first_backfill_that_fails_is_charged_to_its_own_index(unstarted: Units) -> None:
    """A transform's failure is nobody else's."""
    broken = f"{MARKS}    raise LookupError('none')\n".replace("return", "_ =")
    (unstarted.folder / "units_marks.py").write_text(broken)
    unstarted.start()
    others = unstarted.files.keys() - {"shops"}
    unstarted.wait_until(lambda: "goods" in unstarted.served(), "did not serve the others", 180)
    unstarted.wait_until(lambda: bool(unstarted.error("shops")), "did not say what failed", 180)
    unstarted.wait_until(lambda: unstarted.served().keys() == others, "did not build all", 180)
    assert unstarted.is_followed("goods")
    assert unstarted.is_followed("bads")
    assert unstarted.ask("/readyz").status == 503
    unstarted.terminate()


def test_an_index_whose_first_backfill_failed_is_built_by_the_next_run(run: Units) -> None:
    run.converges()


@pytest.mark.long
def test_a_new_partition_that_is_written_at_once_builds_nothing_again(run: Units) -> None:
    """Its replica identity is set within seconds; rows that were only inserted before need no old values."""
    before = run.served()
    run.transaction(
        "CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM (10) TO (20)",
        "INSERT INTO event SELECT 100 + i, 10 + i % 10, 1 + i % 9 FROM generate_series(1, 20) i",
    )
    run.wait_until(lambda: _identity(run, "event_2") not in "dn", "did not set its identity", 120)
    run.sql("UPDATE event SET shop_id = 1 + shop_id % 9 WHERE day >= 10; DELETE FROM event WHERE id = 105")
    run.wait_ready()
    run.converges()
    assert run.served() == before


@pytest.mark.long
def test_rows_that_changed_before_the_partition_had_its_identity_rebuild_only_their_readers(
    run: Units,
) -> None:
    """The log names the partition; the error says the table that documents name."""
    before = run.served()
    run.transaction(
        "CREATE TABLE event_3 PARTITION OF event FOR VALUES FROM (20) TO (30)",
        "INSERT INTO event SELECT 200 + i, 20 + i % 10, 1 + i % 9 FROM generate_series(1, 20) i",
        "UPDATE event SET shop_id = 1 + shop_id % 9 WHERE day >= 20",
    )
    run.wait_until(lambda: run.served()["shops"] != before["shops"], "did not build it again", 180)
    run.wait_ready()
    run.converges()
    assert run.served() | {"shops": ""} == before | {"shops": ""}


def test_a_locked_table_keeps_only_its_index_waiting(run: Units) -> None:
    """Its documents and its backfill wait; the other index is followed and built meanwhile."""
    before = run.served()
    with connect(run.url, autocommit=False) as holder:
        execute(holder, "LOCK TABLE bad")
        for index in ("bads", "goods"):
            assert run.run_command("reindex", index).returncode == 0
        run.wait_until(lambda: run.served()["goods"] != before["goods"], "did not build the other", 120)
        run.wait_until(lambda: "bad is locked by" in run.error("bads"), "did not say so", 60)
        assert run.is_followed("goods")
        run.wait_until(lambda: not run.error("goods"), "kept the other waiting too", 60)
    run.wait_until(lambda: run.served()["bads"] != before["bads"], "did not go on", 120)
    run.wait_until(lambda: not run.error("bads"), "was not whole", 60)
    run.converges()


@pytest.mark.parametrize("fault", ["blocked", "closed"])
def test_an_index_that_takes_nothing_keeps_only_itself_waiting(run: Units, fault: str) -> None:
    """An operator's block, a disk watermark, a restore: its documents are written when that is over."""
    before = run.served()
    index = f"{run.sink}/{before['bads']}"
    block = {"index.blocks.write": True}
    if fault == "blocked":
        urllib3.request("PUT", f"{index}/_settings", json=block)
    else:
        urllib3.request("POST", f"{index}/_close")
    run.sql(f"UPDATE bad SET name = 'while it was {fault}' WHERE id = 3")
    assert run.is_followed("goods")
    run.wait_until(lambda: "takes no documents of index" in run.error("bads"), "did not say so", 60)
    assert run.is_followed("goods")
    run.wait_until(lambda: not run.error("goods"), "kept the other waiting too", 60)
    if fault == "blocked":
        urllib3.request("PUT", f"{index}/_settings", json=dict.fromkeys(block))
    else:
        urllib3.request("POST", f"{index}/_open")
    run.wait_until(lambda: not run.error("bads"), "was not whole", 60)
    run.converges()
    assert run.served() == before, "nothing was built again"


def test_a_backfill_whose_row_is_refused_leaves_the_other_index_followed(run: Units) -> None:
    before = run.served()
    run.sql("UPDATE bad SET host = 'no address' WHERE id = 7")
    run.write(goods=LABEL, bads=MISFIT)
    run.reload()
    frozen: list[GenerationState] = []

    def has_failed() -> bool:
        frozen[:] = [entry for entry in run.generations("bads") if entry.frozen]
        return bool(frozen)

    run.wait_until(has_failed, "did not fail", 180)
    run.wait_until(lambda: run.served()["goods"] != before["goods"], "did not build the other", 180)
    assert [entry.frozen for entry in run.generations("goods") if entry.published] == [""]
    [failed] = frozen
    assert failed.building
    assert "'7' of index" in failed.frozen
    assert "no address" not in failed.frozen
    assert failed.generation in failed.frozen
    assert run.served()["bads"] == before["bads"]
    run.wait_until(lambda: not run.error("goods"), "did not go on with the other", 60)
    run.wait_until(lambda: "'7'" in run.error("bads"), "did not say which document", 60)
    assert run.is_followed("goods")
    run.write()
    assert run.is_followed("bads"), "what readers see is followed all the same"
    run.sql("UPDATE bad SET host = NULL WHERE id = 7")
    run.write(bads=LABEL)
    run.reload()
    run.wait_ready()
    run.converges()
    run.write()
    run.reload()
    run.wait_ready()
    run.converges()


@pytest.mark.long
def test_an_aggregate_whose_key_the_file_leaves_out_is_followed_while_another_field_is_added(
    run: Units,
) -> None:
    before = run.served()["accounts"]
    run.write(accounts="  - keyword: extra\n")
    run.reload()
    run.wait_until(lambda: run.served()["accounts"] != before, "did not build it", 180)
    run.sql("UPDATE entry SET v = v + 1000 WHERE id % 3 = 0; UPDATE account SET name = 'x' WHERE id = 2")
    run.converges()
    former = {entry.generation: entry for entry in run.generations("accounts")}[before]
    assert former.followed, former.frozen
    run.write()
    done = run.run_command("rollback", "accounts", seconds=200)
    assert done.returncode == 0, done.stderr
    run.wait_until(lambda: run.served()["accounts"] == before, "did not go back", 120)
    run.converges()
    run.reload()
    run.wait_ready()


@pytest.mark.long
@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("cluster.max_shards_per_node", 1, "shards open"),
        ("cluster.blocks.create_index", True, "create-index"),
    ],
)
def test_an_altered_table_whose_next_generation_is_refused_waits_alone(
    run: Units, setting: str, value: object, said: str
) -> None:
    before = run.served()
    wider, narrower = "numeric(30)", "bigint"
    kind = narrower if _type(run, "entry", "v").startswith("numeric") else wider
    with run.cluster_setting(setting, value):
        run.sql(f"ALTER TABLE entry ALTER v TYPE {kind}")
        run.wait_until(lambda: said in run.error("accounts"), "did not say why it waits", 180)
        assert [unit["next_try"] for unit in run.status()["units"] if unit["index"] == "accounts"] != [None]
        assert run.is_followed("goods")
        assert run.served() == before
    run.wait_until(lambda: run.served()["accounts"] != before["accounts"], "did not try again", 180)
    run.wait_ready()
    run.converges()
    assert not run.error("accounts")
    counted = re.search(
        r'headrace_rebuilds_total\{cause="table",index="accounts"\} (\S+)', run.ask("/metrics").data.decode()
    )
    assert counted is not None, "the metric says why it was built again"
    assert run.served() | {"accounts": ""} == before | {"accounts": ""}


@pytest.mark.long
def test_a_generation_that_may_have_no_replica_is_published_once_it_may(run: Units) -> None:
    """The cluster takes the next generation, and refuses its replica once it is backfilled."""
    before, known = run.served(), run.indexes("accounts")
    run.write(accounts="  - keyword: extra\n  - integer: n\n")

    def limit(stop: threading.Event) -> None:
        while run.indexes("accounts") <= known and not stop.wait(0.02):
            pass
        run.set_cluster("cluster.max_shards_per_node", 1)

    with run.cluster_setting("cluster.max_shards_per_node", None), in_thread(limit):
        run.reload()
        run.wait_until(lambda: "shards open" in run.error("accounts"), "did not say why it waits", 180)
        assert run.is_followed("goods")
        assert run.served() == before
    run.wait_until(lambda: run.served()["accounts"] != before["accounts"], "did not try again", 180)
    run.wait_ready()
    run.converges()
    assert not run.error("accounts")


@pytest.mark.long
def test_a_function_that_finds_its_names_no_more_keeps_only_its_index_waiting(run: Units) -> None:
    before = run.served()
    run.sql("ALTER FUNCTION is_shown RESET search_path; UPDATE word SET name = 'Hidden' WHERE id = 3")
    run.wait_until(lambda: "public.is_shown(text)" in run.error("words"), "did not name it", 180)
    assert "ALTER FUNCTION public.is_shown(text) SET search_path" in run.error("words")
    assert run.is_followed("goods")
    run.sql("UPDATE word SET name = 'renamed' WHERE id = 4")
    run.sql("ALTER FUNCTION is_shown SET search_path = public")
    run.wait_until(lambda: run.served()["words"] != before["words"], "did not build it again", 180)
    run.wait_ready()
    run.converges()
    assert run.served() | {"words": ""} == before | {"words": ""}


def _identity(run: Units, table: str) -> str:
    with connect(run.url) as connection:
        [(identity,)] = execute(connection, f"SELECT relreplident FROM pg_class WHERE relname = '{table}'")
    return identity if isinstance(identity, str) else identity.decode()


def _type(run: Units, table: str, column: str) -> str:
    with connect(run.url) as connection:
        [(name,)] = execute(
            connection,
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
            f"WHERE attrelid = '{table}'::regclass AND attname = '{column}'",
        )
    return str(name)
