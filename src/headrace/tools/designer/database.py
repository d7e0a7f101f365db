"""What the designer knows of the database, and what it measures for a schema: a document, warnings, costs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.assembly.trials import query_findings, try_reading
from headrace.catalog import Catalog, list_tables, read_catalog
from headrace.catalog.binding import complete, findings
from headrace.catalog.checks import nested_findings
from headrace.catalog.hints import Hints, read_hints
from headrace.catalog.suggestion import Suggester
from headrace.catalog.usage import used_columns
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.connection import place
from headrace.postgres.lock_holders import LockedError
from headrace.postgres.session import ReadSession
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import IndexOptions
from headrace.tools.check import Problem
from headrace.tools.index_cost import IndexCost, cost_of
from headrace.tools.preview import BEGIN, Preview, PreviewedDocument, SampleLimits

_STATEMENT_MILLISECONDS = 5_000
"""Somebody looks at the page: what takes longer is told as too slow."""
_LOCK_SECONDS = 2.0
_SAMPLE = SampleLimits(documents=40, bytes=4 << 20, seconds=1.5)


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """The tables of the database and what helps to choose among them."""

    name: str
    catalog: Catalog
    hints: Hints

    @property
    def suggester(self) -> Suggester:
        """What suggests fields of these tables."""
        return Suggester(self.catalog, self.hints)

    def find(self, label: str) -> TableName:
        """Return the table that is shown as `label`.

        Raises:
            HeadraceError: USAGE.
        """
        for name in self.catalog.tables:
            if str(name) == label:
                return name
        raise HeadraceError(Kind.USAGE, f"the database has no table {label}", "Read the tables again.")


@dataclass(slots=True)
class DesignReport:
    """What a schema gives now.

    Attributes:
        problems: errors and warnings, errors first.
        document: None where there is none, or where an error keeps it from being read.
        cost: what a sample of documents costs; None where none was taken.
    """

    problems: list[Problem] = field(default_factory=list)
    document: PreviewedDocument | None = None
    cost: IndexCost | None = None


class DesignDatabase:
    """The database of a design; one question at a time is asked.

    Args:
        url: its address.

    Attributes:
        facts: as they were read last; None before that.

    Raises:
        HeadraceError: CONFIG, where the address is not one.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        # A page that asks faster than the database answers must not open a connection for each click.
        self._asking = threading.Lock()
        self.place = place(url)
        self.facts: DatabaseFacts | None = None

    def read(self) -> DatabaseFacts:
        """Read the tables of the database.

        Raises:
            HeadraceError: CONNECTION, AUTHENTICATION, DATABASE.
        """
        with self._asking, ReadSession(self._url, lock_seconds=_LOCK_SECONDS) as session:
            catalog = read_catalog(session, list_tables(session))
            [(name,)] = session.query("SELECT current_database()::text")
            self.facts = DatabaseFacts(name, catalog, read_hints(session, catalog))
        return self.facts

    def known(self) -> DatabaseFacts:
        """Return the tables, read now if they were not before.

        Raises:
            HeadraceError: as `read`.
        """
        return self.facts or self.read()

    def look(self, declared: IndexSpec, id_: str | None = None, *, another: bool = False) -> DesignReport:
        """Assemble a document, measure others, and collect warnings.

        Args:
            declared: the schema.
            id_: the document's id; None: the first one.
            another: take any document instead.

        Raises:
            HeadraceError: CONNECTION, AUTHENTICATION, DATABASE, where nothing can be said.
        """
        with self._asking, ReadSession(self._url, lock_seconds=_LOCK_SECONDS) as session:
            session.query(f"SET statement_timeout = {_STATEMENT_MILLISECONDS}")
            catalog = read_catalog(session, declared.tables())
            found = findings(declared, catalog)
            report = DesignReport()
            if not any(finding.level == "error" for finding in found):
                spec = complete(declared, catalog)
                found += query_findings(session, [spec], catalog)
                # The cluster is not asked here: a limit of its own is seen by `headrace check`.
                limits = {spec.name: IndexOptions().nested_objects}
                found += nested_findings(session, [spec], catalog, limits)
                found += try_reading(session, [spec], catalog, used_columns([spec], catalog))
                if locked := [finding.error for finding in found if isinstance(finding.error, LockedError)]:
                    raise locked[0]  # a document of it would only wait once more
                if not any(finding.level == "error" for finding in found):
                    _show(Preview(session, spec, catalog), report, id_, another=another)
            report.problems += [Problem(finding.level, finding.error) for finding in found]
        report.problems.sort(key=lambda entry: entry.level != "error")
        return report


def _show(preview: Preview, report: DesignReport, id_: str | None, *, another: bool) -> None:
    """Assemble the document, then a sample; what fails is a problem."""
    try:
        with _transaction(preview.session):
            report.document = _choose(preview, id_, another=another)
        with _transaction(preview.session):
            report.cost = cost_of(preview.spec, IndexOptions(), preview.sample(_SAMPLE))
    except HeadraceError as error:
        if preview.session.closed:
            raise
        text = f"a document cannot be shown: {error.full_cause}"
        report.problems.append(Problem("error", HeadraceError(error.kind, text, error.remedy)))


@contextmanager
def _transaction(session: ReadSession) -> Iterator[None]:
    session.query(BEGIN)
    try:
        yield
    finally:
        if not session.closed:
            session.query("ROLLBACK")


def _choose(preview: Preview, id_: str | None, *, another: bool) -> PreviewedDocument | None:
    if another:
        return preview.any()
    if id_:
        return preview.document(id_)
    return next(iter(preview.first(1)), None)
