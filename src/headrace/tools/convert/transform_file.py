"""Write the Python module that finishes the documents of a converted index.

Names of the file that is converted never become code as they are: a text is written by `repr`, and
a function's name has only letters, digits and _ and is in the module once.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from headrace import transforms

_NOT_IN_NAMES = re.compile(r"\W+", re.ASCII)


@dataclass(frozen=True, slots=True)
class DocumentStep:
    """One call of a function of `headrace.transforms`, for each object at a path."""

    path: tuple[str, ...]
    function: str
    arguments: tuple[Any, ...]


def module_name(index: str) -> str:
    """Return the name of the module for an index, whose name is one of a deployment file."""
    return f"{index}_transform"


def function_name(index: str) -> str:
    """Return the name of the module's transform: neither a keyword nor one that the module imports."""
    name = _NOT_IN_NAMES.sub("_", index).lower()
    name = name if name.isidentifier() else f"_{name}"
    while keyword.iskeyword(name) or name in dir(transforms):
        name += "_"
    return name


def module_text(index: str, steps: Sequence[DocumentStep]) -> str:
    """Return the module's text, for an index's steps in the order in which they are taken."""
    used = sorted({"each_document", "rows", *(step.function for step in steps)})
    lines = [
        f'"""Finishes the documents of {index}: what its PGSync schema says beyond tables and columns.',
        "",
        "`headrace convert pgsync` has written this file, and it is yours to change. It must be importable",
        "where `headrace run` and Spark's executors run: installed, or beside headrace.toml by PYTHONPATH=.",
        '"""',
        "",
        f"from headrace.transforms import {', '.join(used)}",
        "",
        "",
        "@each_document",
        f"def {function_name(index)}(document, document_id):",
        *_calls(steps),
        "    return document",
    ]
    return "\n".join(lines) + "\n"


def _calls(steps: Sequence[DocumentStep]) -> Iterator[str]:
    for path, calls in groupby(steps, key=lambda step: step.path):
        yield f"    for row in rows({', '.join(['document', *map(repr, path)])}):"
        for step in calls:
            yield f"        {step.function}({', '.join(['row', *map(repr, step.arguments)])})"
