"""Find the programs that some tests need beside Python, and say what is missing where a test is skipped.

HEADRACE_TEST_MEANS names what the caller has made sure of (`.ci/run` does, after it installed what it can). A
test that would be skipped for want of one of these fails instead.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

DEBIAN_POSTGRES = Path("/usr/lib/postgresql/15/bin")


@dataclass(frozen=True)
class Means:
    """Something that is not in the environment of Python packages.

    Args:
        name: how HEADRACE_TEST_MEANS names it.
        path: where it is; None: it is missing.
        remedy: how to get it.
    """

    name: str
    path: str | None
    remedy: str

    @property
    def missing(self) -> str:
        """The reason of a skipped test, with the remedy."""
        return f"{self.name} is missing: {self.remedy}"


def _find(*programs: str) -> str | None:
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    return next((path for program in programs if (path := shutil.which(program, path=folders))), None)


CHROMIUM = Means(
    "chromium",
    os.environ.get("HEADRACE_CHROMIUM") or _find("chromium", "google-chrome"),
    "on Debian `apt install chromium`, or HEADRACE_CHROMIUM=PATH",
)
POSTGRES_15 = Means(
    "postgresql-15",
    str(DEBIAN_POSTGRES) if (DEBIAN_POSTGRES / "postgres").exists() else None,
    "Debian's PostgreSQL 15 has OpenSSL and ICU: `apt install postgresql-15`",
)
PGBOUNCER = Means("pgbouncer", _find("pgbouncer"), "on Debian `apt install pgbouncer`")
PROMTOOL = Means("promtool", _find("promtool"), "on Debian `apt install prometheus`")
TSC = Means("tsc", _find("tsc"), "`npm install -g typescript`")


def needs(means: Means) -> pytest.MarkDecorator:
    """Return the mark of a test that is skipped where something is missing.

    Raises:
        UsageError: it is missing, and HEADRACE_TEST_MEANS names it.
    """
    if means.path is None and means.name in os.environ.get("HEADRACE_TEST_MEANS", "").split():
        raise pytest.UsageError(f"HEADRACE_TEST_MEANS names {means.name}, and {means.missing}")
    return pytest.mark.skipif(means.path is None, reason=means.missing)
