"""Run cases on a server of their own, and report those that fail."""

from __future__ import annotations

import itertools
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError
from support.soak.case_run import SETTINGS, Outcome, Spoil, database_of, make_template, run_case
from support.soak.cases import Case, shrink_case

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class CaseRunner:
    """A server that is ready for cases.

    Attributes:
        spoil: breaks the product before it follows, for tests of the comparison.
    """

    server: EmbeddedPostgres
    spoil: Spoil | None = None

    def run(self, case: Case) -> Outcome:
        """On a database of its own; what the product or the case raised is told among what is wrong."""
        name = f"soak_{next(_numbers)}"
        with (
            tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder,
            database_of(self.server, name) as url,
        ):
            try:
                return run_case(case, url, Path(folder), name, self.spoil)
            except HeadraceError as error:
                return Outcome([str(error)])
            except Exception as error:  # noqa: BLE001 - whatever it is, its seed must be told
                said = traceback.format_exception_only(error)
                return Outcome([*said, *traceback.format_tb(error.__traceback__)[-2:]])

    def shrink(self, case: Case, wrong: list[str], seconds: float) -> Case:
        """What of the case is needed for something like `wrong`."""
        kind = _kind(wrong)
        return shrink_case(case, lambda one: _kind(self.run(one).wrong) == kind, seconds)


def _kind(wrong: list[str]) -> str:
    """Of differences one is as good as another; of errors not."""
    if not wrong or wrong[0].startswith("index_"):
        return "different" if wrong else ""
    return wrong[0][:40]


@contextmanager
def case_runner(binaries: Path | None = None) -> Iterator[CaseRunner]:
    """A server of its own."""
    with EmbeddedPostgres(durable=False, settings=SETTINGS, binaries=binaries) as server:
        make_template(server)
        yield CaseRunner(server)
