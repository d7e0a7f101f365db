"""Write a schema file from plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from headrace.model.names import quote_if_needed
from headrace.schema.json_schema import EDITOR_LINE
from headrace.schema.writing import write_comment

FieldEntry = dict[str, Any]
"""An item of `fields`, in the order of its keys; `fields` holds further items."""


def schema_text(head: FieldEntry, comment: str) -> str:
    """Return the text of a schema file whose keys are those of `head`."""
    return "\n".join([EDITOR_LINE, f"# {write_comment(comment)}", *_entries(head)]) + "\n"


def names_value(names: Sequence[str]) -> str | list[str]:
    """Return a name, or a list of several, as the schema language spells them."""
    texts = [quote_if_needed(name) for name in names]
    return texts[0] if len(texts) == 1 else texts


def _entries(entry: FieldEntry) -> Iterator[str]:
    """Yield the lines of a mapping: each key on one, and of `fields` those of every item."""
    for key, value in entry.items():
        if key != "fields" or not value:
            yield f"{key}: {_flow(value)}"
            continue
        yield "fields:"
        for field in value:
            first, *others = _entries(field)
            yield f"  - {first}"
            yield from (f"    {line}" for line in others)


def _flow(value: Any) -> str:
    # Wide, so that a value stays on one line: the lines around it are laid out here.
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")
