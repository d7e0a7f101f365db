"""Tell what an index pays for each of its fields, from its mapping and a sample of its documents.

A cluster keeps each document as it came, and indexes each value once for its field and once for each
subfield. Each object of a nested list is a Lucene document of its own, which is rewritten with its root.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.pipeline.project import Project, find_index
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import IndexOptions, mapping
from headrace.tools.json_sizes import FieldSize, field_sizes
from headrace.tools.preview import DocumentSample, SampleLimits, open_preview

_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class FieldCost:
    """What an index pays for one field.

    Attributes:
        path: the dotted path of the field in a document.
        type: its type in the mapping; `disabled` where the mapping has `enabled: false`.
        indexed_as: the ways in which its values are indexed, the type and `.name` for each subfield; empty
            where it only holds other fields, or is not indexed.
        bytes: of JSON without white space in a document on average, with its key and everything that is in
            it.
        share: of all bytes, from 0 to 1.
        processed: the bytes in a document on average that the cluster keeps and indexes: `bytes`, and each
            value once more for each way in which it is indexed.
        nested: nested Lucene documents for a root on average; 0 for a field that is no nested list.
        most_nested: the most of one root in the sample.
    """

    path: str
    type: str
    indexed_as: tuple[str, ...]
    bytes: float
    share: float
    processed: float
    nested: float = 0.0
    most_nested: int = 0


@dataclass(frozen=True, slots=True)
class IndexCost:
    """What an index pays for its documents, by a sample of them.

    Attributes:
        index: its name.
        documents: how many documents were looked at; 0: there is none, and nothing else is known.
        cut_short: whether bytes or time ended the sample early.
        unreadable: further documents of the sample whose rows cannot be read, or that are nested too deeply.
        bytes: of JSON without white space in a document on average.
        most_bytes: of the largest document.
        lucene_documents: for a document on average: itself and its nested ones.
        most_lucene_documents: of the document that has most.
        processed: as of `FieldCost`, for the whole document.
        nested_limit: how many nested documents the cluster accepts in one document.
        fields: the costliest first, by `processed`.
    """

    index: str
    documents: int
    cut_short: bool
    unreadable: int
    bytes: float
    most_bytes: int
    lucene_documents: float
    most_lucene_documents: int
    processed: float
    nested_limit: int
    fields: tuple[FieldCost, ...]


@dataclass(frozen=True, slots=True)
class _MappedField:
    """How a field is mapped; `ways`: for each way in which it is indexed, the longest value."""

    path: str
    type: str
    ways: Mapping[str, int]


def measure_cost(project: Project, index: str, limits: SampleLimits | None = None) -> IndexCost:
    """Measure what an index of the primary sink pays for each field; reads the database alone.

    Args:
        project: the deployment and its schemas.
        index: the name of the index.
        limits: of the sample.

    Raises:
        HeadraceError: USAGE for an unknown index; what the schema names and the database does not have;
            CONNECTION, DATABASE; TRANSFORM, where the user's own function fails.
    """
    spec = find_index(project, index)
    with open_preview(project.database(), spec) as documents:
        sample = documents.sample(limits or SampleLimits())
    return cost_of(spec, project.primary.index_options(index), sample)


def cost_of(spec: IndexSpec, options: IndexOptions, sample: DocumentSample) -> IndexCost:
    """Compute what an index with these options pays, from a sample of its documents."""
    mapped = list(_mapped_fields(mapping(spec, options)["mappings"]["properties"]))
    measured = [sizes for body in sample.bodies if (sizes := field_sizes(body)) is not None]
    by_field = {field.path: [sizes[field.path] for sizes in measured] for field in mapped}
    indexed = {field.path: _indexed_bytes(field, by_field[field.path]) for field in mapped}
    nested = [field.path for field in mapped if field.type == "nested"]
    lucene = [1 + sum(sizes[path].objects for path in nested) for sizes in measured]
    bodies = [sizes[""].size for sizes in measured]
    # Without a document every average is 0.
    total, count = sum(bodies), max(1, len(measured))
    fields = [_field_cost(field, by_field[field.path], indexed, total, count) for field in mapped]
    return IndexCost(
        index=spec.name,
        documents=len(measured),
        cut_short=sample.cut_short,
        unreadable=sample.unreadable + len(sample.bodies) - len(measured),
        bytes=total / count,
        most_bytes=max(bodies, default=0),
        lucene_documents=sum(lucene) / count,
        most_lucene_documents=max(lucene, default=0),
        processed=(total + sum(indexed.values())) / count,
        nested_limit=options.nested_objects,
        fields=tuple(sorted(fields, key=lambda field: field.processed, reverse=True)),
    )


def _field_cost(
    field: _MappedField, sizes: Sequence[FieldSize], indexed: Mapping[str, int], total: int, count: int
) -> FieldCost:
    """Compute one field's cost from its sizes; `total`: bytes of the `count` documents."""
    taken = sum(size.size for size in sizes)
    # With the dot: `name` holds nothing of `names`.
    within = sum(of for path, of in indexed.items() if f"{path}.".startswith(f"{field.path}."))
    objects = [size.objects for size in sizes if field.type == "nested"]
    return FieldCost(
        field.path,
        field.type,
        tuple(field.ways),
        bytes=taken / count,
        share=taken / max(1, total),
        processed=(taken + within) / count,
        nested=sum(objects) / count,
        most_nested=max(objects, default=0),
    )


def _mapped_fields(properties: Mapping[str, Any], above: str = "") -> Iterator[_MappedField]:
    for key, declared in properties.items():
        path = above + key
        if not declared.get("enabled", True):
            yield _MappedField(path, "disabled", {})
        else:
            yield _MappedField(path, declared.get("type", "object"), dict(_ways(declared)))
            yield from _mapped_fields(declared.get("properties", {}), f"{path}.")


def _ways(declared: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the ways in which values of a mapped field are indexed, with the most characters of a value."""
    kind = declared.get("type", "object")
    if "properties" in declared:
        return
    unindexed = not declared.get("index", True) and (kind == "text" or not declared.get("doc_values", True))
    if not unindexed and (kind != "binary" or declared.get("doc_values", False)):
        yield kind, declared.get("ignore_above", _NO_LIMIT)
    for name, subfield in declared.get("fields", {}).items():
        yield f".{name}", subfield.get("ignore_above", _NO_LIMIT)


def _indexed_bytes(field: _MappedField, sizes: Sequence[FieldSize]) -> int:
    """Return the bytes that are indexed of a field's own values, each once for every way that takes it."""
    total = 0
    for size in sizes:
        if not size.values and size.objects:
            total += size.size * len(field.ways)
        for value in size.values:
            # `ignore_above` counts characters, and the index pays for bytes.
            total += len(value.encode()) * sum(len(value) <= longest for longest in field.ways.values())
    return total
