"""A batch is traced as Spark reports it; a server is named where the settings name one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.model.stage import Stage
from headrace.model.trace import StageSpan, TaskTrace
from headrace.pipeline.stream.traced_batches import database_server, traced_batch
from headrace.status.traces import SpanServer, SpanServers

SERVER = SpanServer("postgresql")
SERVERS = SpanServers(SERVER, SERVER, {"": SERVER})
MS = 1_000_000
ASKED = 1_795_392_000_123 * MS
TASK = TaskTrace(spans=(StageSpan("", Stage.WRITE, "", 1, 2),))
OFFSETS: tuple[Any, Any] = {"version": 1, "lsn": "0/100"}, {"version": 1, "lsn": "0/200"}


@pytest.mark.parametrize("offsets", [OFFSETS, tuple(map(json.dumps, OFFSETS))], ids=["objects", "texts"])
def test_the_wait_for_changes_is_no_part_of_a_batch(offsets: tuple[Any, Any]) -> None:
    durations = {
        "triggerExecution": 900,
        "latestOffset": 250,
        "walCommit": 20,
        "getBatch": 1,
        "queryPlanning": 30,
        "addBatch": 500,
    }
    report = {
        "batchId": 3,
        "timestamp": "2026-11-23T00:00:00.123Z",
        "durationMs": durations,
        "sources": [{"startOffset": offsets[0], "endOffset": offsets[1]}],
    }
    done = {"changes": 5, "upserts": 4, "deletes": None, "rejected": 0, "early": 0, "trace": TASK.to_text()}
    batch = traced_batch(report, done, (7, 8), SERVERS)
    assert batch.captured == (ASKED + 270 * MS, ASKED + 301 * MS)
    assert (batch.number, batch.start, batch.end, batch.confirmed) == (3, "0/100", "0/200", (7, 8))
    assert batch.counts == {"changes": 5, "upserts": 4, "deletes": 0, "rejected": 0}
    assert batch.task == TASK


def test_what_was_written_early_was_captured_when_its_first_stage_began() -> None:
    report = {
        "batchId": 3,
        "timestamp": "2026-11-23T00:00:00.123Z",
        "durationMs": {"latestOffset": 300, "queryPlanning": 30},
        "sources": [{"startOffset": OFFSETS[0], "endOffset": OFFSETS[1]}],
    }
    done = {"changes": 1, "upserts": 1, "deletes": 0, "rejected": 0, "early": 2, "trace": TASK.to_text()}
    assert traced_batch(report, done, (7, 8), SERVERS).captured == (1, 1)


def test_the_first_batch_of_a_query_begins_nowhere() -> None:
    report = {
        "batchId": 0,
        "timestamp": "2026-11-23T00:00:00.123Z",
        "durationMs": {},
        "sources": [{"startOffset": None, "endOffset": OFFSETS[1]}],
    }
    done = {"changes": 1, "upserts": 0, "deletes": 0, "rejected": 0, "early": 0, "trace": None}
    batch = traced_batch(report, done, (7, 8), SERVERS)
    assert (batch.start, batch.end, batch.task) == ("", "0/200", TaskTrace())


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("postgresql://ada:secret@db:5433/shop", SpanServer("postgresql", "db", 5433, "shop")),
        ("postgresql://ada:secret@db/shop", SpanServer("postgresql", "db", 5432, "shop")),
        ("host=/run/postgresql dbname=shop", SpanServer("postgresql", "/run/postgresql", None, "shop")),
        ("jdbc:postgresql://db:5433/shop", SpanServer("postgresql", "db", 5433, "shop")),
        ("postgresql://one:1,two:2/shop", SpanServer("postgresql", namespace="shop")),
        ("service=shop", SpanServer("postgresql")),
    ],
)
def test_a_database_is_named_by_its_only_host(url: str, server: SpanServer) -> None:
    assert database_server(url) == server
