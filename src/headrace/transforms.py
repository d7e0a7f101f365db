"""Change parsed documents: what a converted PGSync schema says beyond tables, columns and names.

The module that `headrace convert pgsync` writes beside a schema file is made of these functions. They run
where documents are assembled, on Spark's executors too. Numbers are doubles here, as they are in PGSync.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

Document = dict[str, Any]


def each_document(
    function: Callable[[Document, str], Document | None],
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Make a transform of a function of a document and its id; without a result there is no document."""

    def transform(batch: pa.RecordBatch) -> pa.RecordBatch:
        ids = batch.column("id")
        pairs = zip(ids.to_pylist(), batch.column("document").to_pylist(), strict=True)
        texts = [_transformed(function, text, id_) for id_, text in pairs]
        return pa.RecordBatch.from_arrays([ids, pa.array(texts, pa.string())], names=["id", "document"])

    return transform


# A document with a value that neither Python nor a cluster takes gets an infinite number, which JSON has not:
# the cluster refuses it alone, and its neighbours are written.
_MOST_DIGITS = 1000
_NESTED = '{"nested deeper than Python reads":Infinity}'


def _transformed(function: Callable[[Document, str], Document | None], text: str, id_: str) -> str | None:
    try:
        document = json.loads(text, parse_int=_number)
    except RecursionError:
        return _NESTED
    changed = function(document, id_)
    try:
        return _json(changed) if changed else None
    except RecursionError:
        return _NESTED


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _json(document: Document) -> str:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # `json` may hold half of a surrogate pair, which only an escape can say
        return json.dumps(document, separators=(",", ":"))
    return text


def rows(document: Any, *path: str) -> Iterator[Document]:
    """Yield the objects at a path, through lists and objects; none where there is nothing."""
    if isinstance(document, list):
        for item in document:
            yield from rows(item, *path)
    elif isinstance(document, dict):
        if path:
            yield from rows(document.get(path[0]), *path[1:])
        else:
            yield document


def rename(row: Document, key: str, new: str) -> None:
    """Give a key another name."""
    row[new] = row.pop(key)


def extract(row: Document, key: str, steps: Sequence[tuple[str, str]], new: str) -> None:
    """Put what a path into a json value leads to under a key of its own; null where it leads nowhere.

    Args:
        row: the object that holds the value.
        key: the value's key.
        steps: PostgreSQL's operators (`->`, `->>`, `#>`, `#>>`) and what each is given.
        new: the key of the result.
    """
    value = row.get(key)
    for operator, operand in steps:
        for part in operand.strip("{}").split(",") if operator.startswith("#") else [operand]:
            value = _member(value, part)
        if operator.endswith(">>"):
            value = _as_text(value)
    row[new] = value


def drop(row: Document, key: str) -> None:
    """Take out a key that only other values were made of."""
    row.pop(key, None)


def flatten(row: Document, key: str, inner: str, new: str) -> None:
    """Put the related rows that stand one level deeper, under `inner` of each item of a list, into a list."""
    row[new] = [
        found
        for item in row.pop(key) or []
        for found in (item[inner] if isinstance(item[inner], list) else [item[inner]])
        if found is not None
    ]


def replace(row: Document, key: str, replacements: Mapping[str, str]) -> None:
    """Replace parts of a text, or of each text of a list."""
    value = row.get(key)
    if isinstance(value, list):
        row[key] = [_replaced(item, replacements) for item in value]
    elif key in row:
        row[key] = _replaced(value, replacements)


def concat(row: Document, columns: Sequence[str], destination: str, delimiter: str = "") -> None:
    """Join values to one text; a name that is no key stands for itself, and what is empty is left out."""
    values = [row.get(name, name) for name in columns]
    row[destination] = delimiter.join(str(value) for value in values if value)


def _member(value: Any, part: str) -> Any:
    if isinstance(value, list) and part.lstrip("-").isdigit():
        place = int(part)
        return value[place] if -len(value) <= place < len(value) else None
    return value.get(part) if isinstance(value, dict) else None


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _replaced(value: Any, replacements: Mapping[str, str]) -> Any:
    if not isinstance(value, str):
        return value
    for old, new in replacements.items():
        value = value.replace(old, new)
    return value
