"""Run a user's own Python function over documents on their way to the sink.

A transform is a function of an importable module, named `module:function`. It takes Arrow batches of two
columns, `id` and `document` (JSON), both string, and returns the same: each given id once, in any order; a
document that is null is dropped. It is called in the processes that assemble, so it should load models at its
first call. Its result must depend on the documents alone.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pyarrow as pa

from headrace.errors import HeadraceError, Kind, without_values
from headrace.model.arrow_without_pandas import take_in_pandas
from headrace.model.changes import DocumentOperation
from headrace.model.chunks import chunked

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("document", pa.string())])
"""Schema of a transform's input and result; a result may also be a Table or use `large_string`."""

_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
_MAX_DOCUMENTS = 500
_MAX_BYTES = 4 << 20

Function = Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table]

_LOADED: dict[str, str] = {}  # by module, the digest of its file when this process loaded it


def load_transform(name: str) -> Function:
    """Load the function with this name.

    Raises:
        HeadraceError: TRANSFORM, where it is not `module:function`, or cannot be imported in this process.
    """
    if not _NAME.fullmatch(name):
        raise HeadraceError(Kind.TRANSFORM, f"{name!r} does not name a transform", "Write `module:function`.")
    module, _, function = name.partition(":")
    try:
        if module not in _LOADED:
            take_in_pandas()
        loaded = importlib.import_module(module)
        _LOADED.setdefault(module, _digest(loaded))
        found = getattr(loaded, function)
    except KeyboardInterrupt:  # a stop of the run is one too
        raise
    except BaseException as error:  # a user's module may do anything, exit too
        raise HeadraceError(
            Kind.TRANSFORM,
            f"the transform {name} cannot be imported: {_describe(error)}",
            "Install its module for the Python that runs Headrace, and for Spark's executors.",
        ) from error
    if not callable(found):
        raise HeadraceError(
            Kind.TRANSFORM, f"the transform {name} is not a function", "Write module:function."
        )
    return cast(Function, found)


def transform_digest(name: str) -> str:
    """Return a digest of the transform's module as this process has loaded it.

    When it changes, documents are built again. The file may be another by now: a process loads it only once.

    Raises:
        HeadraceError: as `load_transform`.
    """
    load_transform(name)
    return _LOADED[name.partition(":")[0]]


def is_file_changed(name: str) -> bool:
    """Whether the file of the transform's module is another than this process has loaded.

    Raises:
        HeadraceError: as `load_transform`.
    """
    digest = transform_digest(name)
    return _digest(importlib.import_module(name.partition(":")[0])) != digest


def check_code(digests: Mapping[str, str]) -> None:
    """Check that this process has loaded the code that the driver has loaded, by the transform's name.

    A worker process that begins later, or on another host, may find another file.

    Raises:
        HeadraceError: TRANSFORM, where it is another; as `load_transform`.
    """
    for name, digest in digests.items():
        if transform_digest(name) != digest:
            raise HeadraceError(
                Kind.TRANSFORM,
                f"the code of the transform {name} has changed since the run started",
                "Restart `headrace run`; in a cluster, install the same file on all hosts.",
            )


def _digest(module: ModuleType) -> str:
    """Return the digest of a module's file, which may be in an archive."""
    if module.__file__ is None:
        return hashlib.sha256(b"").hexdigest()
    loader = getattr(module.__spec__, "loader", None)
    read = getattr(loader, "get_data", None)
    content = Path(module.__file__).read_bytes() if read is None else read(module.__file__)
    return hashlib.sha256(content).hexdigest()


def transformed_operations(name: str, operations: Iterable[DocumentOperation]) -> Iterator[DocumentOperation]:
    """Apply the transform to the operations' documents; deletes are not changed.

    Raises:
        HeadraceError: TRANSFORM, where the function fails or its result is invalid.
    """
    function = load_transform(name)
    for is_delete, group in groupby(operations, lambda operation: operation.body is None):
        if is_delete:
            yield from group
        else:
            batches = chunked(group, lambda each: len(each.body or b""), lambda: _MAX_BYTES, _MAX_DOCUMENTS)
            for batch in batches:
                yield from _apply(name, function, batch)


def _apply(name: str, function: Function, operations: list[DocumentOperation]) -> Iterator[DocumentOperation]:
    # A chunk may name a row in two spellings, which its key's collation takes for equal.
    operations = list({operation.id: operation for operation in operations}.values())
    ids = [operation.id for operation in operations]
    bodies = [(operation.body or b"").decode() for operation in operations]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(ids, pa.string()), pa.array(bodies, pa.string())], schema=SCHEMA
    )
    try:
        answer = function(batch)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's function may do anything; a panic of Rust is no Exception
        what = f"the transform {name} failed with the documents {_sample(ids)}"
        raise HeadraceError(
            Kind.TRANSFORM,
            f"{what}: {without_values(_describe(error))}",
            "Correct it, then restart `headrace run`.",
            f"{what}: {_describe(error)}",
        ) from error
    found = _read(name, answer)
    if missing := sorted(set(ids) - set(found)):
        raise _bad_answer(name, f"no document for {_sample(missing)}")
    if unknown := set(found) - set(ids):
        raise _bad_answer(name, f"unknown ids {_sample(unknown)}")
    for operation in operations:
        body = found[operation.id]
        yield replace(operation, body=None if body is None else body.encode())


def _read(name: str, answer: Any) -> dict[str, str | None]:
    if not isinstance(answer, pa.RecordBatch | pa.Table):
        raise _bad_answer(name, f"a {type(answer).__name__}")
    if set(answer.schema.names) != set(SCHEMA.names):
        raise _bad_answer(name, f"the columns {', '.join(answer.schema.names) or 'none'}")
    columns = []
    for field in SCHEMA:
        column = answer.column(field.name)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise _bad_answer(name, f"{field.name} as {column.type}")
        columns.append(column.to_pylist())
    found = dict(zip(*columns, strict=True))
    if len(found) < answer.num_rows:
        raise _bad_answer(name, "an id twice")
    return found


def _bad_answer(name: str, what: str) -> HeadraceError:
    return HeadraceError(
        Kind.TRANSFORM,
        f"the transform {name} returned {what}",
        "It must return an Arrow batch of the same ids with the columns id and document, both string.",
    )


def _sample(ids: Iterable[str]) -> str:
    found = [repr(id_) for id_ in ids]
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")  # noqa: PLR2004


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
