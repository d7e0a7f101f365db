"""What did a comparison find, for people and for programs?"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.assembly.digests import Sample
from headrace.cli import terminal
from headrace.cli.verification.settling import Finding, Verdict
from headrace.cli.verification.values import first_difference
from headrace.model import Lsn, format_lsn

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


def tell(report: Report) -> None:
    """Print the report for people."""
    sample = report.sample
    chosen = "" if sample is None else f" ({sample.percent:g} %, seed {sample.seed})"
    terminal.out.print(
        f"{report.alias}: {report.documents:,} documents{chosen} compared in {report.seconds:.1f} s, "
        f"{report.rate:,.0f}/s; the pipeline had applied {format_lsn(report.applied)}",
        markup=False,
    )
    if not report.contents:
        terminal.warn("an ingest pipeline alters the documents: only their ids were compared")
    for verdict, drift in {**report.drift, Verdict.UNREADABLE: report.unreadable}.items():
        if drift.count:
            _tell_drift(verdict, drift)
    if report.in_flight:
        _line(
            f"in flight    {report.in_flight:,}: they differed at first, and were right once it was applied"
        )
    if report.changing:
        _line(
            f"changing     {report.changing:,}: written anew each time they were looked at, so not compared"
        )
    if report.undecided:
        _line(
            f"undecided    {report.undecided:,}: they differ, and may be in flight: {report.why_undecided}; "
            "nothing behind the applied position is in the index"
        )
    if report.repairing and report.wrong:
        _tell_repair(report)
    _conclude(report)


def _tell_drift(verdict: Verdict, drift: Drift) -> None:
    _line(f"{verdict!s:<12} {drift.count:,}")
    for one in drift.first:
        ahead = f"  (version {one['version']} is ahead of the log)" if one.get("ahead") else ""
        what = f"  {one['path']}: expected {one['expected']}, found {one['found']}" if "path" in one else ""
        why = f"  {one['why']}" if "why" in one else ""
        _line(f"    {_shown(one['id'])}{what}{ahead}{why}")
    if drift.count > len(drift.first):
        _line(f"    … and {drift.count - len(drift.first):,} more")


def _tell_repair(report: Report) -> None:
    if report.repaired:
        _line(f"repaired     {report.repaired:,}: built anew, and right now")
    if report.left_count:
        _line(f"not repaired {report.left_count:,}")
        for id_, why in report.left.items():
            _line(f"    {_shown(id_)}  {why}")
        if report.left_count > len(report.left):
            _line(f"    … and {report.left_count - len(report.left):,} more")


def _conclude(report: Report) -> None:
    fenced = report.fenced or sum(one.ahead for one in report.drift.values())
    if report.right:
        part = "" if report.sample is None else ", as far as the sample shows"
        terminal.done(f"{report.alias} is what the database says{part}")
        return
    if report.wrong > report.repaired:
        wrong = report.wrong - report.repaired
        terminal.warn(f"{wrong:,} document{'s are' if wrong != 1 else ' is'} not what the database says")
    if report.wrong and not report.repairing:
        of = "" if report.sink is None else f" --sink {report.sink}"
        terminal.say(f"`headrace verify {report.index}{of} --repair` builds them anew")
    if fenced:
        terminal.say(
            "What is fenced needs a new generation: stop `headrace run`, delete the search index "
            f"{report.generation}, and start it again: it seeds {report.index} anew"
        )
    if report.unreadable.count:
        terminal.say("What cannot be read is nowhere right: correct the rows or the schema, and verify again")
    if report.undecided:
        terminal.say("Start `headrace run`, and verify again")


def _line(text: str) -> None:
    terminal.out.print(f"  {text}", markup=False)


def _shown(id_: str) -> str:
    return id_ if id_ and id_.isprintable() and " " not in id_ else json.dumps(id_)
