"""Write the Python module that finishes the documents of a converted index.

Names of the file that is converted never become code as they are: a text is written by `repr`, and
a function's name has only letters, digits and _ and is in the module once.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
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
    """Return the name of the module's transform."""
    return _unused_name(index, dir(transforms))


def _unused_name(like: str, taken: Collection[str]) -> str:
    """Return a name of Python like `like`, which is neither a keyword nor taken."""
    name = _NOT_IN_NAMES.sub("_", like).lower()
    name = name if name.isidentifier() else f"_{name}"
    while keyword.iskeyword(name) or name in taken:
        name += "_"
    return name


def module_text(index: str, steps: Sequence[DocumentStep], plugins: Sequence[str]) -> str:
    """Return the module's text.

    Args:
        index: the index's name.
        steps: in the order in which they are taken.
        plugins: the names of PGSync's plugins; each becomes a function that is to be filled in.
    """
    used = sorted({"each_document", *(step.function for step in steps), *(["rows"] if steps else [])})
    name = function_name(index)
    functions: dict[str, str] = {}
    for plugin in dict.fromkeys(plugins):
        # Two plugins may differ only in signs that no name of Python has.
        functions[plugin] = _unused_name(f"plugin_{plugin}", {name, *functions.values()})
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
        f"def {name}(document, document_id):",
        *_calls(steps),
        *_plugin_calls([functions[plugin] for plugin in plugins]),
        "    return document",
    ]
    for plugin, function in functions.items():
        lines += ["", "", *_stub(plugin, function)]
    return "\n".join(lines) + "\n"


def _calls(steps: Sequence[DocumentStep]) -> list[str]:
    lines: list[str] = []
    path: tuple[str, ...] | None = None
    for step in steps:
        if step.path != path:
            path = step.path
            lines.append(f"    for row in rows({', '.join(['document', *map(repr, path)])}):")
        lines.append(f"        {step.function}({', '.join(['row', *map(repr, step.arguments)])})")
    return lines


def _plugin_calls(functions: Sequence[str]) -> list[str]:
    if not functions:
        return []
    return [
        f"    for plugin in ({', '.join(functions)},):",
        "        document = plugin(document, document_id)",
        "        if not document:",
        "            return None  # no document",
    ]


def _stub(plugin: str, function: str) -> list[str]:
    return [
        f"def {function}(document, document_id):",
        f"    # Do what `transform(doc, _id=…, _index=…)` of PGSync's plugin {plugin!r} did.",
        "    return document  # to be filled in",
    ]
