"""What a comparison of an index with the database found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.assembly.digests import Sample
from headrace.model import Lsn, format_lsn
from headrace.pipeline.verification.first_difference import first_difference
from headrace.pipeline.verification.recheck import Finding, Verdict

SHOWN = 10
"""Of each kind; the rest is counted."""


@dataclass(slots=True)
class Drift:
    """The documents that are not right in one way: how many, and the first of them.

    Attributes:
        ahead: how many of them have a version beyond the database's log.
    """

    count: int = 0
    ahead: int = 0
    first: list[dict[str, Any]] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Count one more."""
        self.count += 1
        self.ahead += finding.ahead
        if len(self.first) < SHOWN:
            self.first.append(_described(finding))


@dataclass(slots=True)
class Report:
    """One comparison of one index.

    Attributes:
        alias: where its readers find it.
        generation: the concrete index that was compared.
        applied: how far the pipeline was at the beginning.
        sink: whose index it is, where that was said.
        sample: which documents were compared; None: all.
        contents: whether more than their ids was compared.
        documents: of the database, that were compared with the index.
        ids: of the index, that were looked for in the database.
        in_flight: documents that differed and were right a moment later.
        changing: that were written again each time they were looked at.
        undecided: that differ and that a pipeline which stands still has not got to.
        why_undecided: why it stands still.
        unreadable: of the database, that their rows make unreadable.
        repaired: that were built anew and are right now.
        left: that were built anew and are not right; id → why, the first of them.
        fenced: that no write of ours replaces.
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
        """How many documents were found wrong."""
        return sum(one.count for one in self.drift.values())

    @property
    def right(self) -> bool:
        """Whether the index is known to be what the database says, now."""
        unknown = self.undecided + self.unreadable.count
        return self.wrong == self.repaired and not self.left_count and not unknown

    @property
    def rate(self) -> float:
        """Documents a second."""
        return self.documents / max(self.seconds, 1e-9)

    def found(self, finding: Finding) -> None:
        """Count what was found of a document that differed at first."""
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

    def not_repaired(self, id_: str, why: str, *, fenced: bool) -> None:
        """Count a document that is not right after it was built anew."""
        self.left_count += 1
        self.fenced += fenced
        if len(self.left) < SHOWN:
            self.left[id_] = why


def _described(finding: Finding) -> dict[str, Any]:
    told: dict[str, Any] = {"id": finding.id}
    if finding.why is not None:
        told["why"] = finding.why
    if finding.found is not None:
        told |= {"version": finding.found.version, "ahead": finding.ahead}
    if finding.verdict is Verdict.DIFFERENT and finding.expected is not None and finding.found is not None:
        difference = first_difference(finding.expected, finding.found.source)
        if difference is not None:
            told |= {"path": difference.path, "expected": difference.expected, "found": difference.found}
    return told


def as_data(report: Report) -> dict[str, Any]:
    """The report as JSON has it: positions as PostgreSQL's text, null for what was not asked for."""
    repair = {
        "repaired": report.repaired,
        "left": {
            "count": report.left_count,
            "first": [{"id": id_, "why": why} for id_, why in report.left.items()],
        },
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
            str(verdict): {"count": one.count, "ahead": one.ahead, "first": one.first}
            for verdict, one in report.drift.items()
        },
        "unreadable": {"count": report.unreadable.count, "first": report.unreadable.first},
        "in_flight": report.in_flight,
        "changing": report.changing,
        "undecided": {"count": report.undecided, "why": report.why_undecided},
        "repair": repair if report.repairing else None,
        "seconds": round(report.seconds, 3),
        "documents_per_second": round(report.rate, 1),
    }
