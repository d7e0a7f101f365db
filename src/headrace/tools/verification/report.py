"""The result of comparing an index with the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter

from headrace.assembly.digests import Sample
from headrace.model.lsn import Lsn, format_lsn, parse_lsn
from headrace.model.units import quantity
from headrace.tools.verification.recheck import Finding, Verdict, first_difference

# Documents shown of each kind; all are counted.
SHOWN = 10


def _read_lsn(value: Lsn | str) -> Lsn:
    return parse_lsn(value) if isinstance(value, str) else value


_LsnText = Annotated[Lsn, BeforeValidator(_read_lsn), PlainSerializer(format_lsn)]


@dataclass(slots=True)
class Drift:
    """The documents that are wrong in one way.

    Attributes:
        count: how many there are.
        ahead: how many of them have a version beyond the database's log.
        first: the first of them, described.
    """

    count: int = 0
    ahead: int = 0
    first: list[dict[str, Any]] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Count a finding."""
        self.count += 1
        self.ahead += finding.ahead
        if len(self.first) < SHOWN:
            self.first.append(_describe(finding))


@dataclass(slots=True)
class Undecided:
    """Documents that differ, with changes that the pipeline does not reach.

    Attributes:
        count: how many there are.
        why: why the pipeline does not reach them.
        remedy: what to do about that.
    """

    count: int = 0
    why: str | None = None
    remedy: str = ""


@dataclass(slots=True)
class Unrepaired:
    """Documents that were built again and are still wrong: how many, and the first with `id` and `why`."""

    count: int = 0
    first: list[dict[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Repair:
    """What became of wrong documents.

    Attributes:
        repaired: documents that were built again and are right now.
        left: those that are still wrong.
        fenced: how many of them no write can replace.
    """

    repaired: int = 0
    left: Unrepaired = field(default_factory=Unrepaired)
    fenced: int = 0

    def count_unrepaired(self, id_: str, why: str, *, fenced: bool) -> None:
        """Count a document that is wrong after its repair."""
        self.left.count += 1
        self.fenced += fenced
        if len(self.left.first) < SHOWN:
            self.left.first.append({"id": id_, "why": why})


@dataclass(slots=True)
class Report:
    """The result of one comparison of one index.

    Attributes:
        index: the name of the index.
        alias: the alias that readers use.
        generation: the concrete index that was compared.
        applied: the applied position at the beginning.
        sink: the sink of the index, where the user named one.
        sample: which documents were compared; None: all.
        contents: whether contents were compared, or only ids.
        documents: documents of the database that were compared.
        ids: ids of the index that were looked up in the database.
        in_flight: documents that differed and were right a moment later.
        changing: documents that were written again at each check.
        undecided: documents that differ, with changes that the pipeline does not reach.
        unreadable: documents whose rows cannot be read.
        missing: documents that the index lacks.
        extra: documents that the index should not have.
        different: documents that differ.
        repair: what became of wrong documents; None where they are not repaired.
        seconds: how long the comparison took.
    """

    index: str
    alias: str
    generation: str
    applied: _LsnText
    sink: str | None = None
    sample: Sample | None = None
    contents: bool = True
    documents: int = 0
    ids: int = 0
    in_flight: int = 0
    changing: int = 0
    undecided: Undecided = field(default_factory=Undecided)
    unreadable: Drift = field(default_factory=Drift)
    missing: Drift = field(default_factory=Drift)
    extra: Drift = field(default_factory=Drift)
    different: Drift = field(default_factory=Drift)
    repair: Repair | None = None
    seconds: float = 0.0

    @property
    def drift(self) -> dict[Verdict, Drift]:
        """The wrong documents, by verdict."""
        return {Verdict.MISSING: self.missing, Verdict.EXTRA: self.extra, Verdict.DIFFERENT: self.different}

    @property
    def repaired(self) -> int:
        """How many wrong documents were built again and are right now."""
        return 0 if self.repair is None else self.repair.repaired

    @property
    def wrong(self) -> int:
        """How many documents were wrong."""
        return sum(drift.count for drift in self.drift.values())

    @property
    def right(self) -> bool:
        """Whether the index is known to equal the database now."""
        is_left = self.repair is not None and self.repair.left.count > 0
        return self.wrong == self.repaired and not is_left and not self._unknown

    @property
    def summary(self) -> str:
        """The result in a few words."""
        compared = quantity(self.documents, "document")
        if self.sample is not None:
            compared += f" ({self.sample.percent:g} %)"
        if self.right:
            repaired = f", {self.repaired:,} repaired" if self.repaired else ""
            return f"{compared}, all right{repaired}"
        parts = {"wrong": self.wrong - self.repaired, "undecided": self._unknown}
        return ", ".join([compared, *(f"{count:,} {what}" for what, count in parts.items() if count)])

    @property
    def _unknown(self) -> int:
        return self.undecided.count + self.unreadable.count

    @property
    def rate(self) -> float:
        """Documents compared in a second."""
        return self.documents / max(self.seconds, 1e-9)

    def count_finding(self, finding: Finding) -> None:
        """Count the result for a document that differed at first."""
        match finding.verdict:
            case Verdict.RIGHT:
                self.in_flight += 1
            case Verdict.CHANGING:
                self.changing += 1
            case Verdict.UNAPPLIED:
                self.undecided.count += 1
            case Verdict.UNREADABLE:
                self.unreadable.add(finding)
            case _:
                self.drift[finding.verdict].add(finding)


def _describe(finding: Finding) -> dict[str, Any]:
    description: dict[str, Any] = {"id": finding.id}
    if finding.why is not None:
        description["why"] = finding.why
    if finding.found is not None:
        description |= {"version": finding.found.version, "ahead": finding.ahead}
        if finding.verdict is Verdict.DIFFERENT and finding.expected is not None:
            difference = first_difference(finding.expected, finding.found.source)
            description |= {} if difference is None else asdict(difference)
    return description


_JSON = TypeAdapter(Report)


def as_data(report: Report) -> dict[str, Any]:
    """Return the report as JSON data: positions as PostgreSQL prints them, null for what was not done."""
    computed = {"right": report.right, "documents_per_second": round(report.rate, 1)}
    return {**_JSON.dump_python(report, mode="json"), **computed, "seconds": round(report.seconds, 3)}


def report_of(data: Mapping[str, Any]) -> Report:
    """Return the report that `as_data` has written."""
    return _JSON.validate_python(data)
