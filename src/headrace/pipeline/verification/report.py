"""The result of comparing an index with the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.assembly.digests import Sample
from headrace.model.lsn import Lsn, format_lsn, parse_lsn
from headrace.model.units import quantity
from headrace.pipeline.verification.recheck import Finding, Verdict, first_difference

# Documents shown of each kind; all are counted.
SHOWN = 10


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
        why_undecided: why the pipeline does not reach them.
        remedy: what to do about that.
        unreadable: documents whose rows cannot be read.
        drift: the wrong documents, by verdict.
        repairing: whether wrong documents are repaired.
        repaired: documents that were built again and are right now.
        left: documents that were built again and are still wrong: the first ones, id → reason.
        left_count: how many of them there are.
        fenced: wrong documents that no write can replace.
        seconds: how long the comparison took.
    """

    index: str
    alias: str
    generation: str
    applied: Lsn
    sink: str | None = None
    sample: Sample | None = None
    contents: bool = True
    documents: int = 0
    ids: int = 0
    in_flight: int = 0
    changing: int = 0
    undecided: int = 0
    why_undecided: str | None = None
    remedy: str = ""
    unreadable: Drift = field(default_factory=Drift)
    drift: dict[Verdict, Drift] = field(
        default_factory=lambda: {verdict: Drift() for verdict in Verdict if verdict.is_drift}
    )
    repairing: bool = False
    repaired: int = 0
    left: dict[str, str] = field(default_factory=dict)
    left_count: int = 0
    fenced: int = 0
    seconds: float = 0.0

    @property
    def wrong(self) -> int:
        """How many documents were wrong."""
        return sum(drift.count for drift in self.drift.values())

    @property
    def right(self) -> bool:
        """Whether the index is known to equal the database now."""
        unknown = self.undecided + self.unreadable.count
        return self.wrong == self.repaired and not self.left_count and not unknown

    @property
    def summary(self) -> str:
        """The result in a few words."""
        compared = quantity(self.documents, "document")
        if self.sample is not None:
            compared += f" ({self.sample.percent:g} %)"
        if self.right:
            repaired = f", {self.repaired:,} repaired" if self.repaired else ""
            return f"{compared}, all right{repaired}"
        unknown = self.undecided + self.unreadable.count
        parts = {"wrong": self.wrong - self.repaired, "undecided": unknown}
        return ", ".join([compared, *(f"{count:,} {what}" for what, count in parts.items() if count)])

    @property
    def rate(self) -> float:
        """Documents compared in a second."""
        return self.documents / max(self.seconds, 1e-9)

    def count_finding(self, finding: Finding) -> None:
        """Count the result for a document that differed at first."""
        if finding.verdict.is_drift:
            self.drift[finding.verdict].add(finding)
        elif finding.verdict is Verdict.RIGHT:
            self.in_flight += 1
        elif finding.verdict is Verdict.CHANGING:
            self.changing += 1
        elif finding.verdict is Verdict.UNREADABLE:
            self.unreadable.add(finding)
        else:
            self.undecided += 1

    def count_unrepaired(self, id_: str, why: str, *, fenced: bool) -> None:
        """Count a document that is wrong after its repair."""
        self.left_count += 1
        self.fenced += fenced
        if len(self.left) < SHOWN:
            self.left[id_] = why


def _describe(finding: Finding) -> dict[str, Any]:
    description: dict[str, Any] = {"id": finding.id}
    if finding.why is not None:
        description["why"] = finding.why
    if finding.found is not None:
        description |= {"version": finding.found.version, "ahead": finding.ahead}
    if finding.verdict is Verdict.DIFFERENT and finding.expected is not None and finding.found is not None:
        difference = first_difference(finding.expected, finding.found.source)
        if difference is not None:
            description |= {
                "path": difference.path,
                "expected": difference.expected,
                "found": difference.found,
            }
    return description


def as_data(report: Report) -> dict[str, Any]:
    """Return the report as JSON data: positions as PostgreSQL prints them, null for what was not done."""
    repair = {
        "repaired": report.repaired,
        "left": {
            "count": report.left_count,
            "first": [{"id": id_, "why": why} for id_, why in report.left.items()],
        },
        "fenced": report.fenced,
    }
    return {
        "index": report.index,
        "alias": report.alias,
        "sink": report.sink,
        "generation": report.generation,
        "applied": format_lsn(report.applied),
        "right": report.right,
        "documents": report.documents,
        "ids": report.ids,
        "sample": None if report.sample is None else asdict(report.sample),
        "contents": report.contents,
        **{
            str(verdict): {"count": drift.count, "ahead": drift.ahead, "first": drift.first}
            for verdict, drift in report.drift.items()
        },
        "unreadable": {"count": report.unreadable.count, "first": report.unreadable.first},
        "in_flight": report.in_flight,
        "changing": report.changing,
        "undecided": {"count": report.undecided, "why": report.why_undecided, "remedy": report.remedy},
        "repair": repair if report.repairing else None,
        "seconds": round(report.seconds, 3),
        "documents_per_second": round(report.rate, 1),
    }


def report_of(data: Mapping[str, Any]) -> Report:
    """Return the report that `as_data` has written."""
    repair = data["repair"]
    repaired = repair or {"repaired": 0, "left": {"count": 0, "first": []}, "fenced": 0}
    return Report(
        data["index"],
        data["alias"],
        data["generation"],
        parse_lsn(data["applied"]),
        sink=data["sink"],
        sample=None if data["sample"] is None else Sample(**data["sample"]),
        contents=data["contents"],
        documents=data["documents"],
        ids=data["ids"],
        in_flight=data["in_flight"],
        changing=data["changing"],
        undecided=data["undecided"]["count"],
        why_undecided=data["undecided"]["why"],
        remedy=data["undecided"]["remedy"],
        unreadable=Drift(**data["unreadable"]),
        drift={verdict: Drift(**data[str(verdict)]) for verdict in Verdict if verdict.is_drift},
        repairing=repair is not None,
        repaired=repaired["repaired"],
        left={entry["id"]: entry["why"] for entry in repaired["left"]["first"]},
        left_count=repaired["left"]["count"],
        fenced=repaired["fenced"],
        seconds=data["seconds"],
    )
