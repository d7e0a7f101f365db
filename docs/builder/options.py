"""Generate the page of the deployment file's keys from the models that read it.

A key's meaning is the text below its attribute. A sentence `None: …` in it is the default of a key that is
None. A page that it names, `docs/NAME.md#section`, becomes a link.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from builder.markdown import cell, table
from headrace.config import deployment, mirror
from headrace.config.control import Control, ControlToken

HEAD = """\
# Keys of the deployment file

**For authors of a deployment file**: what each key of `headrace.toml` means.
[configuration.md](../guides/configuration.md) shows a file, and explains what needs more than a line. Paths
are relative to the file. An unknown key is an error that names its line and the nearest known key.
"""

TABLES: dict[str, tuple[type[BaseModel], str]] = {
    "At the top": (deployment.Deployment, ""),
    "[source]": (deployment.SourceConfig, "The database that changes are captured from."),
    "[source.connection_url]": (
        deployment.ConnectionParts,
        "In the place of a URL; see [connections.md](../guides/connections.md#forms).",
    ),
    "[sinks.NAME], an OpenSearch cluster": (
        deployment.OpenSearchSink,
        "One at least; [several](../guides/sinks.md#several-sinks) get the same documents.",
    ),
    "[sinks.NAME], standard output": (
        deployment.StdoutSink,
        "Packages offer further kinds, with options of [their own](../guides/sinks.md#your-own).",
    ),
    "[[index]]": (deployment.IndexEntry, "Once for each index."),
    "[server]": (deployment.Server, "Where a run listens, `HOST:PORT`; port 0 takes a free one."),
    "[control]": (Control, "How the [private address](../guides/control.md) is reached."),
    "[[control.tokens]]": (ControlToken, "Once for each holder of a token; one source of the three."),
    "[backfill]": (
        deployment.BackfillConfig,
        "What filling an index may take, see [generations.md](../guides/generations.md).",
    ),
    "[generations]": (deployment.GenerationsPolicy, ""),
    "[mirror]": (mirror.MirrorConfig, "Tables that are kept [in a lake](../guides/mirror.md)."),
    "[[mirror.tables]]": (mirror.MirroredTables, "Once or several times."),
}
"""The tables of a file: the model of each, and what is said above its keys."""


def page() -> str:
    """Return the page's text."""
    return "\n".join([HEAD, *(_section(title, *content) for title, content in TABLES.items())])


def _section(title: str, model: type[BaseModel], text: str) -> str:
    meanings = attribute_texts(model)
    rows = [
        (f"`{field.alias or name}`", _values(field), *_default_and_meaning(field, meanings.get(name, "")))
        for name, field in model.model_fields.items()
        if not _is_table(field)
    ]
    body = table(("key", "value", "default", "meaning"), rows)
    heading = f"`{title}`" if title.startswith("[") and "," not in title else title
    return f"## {heading}\n\n" + (f"{text}\n\n" if text else "") + body


def attribute_texts(model: type[BaseModel]) -> dict[str, str]:
    """Return the text below each attribute of a class."""
    [definition] = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for attribute, below in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(attribute, ast.AnnAssign)
            and isinstance(attribute.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[attribute.target.id] = " ".join(str(below.value.value).split())
    return found


def _default_and_meaning(field: FieldInfo, text: str) -> tuple[str, str]:
    said = re.search(r" ?None: (.+?)\.(?= |$)", text)
    meaning = text if said is None else text.replace(said[0], "")
    if field.is_required():
        default = "required"
    elif field.get_default(call_default_factory=True) is None:
        default = "none" if said is None else said[1]
    else:
        default = f"`{_toml(field.get_default(call_default_factory=True))}`"
    return default, linked(cell(meaning))


def linked(text: str) -> str:
    """Make links of the pages that a text names."""
    return re.sub(r"docs/([a-z/-]+\.md)(#[a-z-]+)?", r"[\1](../\1\2)", text)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "[]" if value == () else "{}" if value == {} else str(value)


_WORDS = {bool: "true, false", int: "a number", float: "a number", str: "a text", Path: "a path"}


def _values(field: FieldInfo) -> str:
    return _value(field.annotation)


def _value(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        return ", ".join(f'`"{choice}"`' for choice in get_args(kind))
    if origin in {Union, types.UnionType}:
        return _value(next(each for each in get_args(kind) if each is not types.NoneType))
    if origin is tuple:
        return "a list"
    if origin is dict:
        return "a table"
    if hasattr(kind, "__metadata__"):
        return _value(kind.__origin__)
    return _WORDS.get(kind, "a size" if kind.__name__ == "ByteSize" else "a text, or `{ env = … }`")


def _is_table(field: FieldInfo) -> bool:
    """Whether the key is a table of the file, with a section of its own."""
    return field.alias == "index" or field.annotation in {
        deployment.SourceConfig,
        deployment.Server,
        Control,
        deployment.BackfillConfig,
        deployment.GenerationsPolicy,
        tuple[ControlToken, ...],
        dict[str, deployment.Sink],
        mirror.MirrorConfig | None,
        tuple[mirror.MirroredTables, ...],
    }
