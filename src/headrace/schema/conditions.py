"""Read filters and orders of a schema file."""

from __future__ import annotations

from typing import Any, cast

from yaml.nodes import Node, SequenceNode

from headrace.schema import language
from headrace.schema.mapping_reader import MappingReader
from headrace.schema.raw import RAW_REMEDY, raw_problem
from headrace.schema.tree import Filter, OrderBy, Scalar
from headrace.schema.yaml_nodes import kind_of

_PAIR = 2
_PATTERNS = ("like", "ilike")


def read_filters(record: MappingReader, key: str = "filters") -> tuple[Filter, ...]:
    """Read the conditions under `key`."""
    return tuple(_filter(item) for item in record.records(key, language.FILTER, "a filter"))


def _filter(record: MappingReader) -> Filter:
    if record.has("raw"):
        for key in ("column", "op", "value"):
            record.refuse(key, f"a raw filter takes no {key!r}")
        # It becomes a part of statements as it is: what could end the condition, or write, is refused.
        raw, unsafe = record.text("raw"), record.boolean("unsafe")
        problem = raw_problem(raw, unsafe=unsafe) if raw else None
        if problem is not None:
            record.note(problem, RAW_REMEDY, "raw")
        return Filter(op="raw", column=None, values=(), raw=raw, place=record.at("raw"), unsafe=unsafe)
    record.refuse("unsafe", "only a raw filter takes 'unsafe'")
    column = record.identifier("column")
    op = record.choice("op", language.FILTER_OPS)
    values = _values(record, op) if op else ()
    return Filter(op=cast(Any, op), column=column, values=values, raw=None, place=record.place)


def _values(record: MappingReader, op: str) -> tuple[Scalar, ...]:
    """Read the operands, as many as `op` takes."""
    if op in ("is_null", "is_not_null"):
        record.refuse("value", f"{op!r} takes no value")
        return ()
    node = record.need("value", "Write `value:`; for NULL use `op: is_null` or `op: is_not_null`.")
    if node is None:
        return ()
    values = (_operand(record, operand, op) for operand in _operands(record, node, op))
    return tuple(value for value in values if value is not None)


def _operands(record: MappingReader, node: Node, op: str) -> list[Node]:
    """Return the nodes of the operands; none where their number does not fit `op`."""
    listed = op in ("in", "not_in", "between")
    if listed != isinstance(node, SequenceNode):
        wanted, remedy = ("a list", "Write `[a, b]`.") if listed else ("a single value", "Use `op: in`.")
        record.mistakes.add_unexpected(node, f"{op!r} takes {wanted}", remedy)
        return []
    nodes: list[Node] = list(node.value) if listed else [node]
    if op == "between" and len(nodes) != _PAIR:
        problem = f"'between' takes exactly two values, found {len(nodes)}"
        record.mistakes.add(node, problem, "Write `[lower, upper]`.")
    return nodes


def _operand(record: MappingReader, node: Node, op: str) -> Scalar | None:
    if kind_of(node) == "null":
        # In SQL a comparison with NULL is never true: the filter would leave out every row.
        remedy = "Add a filter with `op: is_null` instead."
        record.mistakes.add(node, f"{op!r} cannot compare with null", remedy)
        return None
    value = record.scalar(node, exact=True)
    if op in _PATTERNS and isinstance(value, str) and _ends_in_escape(value):
        record.mistakes.add(
            node,
            f"the pattern of {op!r} ends in a single backslash, which escapes nothing: "
            "PostgreSQL fails at the first row that it comes to the end with",
            "Write two backslashes for one that is meant, or leave it out.",
        )
    return value


def _ends_in_escape(pattern: str) -> bool:
    """Return whether the last backslash escapes nothing: in a run, every second one is escaped."""
    return (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 1


def read_order(record: MappingReader) -> tuple[OrderBy, ...]:
    """Read the terms of `order_by`."""
    terms = record.records("order_by", language.ORDER, "an order_by term")
    return tuple(OrderBy(term.identifier("column"), _is_descending(term)) for term in terms)


def _is_descending(term: MappingReader) -> bool:
    return term.choice("direction", ("asc", "desc"), required=False) == "desc"
