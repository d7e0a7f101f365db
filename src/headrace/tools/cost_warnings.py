"""Warn of what is clearly expensive in an index, by a small sample of its documents."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from headrace.catalog import Catalog
from headrace.errors import HeadraceError, Kind, LocatedError
from headrace.model.units import quantity
from headrace.pipeline.project import Project
from headrace.postgres.session import ReadSession
from headrace.schema.tree import Field, IndexSpec, JoinField, ObjectField
from headrace.tools.index_cost import IndexCost, cost_of
from headrace.tools.preview import BEGIN, Preview, SampleLimits

_SECONDS = 1.0
"""For the samples of all indexes together; those that are left then are not looked at."""
_DOCUMENTS, _BYTES = 20, 4 << 20
_MANY_NESTED = 100
"""Nested documents for a root on average: then nearly all that the cluster writes are these."""
_LARGE_FIELD = 1024
"""Bytes in a document on average."""
_TIMES = 2.0
"""How often its bytes are indexed: a subfield passes over values that are too long for it."""

_NEAR_LIMIT = (
    "Add a `limit` to the join, make its list plain objects with `options: {type: object}`, or raise "
    "mapping.nested_objects.limit in the index's settings_file."
)
_DOMINATE = (
    "Add a `limit` to the join; or keep the list in the documents without an index, `options: {enabled: "
    "false}`, where no query searches it."
)


def cost_warnings(database: str, project: Project, catalog: Catalog) -> list[HeadraceError]:
    """Return warnings of the project's indexes, for as many as a second is enough.

    An index with a transform is not looked at: its function is the user's, and may do anything.

    Args:
        database: the database's address.
        project: the project, completed from the catalog.
        catalog: the tables that it reads.
    """
    end = time.monotonic() + _SECONDS
    found: list[HeadraceError] = []
    with ReadSession(database) as session:
        for name, spec in project.specs.items():
            left = end - time.monotonic()
            if left <= 0:
                break
            if spec.transform is not None:
                continue
            session.query(BEGIN)
            try:
                sample = Preview(session, spec, catalog).sample(SampleLimits(_DOCUMENTS, _BYTES, left))
            except HeadraceError as error:
                # The server has gone: every further index would say the same.
                if session.closed:
                    raise
                text = f"no documents of {name} could be read: {error.cause}"
                found.append(LocatedError(Kind.BINDING, spec.place, text, error.remedy))
            else:
                found += warnings_of(spec, cost_of(spec, project.primary.index_options(name), sample))
            # The time limit of this sample is the transaction's: the next index begins one of its own.
            session.query("ROLLBACK")
    return found


def warnings_of(spec: IndexSpec, cost: IndexCost) -> Iterator[HeadraceError]:
    """Yield what is clearly worth a look; nothing of an index whose documents are as usual."""
    yield from _nested_warnings(spec, cost)
    yield from _subfield_warnings(spec, cost)


def _nested_warnings(spec: IndexSpec, cost: IndexCost) -> Iterator[HeadraceError]:
    lists = sorted((field for field in cost.fields if field.type == "nested"), key=lambda one: -one.nested)
    nested = cost.most_lucene_documents - 1
    if nested > cost.nested_limit / 2:
        path = max(lists, key=lambda one: one.most_nested).path
        problem = (
            f"a document of {spec.name} has {quantity(nested, 'nested document')}, most of them {path}: "
            f"the cluster refuses one with more than {cost.nested_limit:,}"
        )
        yield _warning(spec, path, problem, _NEAR_LIMIT)
    elif cost.lucene_documents > _MANY_NESTED:
        path = lists[0].path
        problem = (
            f"a document of {spec.name} has {cost.lucene_documents - 1:,.0f} nested documents on average, "
            f"{lists[0].nested:,.0f} of them {path}: each change of one row writes all of them again"
        )
        yield _warning(spec, path, problem, _DOMINATE)


def _subfield_warnings(spec: IndexSpec, cost: IndexCost) -> Iterator[HeadraceError]:
    for field in cost.fields:
        times = field.processed / field.bytes - 1 if field.bytes else 0.0
        dominates = field.processed > cost.processed / 2 and field.bytes > _LARGE_FIELD
        if len(field.indexed_as) > 1 and times >= _TIMES and dominates:
            problem = (
                f"{field.path} is {field.share:.0%} of what a document of {spec.name} holds, and is indexed "
                f"as {', '.join(field.indexed_as)}"
            )
            remedy = "`options: {fields: {}}` leaves out the subfields, where no query needs them."
            yield _warning(spec, field.path, problem, remedy)


def _warning(spec: IndexSpec, path: str, problem: str, remedy: str) -> LocatedError:
    field = _find(spec.fields, path.split("."))
    return LocatedError(Kind.BINDING, spec.place if field is None else field.place, problem, remedy)


def _find(fields: Iterable[Field], keys: list[str]) -> Field | None:
    """Find a field of the schema; None for one that only the mappings file has."""
    key, *below = keys
    field = next((field for field in fields if field.key == key), None)
    if not below or field is None:
        return field
    return _find(field.fields, below) if isinstance(field, JoinField | ObjectField) else None
