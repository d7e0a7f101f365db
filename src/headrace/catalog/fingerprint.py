"""Hold what documents depend on in the catalog at one moment, as a small value to store and compare. Pure.

For each table: its oid, the columns that are read with their types (an enum's labels, a composite type's
attributes), the relations that hold its rows with their replica identities, and how it is published.

An alteration that is taken back leaves these as they were. So the fingerprint also has the transaction that
last wrote a row of the catalog (its raw xmin), for those rows that GRANT, VACUUM, ANALYZE and CREATE INDEX do
not write: of the publication, of a partition's place in its tree, of a table's row type (which has the
table's name), of enum labels and attributes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Self

from headrace.catalog.usage import Usage
from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind, as_clause
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.model.packed_text import packed, unpacked


@dataclass(frozen=True, slots=True)
class ColumnPrint:
    """A column that documents read.

    Attributes:
        number: pg_attribute.attnum; it differs where the column was dropped and added again.
        type_oid, modifier: the type, as the log describes it too.
        type: the type's name for people, with its modifier.
        inside: the definition of its values: enum labels and attributes, domains and arrays followed; the
            expression of a generated column; a collation of its own.
        touched: the transaction that defined the column last (raw xid).
        versions: each label, attribute and expression of `inside`, with the transaction that last wrote it.
    """

    number: int
    type_oid: int
    modifier: int
    type: str
    inside: str
    touched: int
    versions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PartPrint:
    """A relation that holds rows: the table itself, or a leaf partition.

    Attributes:
        name: its current name.
        identity: pg_class.relreplident.
        carried: the columns of its old rows in the log; None is all of them.
        file: pg_class.relfilenode; it differs where the relation was rewritten, or emptied by TRUNCATE.
        persistence: pg_class.relpersistence; `f` for a foreign table, which is not in the log either.
        toast: the oid of its TOAST table, 0 where it has none; VACUUM FULL, CLUSTER and TRUNCATE keep it, an
            ALTER TABLE that rewrites the table does not.
        listings: the oids of its own entries in any publication: while it has one, it cannot be unlogged.
        edges: each partition on the path from the root to it, with the transaction that attached it.
        moved: the transaction that set its schema.
    """

    name: TableName
    identity: str
    carried: frozenset[str] | None
    file: int
    persistence: str
    toast: int = 0
    listings: frozenset[int] = frozenset()
    edges: frozenset[tuple[int, int]] = frozenset()
    moved: int = 0


@dataclass(frozen=True, slots=True)
class TablePrint:
    """A table that documents name.

    Attributes:
        columns: the columns that are read and exist, by name.
        parts: the relations that hold its rows, by oid.
        names: the names of all columns, by number; for messages, not compared.
        members: each membership of the table, its leaves or their schemas in the publication, and what it
            hides: (oid, column list or None, whether rows are filtered).
        named: the transaction that set its name, schema or owner.
        owner: its owner's oid.
        inherited: whether an ordinary table has, or had before its last VACUUM, children by INHERITS.
        highest: the highest number that any of its columns had, dropped ones included; 0: not known.
        in_order: whether its partitions have the columns in the table's order; not stored.
        joined: the transactions that made its memberships; not stored.
    """

    oid: int
    columns: Mapping[str, ColumnPrint]
    parts: Mapping[int, PartPrint]
    members: frozenset[tuple[int, tuple[str, ...] | None, bool]] = frozenset()
    names: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    named: int = 0
    owner: int = 0
    inherited: bool = False
    highest: int = field(default=0, compare=False)
    in_order: bool = field(default=True, compare=False)
    joined: frozenset[int] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What documents depend on in the catalog, at one moment.

    Attributes:
        tables: the tables by name; an absent one does not exist.
        publication: its oid, whether it holds all tables, its operations, whether it publishes via the root,
            and the transaction that altered it last; None where it does not exist.
        as_of: a position in the log (bytes): every earlier change of a table with another definition was
            visible when this was read.
        ended: every transaction before this one had ended when this was read (64 bits); 0: not known.
    """

    tables: Mapping[TableName, TablePrint] = field(default_factory=lambda: MappingProxyType({}))
    publication: tuple[int, bool, str, bool, int] | None = None
    as_of: Lsn = 0
    ended: int = field(default=0, compare=False)

    def part(self, table: TableName) -> Fingerprint:
        """Return what one table depends on."""
        return Fingerprint({table: self.tables[table]}, ended=self.ended)

    def altered_like(self, other: Fingerprint) -> Fingerprint:
        """Return a copy whose publication was last altered as in `other`; Headrace altered it since."""
        if self.publication is None or other.publication is None:
            return self
        return replace(self, publication=(*self.publication[:4], other.publication[4]))

    def with_former(self, before: Fingerprint) -> Fingerprint:
        """Return a copy that also has the tables and columns that only `before` has."""
        tables = dict(before.tables)
        for name, table in self.tables.items():
            # A name may come again for another column: the old number must be known then.
            former = before.tables[name].columns if name in before.tables else {}
            tables[name] = replace(table, columns={**former, **table.columns})
        return replace(self, tables=tables, ended=min(before.ended, self.ended))

    def to_text(self) -> str:
        """Render the text that the state of a deployment stores: some kilobytes for a hundred tables."""
        content = {
            "publication": self.publication,
            "tables": [[name.schema, name.name, _table_json(table)] for name, table in self.tables.items()],
            "ended": self.ended,
        }
        return packed(json.dumps(content))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse what `to_text` wrote; `as_of` is not stored. Empty text: an empty fingerprint.

        Raises:
            HeadraceError: CONTINUITY, where the text has another form.
        """
        if not text:
            return cls()
        try:
            content = json.loads(unpacked(text))
            return cls(
                {TableName(schema, name): table_print(table) for schema, name, table in content["tables"]},
                None if content["publication"] is None else tuple(content["publication"]),
                ended=content["ended"],
            )
        except (KeyError, TypeError, ValueError) as error:
            problem = f"the catalog as it was cannot be read from the deployment's state: {error!r}"
            remedy = f"Use the version that wrote it. Else: {as_clause(BACKFILL_AGAIN)}"
            raise HeadraceError(Kind.CONTINUITY, problem, remedy) from error


def type_definitions(found: Fingerprint, usage: Usage) -> list[object]:
    """Return the types, and their definitions, that determine documents that read `usage`, as JSON values."""
    return [
        [table.schema, table.name, name, column.type, without_labels(column.inside)]
        for table in sorted(usage)
        if table in found.tables
        for name, column in sorted(found.tables[table].columns.items())
        if name in usage[table]
    ]


def describe_changed_types(before: Iterable[Sequence[Any]], now: Iterable[Sequence[Any]]) -> str:
    """Say what differs between two results of `type_definitions`."""
    types_before, types_now = (
        {(schema, table, name): definition for schema, table, name, *definition in types}
        for types in (before, now)
    )
    for column in sorted(types_before.keys() | types_now.keys()):
        schema, table, name = column
        what = f"column `{name}` of {TableName(schema, table)}"
        if column not in types_now:
            return f"it no longer reads {what}"
        if column not in types_before:
            return f"it now reads {what}"
        if types_before[column] != types_now[column]:
            old, new = types_before[column][0], types_now[column][0]
            kinds = f" from {old} to {new}" if old != new else f" {old}"
            return f"{what} changed its type{kinds}"
    return "the types of its columns changed"


def table_print(content: Mapping[str, Any]) -> TablePrint:
    """Return a table from JSON's types, as the query of the catalog and the stored text have it."""
    return TablePrint(
        content["oid"],
        {name: ColumnPrint(*(*shape, frozenset(versions))) for name, *shape, versions in content["columns"]},
        {oid: _part(part) for oid, *part in content["parts"]},
        frozenset(
            (oid, None if listed is None else tuple(sorted(listed)), filtered)
            for oid, listed, filtered, *_ in content["members"]
        ),
        # The stored text has not what only a look at the catalog needs.
        {int(number): name for number, name in content.get("names", {}).items()},
        content["named"],
        content["owner"],
        content["inherited"],
        content.get("highest", 0),
        content.get("in_order", True),
        frozenset(xid for member in content["members"] for xid in member[3:]),
    )


def _part(row: Sequence[Any]) -> PartPrint:
    schema, name, identity, columns, file, persistence, toast, entries, path, moved = row
    carried = None if columns is None else frozenset(columns)
    edges, listings = frozenset((oid, attached) for oid, attached in path), frozenset(entries)
    table = TableName(schema, name)
    return PartPrint(table, identity, carried, file, persistence, toast, listings, edges, moved)


def _table_json(table: TablePrint) -> dict[str, Any]:
    return {
        "oid": table.oid,
        "columns": [[name, *_values(column)] for name, column in table.columns.items()],
        "parts": [
            [oid, part.name.schema, part.name.name, *_values(part)[1:]] for oid, part in table.parts.items()
        ],
        # By oid alone: a column list and None cannot be compared.
        "members": sorted(table.members, key=lambda member: member[0]),
        "named": table.named,
        "owner": table.owner,
        "inherited": table.inherited,
        "highest": table.highest,
    }


def _values(of: ColumnPrint | PartPrint) -> list[Any]:
    """Return the attributes' values in order, sets as sorted lists."""
    values = (getattr(of, attribute.name) for attribute in fields(of))
    return [sorted(value) if isinstance(value, frozenset) else value for value in values]


_LABEL = r" ?E?'(?:[^'\\]|''|\\.)*'"
_ENUM = re.compile(rf"(?!generated: |collation: )(.+?): ({_LABEL}(?:, {_LABEL})*)", re.DOTALL)
_ENTRY = re.compile(r"""(?:[^'";]|'(?:[^'\\]|''|\\.)*'|"(?:[^"]|"")*"|;(?! ))+""", re.DOTALL)


def has_only_more_labels(before: str, now: str) -> bool:
    """Return whether `now` has every entry of `before`, enums possibly with more labels.

    Both are texts of `ColumnPrint.inside`. A new label changes no row and not the order of the others, so it
    changes no document. Other changes of labels may change documents: a label is renamed, or a type of that
    name is created again.
    """
    old, new = list(_entries(before)), list(_entries(now))
    return len(old) == len(new) and all(map(_is_covered, old, new))


def without_labels(inside: str) -> str:
    """Return the text without the labels of its enums."""
    return "; ".join(name if labels else entry for entry, name, labels in _entries(inside))


def without_collation(inside: str) -> str:
    """Return the text without a collation of its own."""
    return "; ".join(entry for entry, *_ in _entries(inside) if not entry.startswith("collation: "))


def _is_covered(old: tuple[str, str, tuple[str, ...]], new: tuple[str, str, tuple[str, ...]]) -> bool:
    if old[0] == new[0]:
        return True
    # One pass over the iterator: the labels must come in the old order.
    left = iter(new[2])
    return bool(old[2]) and old[1] == new[1] and all(label in left for label in old[2])


def _entries(inside: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield each entry, with the name and the labels if it is an enum."""
    for match in _ENTRY.finditer(inside):
        entry = match[0].strip()
        enum = _ENUM.fullmatch(entry)
        labels = () if enum is None else tuple(re.findall(_LABEL, enum[2], re.DOTALL))
        yield entry, "" if enum is None else enum[1], tuple(label.strip() for label in labels)
