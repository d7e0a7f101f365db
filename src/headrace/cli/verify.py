"""`headrace verify INDEX`: compare an index with the database."""

from __future__ import annotations

import json

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.model.lsn import format_lsn
from headrace.model.units import are, quantity
from headrace.tools.verification.recheck import Verdict
from headrace.tools.verification.report import Drift, Report, Unrepaired, as_data
from headrace.tools.verification.verify import VerifyOptions, verify


def verify_index(context: CommandContext, index: str, options: VerifyOptions) -> bool:
    """Compare an index with the database and print the report; return whether the index is right now.

    Raises:
        HeadraceError: as for `verify`.
    """
    report = verify(context.open_project(index), index, options, terminal.TerminalReporter())
    if context.as_json:
        terminal.data(as_data(report))
    else:
        _print_report(report)
    return report.right


def _print_report(report: Report) -> None:
    """Print the report as text."""
    sample = report.sample
    chosen = "" if sample is None else f" ({sample.percent:g} %, seed {sample.seed})"
    compared = f"{quantity(report.documents, 'document')}{chosen} compared in {report.seconds:.1f} s"
    applied = f"the pipeline had applied {format_lsn(report.applied)}"
    terminal.answer(f"{report.alias}: {compared}, {report.rate:,.0f}/s; {applied}")
    if not report.contents:
        terminal.warn("an ingest pipeline alters the documents: only their ids were compared")
    for verdict, drift in {**report.drift, Verdict.UNREADABLE: report.unreadable}.items():
        if drift.count:
            _print_found(str(verdict), drift)
    if report.in_flight:
        _line(f"in flight    {report.in_flight:,}: they differed at first, and were right a moment later")
    if report.changing:
        _line(f"changing     {report.changing:,}: written again at each look, so not compared")
    if report.undecided.count:
        _line(
            f"undecided    {report.undecided.count:,}: they differ, and changes after the applied position "
            f"are not written: {report.undecided.why}"
        )
    if report.repair is not None and report.repaired:
        _line(f"repaired     {report.repaired:,}: rebuilt, and right")
    if report.repair is not None and report.repair.left.count:
        _print_found("not repaired", report.repair.left)
    _print_conclusion(report)


def _print_found(what_is: str, found: Drift | Unrepaired) -> None:
    _line(f"{what_is:<12} {found.count:,}")
    for example in found.first:
        parts = [f"    {_shown(example['id'])}"]
        if "path" in example:
            parts.append(f"{example['path']}: expected {example['expected']}, found {example['found']}")
        if example.get("ahead"):
            parts.append(f"(version {example['version']} is ahead of the log)")
        if "why" in example:
            parts.append(example["why"])
        _line("  ".join(parts))
    if found.count > len(found.first):
        _line(f"    … and {found.count - len(found.first):,} more")


def _print_conclusion(report: Report) -> None:
    if report.right:
        part = "" if report.sample is None else ", as far as the sample shows"
        repaired = f": {report.repaired:,} rebuilt" if report.repaired else ""
        terminal.done(f"{report.alias} is what the database says{part}{repaired}")
    else:
        _print_remedies(report)


def _print_remedies(report: Report) -> None:
    fenced = 0 if report.repair is None else report.repair.fenced
    fenced = fenced or sum(drift.ahead for drift in report.drift.values())
    if report.wrong > report.repaired:
        wrong = report.wrong - report.repaired
        terminal.warn(f"{quantity(wrong, 'document')} {are(wrong)} not what the database says")
    if report.wrong and report.repair is None:
        of = "" if report.sink is None else f" --sink {report.sink}"
        terminal.say(f"`headrace verify {report.index}{of} --repair` rebuilds them")
    if fenced:
        terminal.say(
            f"Fenced documents need a new generation: `headrace reindex {report.index}` builds it, and "
            "readers keep the present one until it is complete"
        )
    if report.unreadable.count:
        terminal.say(
            "Rows that cannot be read have no right document: correct them or the schema, and verify again"
        )
    if report.undecided.count:
        terminal.say(f"{report.undecided.remedy} Then verify again")


def _line(text: str) -> None:
    terminal.answer(f"  {text}")


def _shown(id_: str) -> str:
    # An id is a value of a row and may hold anything: what a terminal would act on is quoted.
    return id_ if id_ and id_.isprintable() and " " not in id_ else json.dumps(id_)
