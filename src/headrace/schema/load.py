"""Load a schema file into an index specification, or report all its mistakes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from headrace.errors import ErrorGroup, LocatedError
from headrace.model.names import TableName
from headrace.schema import language
from headrace.schema.conditions import read_filters
from headrace.schema.fields import Parent, read_fields
from headrace.schema.mapping_reader import MappingReader, Mistakes, read_document_key
from headrace.schema.normal import spec_hash
from headrace.schema.tree import ColumnField, Field, IndexSpec, ObjectField, SoftDelete
from headrace.schema.yaml_nodes import SchemaSource, compose, describe, kind_of, read_source


def load_schema(path: Path, name: str) -> IndexSpec:
    """Load the schema file `path` for the index `name` of the deployment.

    Raises:
        ErrorGroup: SCHEMA; every mistake of the file, each a LocatedError.
        HeadraceError: SCHEMA, where the file cannot be read.
    """
    return parse_schema(*read_source(path), name)


def parse_schema(source: SchemaSource, text: str, name: str) -> IndexSpec:
    """Parse the text of a schema file; as `load_schema`, without reading a file.

    Raises:
        ErrorGroup: SCHEMA; every mistake of the text.
    """
    try:
        root = compose(source, text)
    except LocatedError as error:
        raise ErrorGroup([error]) from error
    mistakes = Mistakes(source)
    spec = _index(MappingReader(mistakes, root, language.TOP, "the schema"), name)
    if mistakes.errors:
        raise ErrorGroup(mistakes.in_file_order())
    return dataclasses.replace(spec, hash=spec_hash(spec))


def _index(record: MappingReader, name: str) -> IndexSpec:
    _check_version(record)
    record.refuse("doc_id", "'doc_id' is not supported: a document's id is its row's primary key")
    table = TableName(record.identifier("schema", "public"), record.identifier("table"))
    primary_key = record.identifiers("primary_key", required=False)
    fields = read_fields(record, Parent(table.schema, primary_key))
    for field in fields:
        if field.key in language.METADATA:
            problem = f"clusters keep {field.key!r} for themselves, and refuse a document that has it"
            record.mistakes.add(field.place, problem, "Rename it and set `column:`.")
    return IndexSpec(
        name=name,
        table=table,
        primary_key=primary_key,
        fields=fields,
        place=record.at("table"),
        filters=read_filters(record),
        soft_delete=_soft_delete(record, fields),
        routing=record.identifier("routing") if record.has("routing") else None,
        description=record.text("description", required=False),
    )


def _check_version(record: MappingReader) -> None:
    node = record.need("version", "Begin with `version: 1`.")
    if node is not None and (kind_of(node) != "int" or node.value != "1"):
        found = repr(node.value) if kind_of(node) in ("int", "float", "str") else describe(node)
        record.mistakes.add(node, f"unknown schema version {found}", "Only `version: 1` exists.")


def _soft_delete(record: MappingReader, fields: tuple[Field, ...]) -> SoftDelete | None:
    marker = record.record("soft_delete", language.SOFT_DELETE)
    if marker is None:
        return None
    if marker.has("column") == marker.has("field"):
        problem = "soft_delete takes exactly one of 'column' and 'field'"
        marker.note(problem, "Name the marker's column.")
        return None
    column = marker.identifier("column") if marker.has("column") else _column_of(marker, fields)
    return SoftDelete(column, read_filters(marker, "when"), marker.place)


def _column_of(marker: MappingReader, fields: tuple[Field, ...]) -> str:
    """Return the column that the named top-level field, or one in an object, reads."""
    node = marker.need("field")
    key = "" if node is None else read_document_key(marker.mistakes, node)
    found = _find_column(key, fields)
    if key and found is None:
        problem = f"no field of this row's own columns is called {key!r}"
        marker.note(problem, "Name the `column:`.", "field")
    return found or ""


def _find_column(key: str, fields: tuple[Field, ...]) -> str | None:
    """Return the column of a field; of two with the same key the one that is not in a deeper object."""
    for field in fields:
        if isinstance(field, ColumnField) and field.key == key:
            return field.column
    inner = (_find_column(key, field.fields) for field in fields if isinstance(field, ObjectField))
    return next(filter(None, inner), None)
