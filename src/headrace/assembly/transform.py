"""How does a user's own Python change documents on their way to the sink?

A transform is a function of an importable module, named `module:function`. It is given Arrow batches of two
columns, `id` and `document` (JSON), both string, and returns the same: the ids that it was given, each once,
in any order; a document that is null is not kept. It is called in the processes that assemble, so a model
that it loads is best loaded at its first call. Its answer must be a function of the documents alone.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from headrace.errors import HeadraceError, Kind, without_values
from headrace.model import DocumentOperation

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("document", pa.string())])
"""What a transform takes and returns; it may return `large_string` and a Table too."""

_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
_MOST_DOCUMENTS = 500
_MOST_BYTES = 4 << 20

Function = Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table]


def load_transform(name: str) -> Function:
    """The function that `name` means.

    Raises:
        HeadraceError: TRANSFORM, where it is not `module:function`, or cannot be imported here.
    """
    if not _NAME.fullmatch(name):
        raise HeadraceError(Kind.TRANSFORM, f"{name!r} is no transform", "Write `module:function`.")
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:  # a user's module may do anything
        raise HeadraceError(
            Kind.TRANSFORM,
            f"the transform {name} cannot be imported: {_told(error)}",
            "Install its module for the Python that runs Headrace, and for Spark's executors.",
        ) from error
    if not callable(found):
        raise HeadraceError(Kind.TRANSFORM, f"the transform {name} is no function")
    return cast(Function, found)


def transform_digest(name: str) -> str:
    """What changes where the file of the transform's module does: documents are built anew then.

    Raises:
        HeadraceError: as `load_transform`.
    """
    load_transform(name)
    file = importlib.import_module(name.partition(":")[0]).__file__
    return hashlib.sha256(Path(file).read_bytes() if file else b"").hexdigest()


def transformed_operations(name: str, operations: Iterable[DocumentOperation]) -> Iterator[DocumentOperation]:
    """The operations with their documents changed; deletes stay what they are.

    Raises:
        HeadraceError: TRANSFORM, where the function fails or returns something else than it must.
    """
    function = load_transform(name)
    for kind, group in groupby(_numbered(operations), key=lambda one: one[0]):
        some = [operation for _, operation in group]
        yield from some if kind < 0 else _changed(name, function, some)


def _numbered(operations: Iterable[DocumentOperation]) -> Iterator[tuple[int, DocumentOperation]]:
    """Each operation with the number of its batch; a delete with a negative one."""
    batch, count, size = 0, 0, 0
    for one in operations:
        if one.body is None:
            yield -1 - batch, one
            continue
        if count == _MOST_DOCUMENTS or (count and size + len(one.body) > _MOST_BYTES):
            batch, count, size = batch + 1, 0, 0
        count, size = count + 1, size + len(one.body)
        yield batch, one


def _changed(
    name: str, function: Function, operations: list[DocumentOperation]
) -> Iterator[DocumentOperation]:
    ids = [one.id for one in operations]
    bodies = [(one.body or b"").decode() for one in operations]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(ids, pa.string()), pa.array(bodies, pa.string())], schema=SCHEMA
    )
    try:
        answer = function(batch)
    except Exception as error:  # a user's function may do anything
        what = f"the transform {name} failed with the documents {_some(ids)}"
        raise HeadraceError(
            Kind.TRANSFORM,
            f"{what}: {without_values(_told(error))}",
            "Correct it, then start again: nothing of the batch is confirmed.",
            f"{what}: {_told(error)}",
        ) from error
    found = _read(name, answer)
    if sorted(found) != sorted(set(ids)):
        missing = sorted(set(ids) - set(found))
        what = (
            f"no document for {_some(missing)}" if missing else f"unknown ids {_some(set(found) - set(ids))}"
        )
        raise _wrong(name, what)
    for one in operations:
        body = found[one.id]
        yield replace(one, body=None if body is None else body.encode())


def _read(name: str, answer: Any) -> dict[str, str | None]:
    if not isinstance(answer, pa.RecordBatch | pa.Table):
        raise _wrong(name, f"a {type(answer).__name__}")
    if set(answer.schema.names) != set(SCHEMA.names):
        raise _wrong(name, f"the columns {', '.join(answer.schema.names) or 'none'}")
    columns = []
    for field in SCHEMA:
        column = answer.column(field.name)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise _wrong(name, f"{field.name} as {column.type}")
        columns.append(column.to_pylist())
    found = dict(zip(*columns, strict=True))
    if len(found) < answer.num_rows:
        raise _wrong(name, "an id twice")
    return found


def _wrong(name: str, what: str) -> HeadraceError:
    return HeadraceError(
        Kind.TRANSFORM,
        f"the transform {name} returned {what}",
        "It must return an Arrow batch of the same ids with the columns id and document, both string.",
    )


def _some(ids: Iterable[str]) -> str:
    found = [repr(one) for one in ids]
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")  # noqa: PLR2004


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
