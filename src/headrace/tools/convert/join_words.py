"""Write how the rows of two tables belong together, in the words of a schema file. Pure, except for notes."""

from __future__ import annotations

from headrace.catalog.remedies import key_advice
from headrace.config.problems import KeyPath
from headrace.model.names import TableName, quote_if_needed
from headrace.tools.convert.links import Between, Link
from headrace.tools.convert.notes import Notes
from headrace.tools.convert.schema_text import FieldEntry, names_value
from headrace.tools.convert.sides import Side


def table_words(name: TableName, default: str) -> FieldEntry:
    """Return the words that name a table; its schema is left out where it is the default."""
    schema = {} if name.schema == default else {"schema": quote_if_needed(name.schema)}
    return {"table": quote_if_needed(name.name)} | schema


def foreign_key_words(above: Side, link: Link) -> FieldEntry:
    """Return the columns that point at the row above; it is pointed at by its key where nothing is said."""
    references = {} if link.above == above.key else {"references": names_value(link.above)}
    return {"foreign_key": names_value(link.below), **references}


def join_words(
    above: Side, side: Side, link: Link, *, to_many: bool, key: str, at: KeyPath, notes: Notes
) -> FieldEntry:
    """Return a join without its fields, under the document key `key`."""
    where = table_words(side.name, above.name.schema)
    # A row that is pointed at by a key is there once: it is joined from this side, without its own key.
    if not to_many and key_advice(side.table, link.below) is None and link.above != above.key:
        found = {"primary_key": names_value(link.below), "column": names_value(link.above)}
        return {"belongs_to": key, **where, **found}
    unique = any(set(known.columns) <= set(link.below) for known in side.table.unique_keys)
    if not to_many and not unique:
        notes.differs(
            at,
            f"several rows of {side.name} may have one {', '.join(link.below)}: the first by its key is "
            "shown, in PGSync any",
        )
    return {
        "has_many" if to_many else "has_one": key,
        **where,
        "primary_key": names_value(side.key),
        **foreign_key_words(above, link),
    }


def junction_words(above: Side, side: Side, between: Between, key: str) -> FieldEntry:
    """Return a join through another table without its fields, under the document key `key`."""
    through = table_words(between.middle.name, above.name.schema)
    through |= {
        "left_key": quote_if_needed(between.left.below[0]),
        "right_key": quote_if_needed(between.right.above[0]),
    }
    if between.left.above != above.key:
        through["left_references"] = quote_if_needed(between.left.above[0])
    if between.right.below != side.key:
        through["right_references"] = quote_if_needed(between.right.below[0])
    where = table_words(side.name, above.name.schema)
    return {"many_to_many": key, **where, "primary_key": names_value(side.key), "through": through}
