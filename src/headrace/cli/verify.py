"""`headrace verify INDEX`: compare an index with the database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from headrace.cli import terminal
from headrace.cli.verify_report import print_report
from headrace.pipeline.project import open_project
from headrace.pipeline.verification.report import as_data
from headrace.pipeline.verification.verify import VerifyOptions, verify


def verify_index(
    config: Path,
    environ: Mapping[str, str],
    slot: str | None,
    index: str,
    *,
    options: VerifyOptions,
    as_json: bool,
) -> bool:
    """Compare an index with the database and print the report; return whether the index is right now.

    Raises:
        HeadraceError: as for `verify`.
    """
    report = verify(open_project(config, environ, slot=slot), index, options, terminal.TerminalReporter())
    if as_json:
        terminal.out.print_json(json.dumps(as_data(report)))
    else:
        print_report(report)
    return report.right
