"""List the messages of each kind of error, as the code raises them: their cause and their remedy.

A message is found where `HeadraceError(Kind.…, cause, remedy)` is written. What differs from case to case
stands in capitals, named as in the code.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from headrace.errors import Kind

_SOURCE = Path(__file__).parents[2] / "src"
_WORDS = re.compile(r"[a-z]{3}")
_TEXTS = ast.Constant, ast.JoinedStr, ast.IfExp, ast.BinOp


@cache
def messages_by_kind() -> dict[Kind, list[tuple[str, str]]]:
    """Return (cause, remedy) of every message, sorted; a cause that is made elsewhere is left out."""
    modules = [ast.parse(file.read_text()) for file in sorted(_SOURCE.rglob("*.py"))]
    shared = dict(_texts(modules))
    found = defaultdict(set)
    for module in modules:
        whole = _Inlined(shared | dict(_texts([module]))).visit(module)
        raised = _Raised()
        raised.visit(whole)
        for kind, cause, remedy in raised.found:
            if _WORDS.search(cause):
                found[kind].add((cause, remedy if _WORDS.search(remedy) else ""))
    return {kind: sorted(messages) for kind, messages in found.items()}


def _texts(modules: Iterable[ast.Module]) -> Iterator[tuple[str, ast.Constant]]:
    """Yield the texts that have a name, as remedies that several errors share."""
    for module in modules:
        for node in module.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str()) as text):
                    yield name, text


class _Inlined(ast.NodeTransformer):
    """Put texts where their names stand."""

    def __init__(self, texts: Mapping[str, ast.Constant]) -> None:
        self._texts = texts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._texts.get(node.id, node)


class _Raised(ast.NodeVisitor):
    """Collect the errors that are made; a text that has a name in the function stands where the name does."""

    def __init__(self) -> None:
        self.found: list[tuple[Kind, str, str]] = []
        self._texts: dict[str, ast.expr] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, self._texts = self._texts, dict(self._texts)
        self.generic_visit(node)
        self._texts = outer

    def visit_Assign(self, node: ast.Assign) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._texts[name] = value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = zip(names, values, strict=False)
                self._texts |= {name.id: value for name, value in pairs if isinstance(name, ast.Name)}
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(
                func=ast.Name(id="HeadraceError"),
                args=[ast.Attribute(value=ast.Name(id="Kind"), attr=kind), cause, *rest],
            ):
                self.found.append((Kind[kind], self._said(cause), self._said(rest[0]) if rest else ""))
        self.generic_visit(node)

    def _said(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            text = self._texts.get(node.id, node)
            return _template(text if isinstance(text, _TEXTS) else node)
        return _template(node)


def _template(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(_template, values))
        case ast.FormattedValue(value=value):
            return _template(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _template(left) + _template(right)
        case ast.IfExp(orelse=orelse):
            return _template(orelse)
    return _placeholder(node)


def _placeholder(node: ast.expr) -> str:
    """Return what a value is called where a message is made, as in `SLOT` for `self._slot`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_").upper()
        case ast.Call(args=[*_, last]):
            return _placeholder(last)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name.strip("_").upper()
        case ast.Subscript(value=value):
            return _placeholder(value)
    return "…"
