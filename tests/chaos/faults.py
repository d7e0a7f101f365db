"""The faults, and the moments at which they strike.

A fault strikes while two writers are at work, and returns whether it struck when it should. It may leave
everything broken: `FaultyDeployment.settle` mends it and compares.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping

import psutil

from chaos.fixtures import FaultyDeployment
from e2e.harness import Headrace
from headrace.embedded.processes import until
from headrace.errors import HeadraceError
from headrace.postgres import quoting
from headrace.postgres.connection import connect, execute
from headrace.sinks.opensearch import Client, Endpoint
from headrace.tools.demo.shop import INDEXES
from support.http_proxy import Answer, Cut, Request
from support.snapshots import Snapshot

Fault = Callable[[FaultyDeployment], bool]
Blow = Callable[[FaultyDeployment], None]
"""What is done to one of those that take part."""

_STORM = 20
_BLOCK = "index.blocks.read_only_allow_delete"
_MOST_SHARDS = "cluster.max_shards_per_node"
_REFUSED_BYTES = 40_000  # of one value in a flat_object, which takes 32,766
_PASSING = (
    ("58P01", 'could not open file "pg_logical/snapshots/0-1F.snap.7.tmp": No such file or directory'),
    ("XX000", 'could not rename file "pg_replslot/chaos/state.tmp" to "pg_replslot/chaos/state": Success'),
    ("XX000", "could not find record while sending logically-decoded data: missing contrecord at 0/1F"),
    ("57P01", "terminating connection due to administrator command"),
)
_ROOT = "products"
_LOCK_SECONDS = 5
_MOMENT = 0.5
_WIDE = 640_000  # times 32 bytes
_RENAME = "UPDATE public.products SET name = $1 WHERE id = $2"
_BELOW = ("order_items", "product_tags", "reviews")
"""What a TRUNCATE of the root table empties with it."""


def _kill_run(deployment: FaultyDeployment) -> None:
    deployment.stop()


def _kill_first(deployment: FaultyDeployment) -> None:
    deployment.run.kill_first()


def _kill_java(deployment: FaultyDeployment) -> None:
    for one in deployment.processes("org.apache.spark.deploy.SparkSubmit"):
        one.kill()


def _kill_worker(deployment: FaultyDeployment) -> None:
    workers = [one for one in deployment.processes("pyspark") if one.name().startswith("python")]
    with contextlib.suppress(psutil.NoSuchProcess):
        deployment.random.choice(workers).kill()


def _kill_opensearch(deployment: FaultyDeployment) -> None:
    deployment.opensearch.kill()
    time.sleep(deployment.random.uniform(0, 4))


def _kill_postgres(deployment: FaultyDeployment) -> None:
    _crash_postgres(deployment)
    time.sleep(deployment.random.uniform(0, 4))


def _crash_postgres(deployment: FaultyDeployment) -> None:
    """What is committed and not on disk yet is gone."""
    if deployment.random.random() < 0.5:
        deployment.postgres.kill()
    else:
        deployment.postgres.stop("immediate")


def _crash_unflushed(deployment: FaultyDeployment) -> bool:
    """The server crashes at a bulk whose documents have seen a commit that need not be on disk yet."""
    name, written = _ROOT.encode(), threading.Event()
    product = deployment.random.choice(deployment.shop.ids("SELECT id FROM products"))

    def write() -> None:
        with connect(deployment.shop.url) as connection:
            for commit in ("on", "off"):
                execute(connection, f"SET synchronous_commit = {commit}")
                execute(connection, _RENAME, (f"{commit} {deployment.random.random()}", product))
        written.set()

    with deployment.writers.paused():
        writing = threading.Timer(_MOMENT, write)
        writing.start()
        struck = deployment.at(
            lambda one: written.is_set() and one.target.startswith("/_bulk") and name in one.body,
            lambda: _crash_postgres(deployment),
            None,
        )
        writing.join()
    return struck


def _live(blow: Blow) -> Fault:
    def strike(deployment: FaultyDeployment) -> bool:
        time.sleep(deployment.random.uniform(0.2, 3))
        blow(deployment)
        return True

    return strike


def _backfilling(blow: Blow) -> Fault:
    """At a bulk of a generation that is being built: it does not arrive, is not answered, or both."""

    def strike(deployment: FaultyDeployment) -> bool:
        generation = deployment.build(deployment.random.choice(INDEXES))
        time.sleep(deployment.random.uniform(0, 1))
        then = deployment.random.choice((None, Cut(), Cut(unheard=True)))
        return deployment.at_its_bulk(generation, lambda: blow(deployment), then)

    return strike


def _swap(blow: Blow) -> Fault:
    """At the swap of an alias: it is not made, or made and not known."""

    def strike(deployment: FaultyDeployment) -> bool:
        deployment.build(deployment.random.choice(INDEXES))
        then = deployment.random.choice((None, Cut(), Cut(unheard=True)))
        return deployment.at_its_swap(lambda: blow(deployment), then)

    return strike


def _spoiled(spoil: Callable[[FaultyDeployment], Callable[[Request], Answer | Cut | None]]) -> Fault:
    """The cluster answers badly for a while, with or without a generation that is being built."""

    def strike(deployment: FaultyDeployment) -> bool:
        if deployment.random.random() < 0.3:
            deployment.build(deployment.random.choice(INDEXES))
        deployment.front.spoil = spoil(deployment)
        time.sleep(deployment.random.uniform(2, 6))
        deployment.front.heal()
        return True

    return strike


def _slow(deployment: FaultyDeployment) -> Callable[[Request], None]:
    return lambda _: time.sleep(deployment.random.uniform(0.1, 1.5))


def _silent(deployment: FaultyDeployment) -> Callable[[Request], Cut]:
    end = time.monotonic() + deployment.random.uniform(2, 6)

    def spoil(_: Request) -> Cut:
        time.sleep(max(0.0, end - time.monotonic()))
        return Cut(unheard=deployment.random.random() < 0.5)

    return spoil


def _busy(deployment: FaultyDeployment) -> Callable[[Request], Answer | None]:
    return lambda _: Answer(429, b'{"error":"full"}') if deployment.random.random() < 0.5 else None


def _cut(deployment: FaultyDeployment) -> Callable[[Request], Cut | None]:
    kinds = itertools.cycle((Cut(bytes=20), None, Cut(), Cut(bytes=200), None, Cut(unheard=True)))
    return lambda _: next(kinds)


def _unknown_user(_: FaultyDeployment) -> Callable[[Request], Answer]:
    """As a cluster says that starts, and has not recovered its users yet."""
    refusal = Answer(
        401, b'{"error":{"type":"security_exception","reason":"unable to authenticate"},"status":401}'
    )
    return lambda _: refusal


def _unrecovered(_: FaultyDeployment) -> Callable[[Request], Answer]:
    """As a cluster says that starts, and has not recovered its state yet: it knows no index."""
    health = Answer(200, b'{"status":"red","active_shards":0,"initializing_shards":0,"unassigned_shards":0}')
    absent = Answer(
        404, b'{"error":{"type":"index_not_found_exception","reason":"no such index"},"status":404}'
    )
    return lambda request: health if request.target.startswith("/_cluster/health") else absent


def _full(deployment: FaultyDeployment) -> bool:
    """The node's disk passes its flood stage, and is emptied again."""
    client = Client(Endpoint((deployment.opensearch.url,)))
    with contextlib.closing(client):
        client.call("PUT", "/_all/_settings?expand_wildcards=all", {_BLOCK: True})
        try:
            time.sleep(deployment.random.uniform(2, 6))
        finally:
            client.call("PUT", "/_all/_settings?expand_wildcards=all", {_BLOCK: None})
    return True


def _one_index_blocked(deployment: FaultyDeployment) -> bool:
    """An operator blocks or closes one index for a while; the others are followed meanwhile."""
    index = deployment.run.prefix + deployment.random.choice(("orders", "products", "users"))
    client = Client(Endpoint((deployment.opensearch.url,)))
    with contextlib.closing(client):
        if deployment.random.random() < 0.5:
            client.call("PUT", f"/{index}/_settings", {"index.blocks.write": True})
        else:
            client.call("POST", f"/{index}/_close")
        try:
            time.sleep(deployment.random.uniform(1, 12))
        finally:
            client.call("POST", f"/{index}/_open")
            client.call("PUT", f"/{index}/_settings", {"index.blocks.write": None})
    return True


def _out_of_shards(deployment: FaultyDeployment) -> bool:
    """A column is altered while the cluster makes no index: what is served goes on until it does again."""
    table, column = deployment.random.choice((("orders", "total"), ("products", "price")))
    narrow = deployment.shop.ids(
        "SELECT 1 FROM information_schema.columns "
        f"WHERE table_name = '{table}' AND column_name = '{column}' AND numeric_precision = 10"
    )
    client = Client(Endpoint((deployment.opensearch.url,)))
    with contextlib.closing(client):
        client.call("PUT", "/_cluster/settings", {"persistent": {_MOST_SHARDS: 1}})
        try:
            digits = 12 if narrow else 10
            _on_the_database(deployment, f"ALTER TABLE {table} ALTER {column} TYPE numeric({digits}, 2)")
            time.sleep(deployment.random.uniform(11, 15))  # a look later
        finally:
            client.call("PUT", "/_cluster/settings", {"persistent": {_MOST_SHARDS: None}})
    return True


def _refused_row(deployment: FaultyDeployment) -> bool:
    """A row that the cluster refuses comes while another index is built, and is mended."""
    deployment.build("users")
    product = deployment.random.choice(deployment.shop.ids("SELECT id FROM products WHERE NOT hidden"))
    [before] = deployment.shop.texts(f"SELECT attributes::text FROM products WHERE id = {product}")
    wide = f"jsonb_build_object('wide', repeat('x', {_REFUSED_BYTES}))"
    _on_the_database(deployment, f"UPDATE products SET attributes = {wide} WHERE id = {product}")
    time.sleep(deployment.random.uniform(1, 5))
    mended = "NULL" if before is None else quoting.literal(before)
    _on_the_database(deployment, f"UPDATE products SET attributes = {mended} WHERE id = {product}")
    return True


def _locked_tables(deployment: FaultyDeployment) -> bool:
    """Tables are locked for some seconds, one after the other; half of them while an index is built."""
    if deployment.random.random() < 0.5:
        deployment.build("users")
    for table in deployment.random.sample(["users", "orders", "order_items", "products"], 2):
        seconds = deployment.random.uniform(0.5, 12)
        _on_the_database(deployment, f"LOCK TABLE {table}", f"SELECT pg_sleep({seconds})")
    return True


def _server_fault(deployment: FaultyDeployment) -> bool:
    """The server answers the next reading of its log with an error that passes by itself."""
    refusal = deployment.refusing.refuse("START_REPLICATION", *deployment.random.choice(_PASSING))
    deployment.line.cut()
    struck = until(lambda: refusal.refused > 0, 30)
    deployment.refusing.refusals.clear()
    return struck


def _line_cut(deployment: FaultyDeployment) -> bool:
    for _ in range(3):
        deployment.line.cut()
        time.sleep(deployment.random.uniform(0.1, 1.5))
    return True


def _line_dead(deployment: FaultyDeployment) -> bool:
    """Neither side is told."""
    deployment.line.freeze()
    time.sleep(deployment.random.uniform(2, 8))
    deployment.line.cut()
    deployment.line.resume()
    return True


def _storm(deployment: FaultyDeployment) -> bool:
    for _ in range(_STORM):
        _kill_run(deployment)
        deployment.run.close()
        deployment.run.start()
        time.sleep(deployment.random.uniform(0.3, 9))
    return True


def _on_the_database(deployment: FaultyDeployment, *statements: str) -> None:
    """In one transaction; given up where it has to wait for long."""
    with contextlib.suppress(HeadraceError), connect(deployment.shop.url, autocommit=False) as connection:
        execute(connection, f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
        execute(connection, "SET LOCAL search_path = public")
        try:
            for statement in statements:
                execute(connection, statement)
        except connection.DatabaseError:
            connection.rollback()


def _emptied(*tables: str) -> list[str]:
    """TRUNCATE the first one, and put nine of ten rows back; the others depend on it."""
    kept = [f"CREATE TEMP TABLE kept_{one} ON COMMIT DROP AS SELECT * FROM {one}" for one in tables]
    back = [f"INSERT INTO {one} SELECT * FROM kept_{one}" for one in tables]
    back[-1] += " WHERE random() < 0.9"
    return [*kept, f"TRUNCATE {tables[0]} CASCADE", *back]


def _truncate_child(deployment: FaultyDeployment) -> bool:
    time.sleep(deployment.random.uniform(0.2, 1))
    _on_the_database(deployment, *_emptied(deployment.random.choice(_BELOW)))
    return True


def _truncate_root(deployment: FaultyDeployment) -> bool:
    """Between a range's read and its bulk; what the rows were is in the bulk that comes after it."""
    generation = deployment.build(_ROOT)
    return deployment.at_its_bulk(
        generation,
        lambda: _on_the_database(deployment, *_emptied(_ROOT, *_BELOW)),
        deployment.random.choice((None, Cut())),
    )


def _rewrite_root(deployment: FaultyDeployment) -> bool:
    """VACUUM FULL between a range's read and its bulk: every row has another place then."""

    def rewrite() -> None:
        with contextlib.suppress(HeadraceError), connect(deployment.shop.url) as connection:
            execute(connection, f"SET lock_timeout = '{_LOCK_SECONDS}s'")
            with contextlib.suppress(connection.DatabaseError):
                execute(connection, f"VACUUM FULL public.{_ROOT}")

    return deployment.at_its_bulk(deployment.build(_ROOT), rewrite)


_UNDONE = (
    (
        "ALTER TABLE {t} RENAME TO elsewhere",
        "DELETE FROM elsewhere WHERE random() < 0.2",
        "ALTER TABLE elsewhere RENAME TO {t}",
    ),
    (
        "ALTER PUBLICATION chaos SET (publish = 'truncate')",
        "DELETE FROM {t} WHERE random() < 0.2",
        "ALTER PUBLICATION chaos SET (publish = 'insert, update, delete, truncate')",
    ),
    (
        "ALTER PUBLICATION chaos DROP TABLE {t}",
        "ALTER TABLE {t} SET UNLOGGED",
        "DELETE FROM {t} WHERE random() < 0.2",
        "ALTER TABLE {t} SET LOGGED",
        "ALTER PUBLICATION chaos ADD TABLE {t}",
    ),
)
"""What leaves the catalog as it was, and the log without the rows or with another name."""


def _altered_back(*, stopped: bool) -> Fault:
    """The next look, or start, finds it, and builds anew."""

    def strike(deployment: FaultyDeployment) -> bool:
        if stopped:
            _kill_run(deployment)
        statements = deployment.random.choice(_UNDONE)
        table = deployment.random.choice(_BELOW)
        _on_the_database(deployment, *(sql.format(t=table) for sql in statements))
        time.sleep(0 if stopped else 12)  # a look later
        return True

    return strike


def _restored(*, stopped: bool) -> Fault:
    """Documents of some indexes are put back to what they were; the next look, or start, finds it."""

    def strike(deployment: FaultyDeployment) -> bool:
        served = [one.generation for one in deployment.generations() if one.published]
        snapshot = Snapshot(deployment.opensearch, ",".join(served))
        time.sleep(deployment.random.uniform(1, 4))
        if stopped:
            _kill_run(deployment)
        snapshot.restore_in_place(deployment.random.sample(served, deployment.random.randint(1, len(served))))
        time.sleep(0 if stopped else 32)  # a look later
        return True

    return strike


def _wide(deployment: FaultyDeployment) -> bool:
    """Values of 20 MB in a column that no document reads, which comes and goes."""
    table = deployment.random.choice(_BELOW)
    _on_the_database(deployment, f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS unread text")
    for _ in range(2):
        chosen = f"(SELECT ctid FROM {table} ORDER BY random() LIMIT 1)"
        wide = f"repeat(md5(random()::text), {_WIDE})"
        _on_the_database(deployment, f"UPDATE {table} SET unread = {wide} WHERE ctid = {chosen}")
    time.sleep(_MOMENT)
    _on_the_database(deployment, f"ALTER TABLE {table} DROP COLUMN unread")
    return True


def _log_removed(deployment: FaultyDeployment) -> bool:
    """A piece of the log that the slot needs is gone from the disk; then everything is rebuilt."""
    with deployment.reseeding():
        with connect(deployment.shop.url) as connection:
            execute(connection, "SELECT pg_switch_wal()")
            execute(connection, "UPDATE public.users SET level = level WHERE id = 1")
            [(name,)] = execute(connection, "SELECT pg_walfile_name(pg_current_wal_lsn())")
            for statement in ("SELECT pg_switch_wal()", "CHECKPOINT"):
                execute(connection, statement)
        (deployment.postgres._site.data / "pg_wal" / str(name)).unlink()
        wrong = deployment.settle()
        assert not wrong, "\n".join([*wrong, deployment.run.last_output()])
    return True


def _put_back(deployment: FaultyDeployment) -> bool:
    """The server's storage is put back to what it was some seconds ago; then everything is rebuilt."""
    with deployment.reseeding():
        data = deployment.postgres._site.data
        copy = data.with_name("copy")
        deployment.postgres.stop()
        subprocess.run(["cp", "-a", data, copy], check=True)
        try:
            wrong = deployment.settle()
            time.sleep(deployment.random.uniform(1, 4))
            deployment.postgres.stop("immediate")
            shutil.rmtree(data)
        finally:
            copy.rename(data)
        wrong = wrong or deployment.settle()
        assert not wrong, "\n".join([*wrong, deployment.run.last_output()])
    return True


def _second(deployment: FaultyDeployment) -> bool:
    """Another deployment of the same tables in the same cluster comes, is right, and is taken away."""
    folder = deployment.run.config.parent.parent / "second"
    second = Headrace(folder, deployment.shop, deployment.opensearch.url, "second")
    try:
        second.start()
        second.wait_ready()
        with deployment.writers.paused():
            second.converges()
        second.terminate()
    finally:
        second.close()
    subprocess.run(
        [sys.executable, "-m", "headrace", "teardown", "--indexes", "--yes", "--config", str(second.config)],
        check=True,
        capture_output=True,
    )
    return True


_KILLED: Mapping[str, Blow] = {
    "the run": _kill_run,
    "Java": _kill_java,
    "a worker": _kill_worker,
    "OpenSearch": _kill_opensearch,
    "PostgreSQL": _kill_postgres,
}

FAULTS: Mapping[str, Fault] = {
    **{f"kill {name}, live": _live(blow) for name, blow in _KILLED.items()},
    "kill the first process, live": _live(_kill_first),
    **{f"kill {name}, backfilling": _backfilling(blow) for name, blow in _KILLED.items()},
    **{f"kill {name}, at the swap": _swap(blow) for name, blow in _KILLED.items() if name != "a worker"},
    "crash PostgreSQL after asynchronous commits": _crash_unflushed,
    "cluster full": _full,
    "one index blocked": _one_index_blocked,
    "cluster slow": _spoiled(_slow),
    "cluster silent": _spoiled(_silent),
    "cluster busy half of the time": _spoiled(_busy),
    "cluster's answers cut": _spoiled(_cut),
    "cluster starts, and knows no user": _spoiled(_unknown_user),
    "cluster starts, and knows no index": _spoiled(_unrecovered),
    "a table altered while the cluster makes no index": _out_of_shards,
    "a row that the cluster refuses": _refused_row,
    "tables locked": _locked_tables,
    "server's log unreadable once": _server_fault,
    "log removed from the disk": _log_removed,
    "database's connections cut": _line_cut,
    "database silent": _line_dead,
    "restart storm": _storm,
    "TRUNCATE of a child": _truncate_child,
    "TRUNCATE of a root, backfilling": _truncate_root,
    "VACUUM FULL, backfilling": _rewrite_root,
    "altered and altered back, live": _altered_back(stopped=False),
    "altered and altered back, stopped": _altered_back(stopped=True),
    "documents restored, live": _restored(stopped=False),
    "documents restored, stopped": _restored(stopped=True),
    "wide values that no document reads": _wide,
    "storage put back": _put_back,
    "a second deployment in the cluster": _second,
}
"""All of them, by name."""
