"""Does a session use an archive of Spark's classes, and start without one that is broken?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark.class_archive import spark_class_archive

_START = """
from headrace.spark.class_archive import spark_class_archive
from headrace.spark.session import local_spark
import os
with local_spark(java_options=spark_class_archive(os.environ).options() + " -Xlog:class+load") as spark:
    assert spark.session.range(3).count() == 3
    print(spark.log.read_text().count("source: shared objects file"))
"""


def classes_from_an_archive(cache: Path) -> int:
    """Start a session with this cache folder; count the classes that are not read from jars."""
    done = subprocess.run(
        [sys.executable, "-c", _START],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout.splitlines()[-1])


@pytest.fixture(name="archive")
def archive_fixture(tmp_path: Path) -> Path:
    archive = spark_class_archive({**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    if archive is None:
        pytest.skip("this Java has no archives of classes")
    return archive.path


@pytest.mark.long
def test_a_broken_archive_is_not_used(archive: Path, tmp_path: Path) -> None:
    archive.parent.mkdir()
    archive.write_bytes(b"not classes" * 1000)
    assert classes_from_an_archive(tmp_path) < 3000  # some Javas bring a small archive of their own


@pytest.mark.long
def test_what_is_recorded_is_used_by_the_next_session(archive: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "headrace.pipeline.stream.record_classes"],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        check=True,
    )
    assert archive.is_file()
    assert classes_from_an_archive(tmp_path) > 6000
