"""Find the generations that a failure of the query concerns: only these are given up."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.errors import HeadraceError
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.schema_drift import ALTERED
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import GenerationState

Concerned = list[tuple[GenerationLog, GenerationState]]


def find_concerned(failure: HeadraceError, generation_logs: Iterable[GenerationLog]) -> Concerned:
    """Return the written generations that a failure names, or whose altered table it names.

    Spark hands on only the text of a failure. Where it names none, it may concern any: all are returned.
    """
    written = [
        (generation_log, generation)
        for generation_log in generation_logs
        for generation in generation_log.written
    ]
    named = [
        (generation_log, generation)
        for generation_log, generation in written
        if is_named(generation_log.manager.spec(generation), failure)
    ]
    return named or written


def is_named(spec: IndexSpec, failure: HeadraceError) -> bool:
    """Whether a failure names a generation, or a table that it reads and that was altered.

    Args:
        spec: the schema of the generation, under its name.
        failure: the failure.
    """
    names = [spec.name]
    if failure.kind in ALTERED:
        names += [str(table) for table in spec.tables()]
    return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", failure.cause) for name in names)
