"""What a user's own function may do to documents, and what it may not."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headrace.assembly.transform import (
    check_code,
    is_file_changed,
    load_transform,
    transform_digest,
    transformed_operations,
)
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation

MODULE = """
import json
import pyarrow as pa
import pyarrow.compute as pc

sizes = []

def shout(batch):
    sizes.append(batch.num_rows)
    names = [json.loads(one)["name"] for one in batch.column("document").to_pylist()]
    texts = [json.dumps({"loud": name.upper()}) for name in names]
    table = pa.table({"document": pa.array(texts, pa.large_string()), "id": batch.column("id")})
    return table.take(list(reversed(range(len(table)))))

def without_odd(batch):
    rows = zip(*map(pa.Array.to_pylist, batch.columns))
    keep = pa.array([None if int(one) % 2 else text for one, text in rows], pa.string())
    return pa.RecordBatch.from_arrays([batch.column("id"), keep], names=["id", "document"])

def fails(batch):
    raise ValueError("no\\nmodel")

def exits(batch):
    raise SystemExit(3)

class PanicException(BaseException):
    pass  # as pyo3 raises it, where Rust panics

def panics(batch):
    raise PanicException("index out of bounds")

def is_interrupted(batch):
    raise KeyboardInterrupt

def nothing(batch):
    return None

def fewer(batch):
    return batch.slice(1)

def twice(batch):
    return pa.Table.from_batches([batch, batch])

def others(batch):
    ids = pc.binary_join_element_wise(batch.column("id"), "x", "")
    return pa.RecordBatch.from_arrays([ids, batch.column("document")], names=["id", "document"])

def numbers(batch):
    return pa.RecordBatch.from_arrays([pc.cast(batch.column("id"), pa.int64()), batch.column("document")],
                                      names=["id", "document"])

def columns(batch):
    return batch.select(["id"])

constant = 7
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    name = f"own_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def upserts(count: int, size: int = 10) -> list[DocumentOperation]:
    body = json.dumps({"name": "é" + "a" * size}).encode()
    return [DocumentOperation("i", str(number), 5, body) for number in range(count)]


def deleted(identity: str) -> DocumentOperation:
    return DocumentOperation("i", identity, 5, None)


def test_documents_are_changed_and_keep_their_place_and_version(module: str) -> None:
    operations = [*upserts(2), deleted("9"), *upserts(1)]
    found = list(transformed_operations(f"{module}:shout", operations))
    assert [(one.id, one.version, one.index) for one in found] == [
        (one.id, one.version, one.index) for one in operations
    ]
    assert found[2] == operations[2]
    assert json.loads(found[0].body or b"") == {"loud": "É" + "A" * 10}


def test_batches_are_bounded_in_documents_and_bytes(module: str) -> None:
    transform = load_transform(f"{module}:shout")
    list(transformed_operations(f"{module}:shout", upserts(1_100)))
    list(transformed_operations(f"{module}:shout", upserts(3, size=3 << 20)))
    assert transform.__globals__["sizes"] == [500, 500, 100, 1, 1, 1]


def test_a_document_that_is_null_is_a_delete(module: str) -> None:
    found = list(transformed_operations(f"{module}:without_odd", upserts(3)))
    assert [one.body is None for one in found] == [False, True, False]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("fails", "failed with the documents '0', '1', '2' and 1 more: ValueError: no model"),
        ("exits", "failed with the documents '0', '1', '2' and 1 more: SystemExit: 3"),
        ("panics", "failed with the documents '0', '1', '2' and 1 more: PanicException: index out of"),
        ("nothing", "returned a NoneType"),
        ("fewer", "returned no document for '0'"),
        ("twice", "returned an id twice"),
        ("others", "returned no document for '0', '1', '2' and 1 more"),
        ("numbers", "returned id as int64"),
        ("columns", "returned the columns id"),
        ("constant", "is not a function"),
        ("missing", "cannot be imported: AttributeError"),
    ],
)
def test_a_wrong_function_is_told_by_name(module: str, function: str, said: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        list(transformed_operations(f"{module}:{function}", upserts(4)))
    assert caught.value.kind is Kind.TRANSFORM
    assert f"{module}:{function}" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "name", ["json", "json:", ":dumps", "json.dumps()", "os:system; x", "no_such_thing:f"]
)
def test_a_name_must_lead_to_a_function(name: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        load_transform(name)
    assert caught.value.kind is Kind.TRANSFORM


def test_a_module_that_exits_is_no_end_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "transform_that_exits.py").write_text("import sys\nsys.exit('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(HeadraceError, match="cannot be imported: SystemExit: no licence") as caught:
        load_transform("transform_that_exits:shout")
    assert caught.value.kind is Kind.TRANSFORM


def test_an_interrupt_is_no_failure_of_a_function(module: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        list(transformed_operations(f"{module}:is_interrupted", upserts(1)))


def test_the_digest_is_that_of_the_code_that_was_loaded(module: str, tmp_path: Path) -> None:
    before = transform_digest(f"{module}:shout")
    assert transform_digest(f"{module}:fails") == before
    assert not is_file_changed(f"{module}:shout")
    (tmp_path / f"{module}.py").write_text(MODULE + "\n# changed\n")
    assert transform_digest(f"{module}:shout") == before
    assert is_file_changed(f"{module}:shout")


def test_a_process_with_other_code_than_the_driver_refuses_to_work(module: str, tmp_path: Path) -> None:
    name = f"{module}:shout"
    check_code({name: transform_digest(name)})
    (tmp_path / f"{module}.py").write_text(MODULE + "\n# changed\n")
    check_code({name: transform_digest(name)})  # the code of this process is still the same
    script = (
        "import sys; from headrace.assembly.transform import check_code;"
        "check_code({sys.argv[1]: sys.argv[2]})"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    worker = subprocess.run(
        [sys.executable, "-c", script, name, transform_digest(name)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert "HEADRACE_TRANSFORM" in worker.stderr


def test_the_code_may_be_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark gives its executors the modules of `--py-files` so."""
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as modules:
        modules.writestr("archived_transforms.py", MODULE)
    monkeypatch.syspath_prepend(str(archive))
    assert transform_digest("archived_transforms:shout") == hashlib.sha256(MODULE.encode()).hexdigest()
