"""Find the generations that a failure of the query concerns: only these are given up."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import HeadraceError
from headrace.pipeline.generation_log import GenerationLog
from headrace.schema.tree import IndexSpec
from headrace.state import GenerationState

Concerned = list[tuple[GenerationLog, GenerationState]]


def find_concerned(failure: HeadraceError, generation_logs: Iterable[GenerationLog]) -> Concerned:
    """Return the written generations that a failure concerns."""
    return [
        (generation_log, generation)
        for generation_log in generation_logs
        for generation in generation_log.written
        if is_concerned(generation_log.manager.spec(generation), failure)
    ]


def is_concerned(spec: IndexSpec, failure: HeadraceError) -> bool:
    """Whether a failure concerns a generation, by its name or by a table that it reads.

    Args:
        spec: the schema of the generation, under its name.
        failure: the failure; one that says nothing of what it concerns may concern any.
    """
    if not (failure.tables or failure.units):
        return True
    return spec.name in failure.units or any(str(table) in failure.tables for table in spec.tables())
