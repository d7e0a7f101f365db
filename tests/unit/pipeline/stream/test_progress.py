"""A batch counts when Spark has put its commit in place, not while it is writing it."""

from __future__ import annotations

from pathlib import Path

from headrace.pipeline.stream.progress import CommitLog


def write(checkpoint: Path, batch: int, *, done: bool) -> None:
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(exist_ok=True)
    offsets = f'v1\n{{"batchWatermarkMs":0}}\n{{"version":1,"lsn":"0/{batch}"}}'
    (checkpoint / "offsets" / str(batch)).write_text(offsets)
    if done:
        (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_before_the_first_batch_nothing_is_done(tmp_path: Path) -> None:
    assert CommitLog(tmp_path).last() == -1
    write(tmp_path, 0, done=False)
    assert CommitLog(tmp_path).last() == -1


def test_the_last_commit_counts_and_its_end_is_the_sources(tmp_path: Path) -> None:
    for batch in (9, 10):
        write(tmp_path, batch, done=True)
    write(tmp_path, 11, done=False)
    log = CommitLog(tmp_path)
    assert log.last() == 10
    assert log.end_of(10) == {"version": 1, "lsn": "0/10"}


def test_files_that_spark_is_still_writing_are_no_commits(tmp_path: Path) -> None:
    write(tmp_path, 3, done=True)
    (tmp_path / "commits" / ".4.b2900363-d17b-4c07-ad76-5de497733397.tmp").write_text("v1")
    (tmp_path / "commits" / ".4.crc").write_text("")
    assert CommitLog(tmp_path).last() == 3
