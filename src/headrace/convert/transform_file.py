"""Write the Python module that finishes the documents of a converted index."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.convert import documents

_WORD = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class DocumentStep:
    """One call of a function of `headrace.convert.documents`, for each object at a path."""

    path: tuple[str, ...]
    function: str
    arguments: tuple[Any, ...]


def module_name(index: str) -> str:
    """Return the name of the module for an index."""
    return f"{function_name(index)}_transform"


def function_name(index: str) -> str:
    """Return a Python name like `index`, which is neither a keyword nor a name that the module imports."""
    name = _WORD.sub("_", index).lower()
    name = name if not name[:1].isdigit() else f"_{name}"
    return f"{name}_" if keyword.iskeyword(name) or hasattr(documents, name) else name


def module_text(index: str, steps: Sequence[DocumentStep], plugins: Sequence[str]) -> str:
    """Return the module's text.

    Args:
        index: the index's name.
        steps: in the order in which they are taken.
        plugins: the names of PGSync's plugins; each becomes a function that is to be filled in.
    """
    used = sorted({"each_document", *(step.function for step in steps), *(["rows"] if steps else [])})
    name = function_name(index)
    lines = [
        f'"""Finishes the documents of {index}: what its PGSync schema says beyond tables and columns.',
        "",
        "`headrace convert pgsync` has written this file, and it is yours to change. It must be importable",
        "where `headrace run` and Spark's executors run: installed, or beside headrace.toml by PYTHONPATH=.",
        '"""',
        "",
        f"from headrace.convert.documents import {', '.join(used)}",
        "",
        "",
        "@each_document",
        f"def {name}(document, document_id):",
        *_calls(steps),
        *_plugin_calls(plugins),
        "    return document",
    ]
    for plugin in plugins:
        lines += ["", "", *_stub(plugin)]
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


def _plugin_calls(plugins: Sequence[str]) -> list[str]:
    if not plugins:
        return []
    return [
        f"    for plugin in ({', '.join(map(_plugin_function, plugins))},):",
        "        document = plugin(document, document_id)",
        "        if not document:",
        "            return None  # no document",
    ]


def _plugin_function(plugin: str) -> str:
    return f"plugin_{function_name(plugin)}"


def _stub(plugin: str) -> list[str]:
    return [
        f"def {_plugin_function(plugin)}(document, document_id):",
        f'    """Do what `transform(doc, _id=…, _index=…)` of PGSync\'s plugin {plugin} did."""',
        "    return document  # to be filled in",
    ]
