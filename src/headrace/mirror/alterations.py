"""Plan how a lake's table becomes as the altered table of the database is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.mirror.columns import (
    COLUMN,
    DROPPED,
    KEY,
    MASK,
    NULLED,
    TYPE,
    is_followed,
    number_of,
    with_metadata,
)
from headrace.mirror.modes import Mode

_TEXTS = frozenset({"text", "varchar"})
_PLAIN_SCALE = 6


_Identity = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Alteration:
    """How a lake's table is altered.

    Attributes:
        schema: its columns afterwards.
        sources: of each column that takes over values the column's name before.
        added: the columns that the database's table got, which `sources` lacks.
        needs_load: whether the table's rows must be read from the database: the lake does not have what
            they are now.
        has_same_key: whether the same columns identify rows, and have the values that they had.
    """

    schema: pa.Schema
    sources: Mapping[str, str]
    added: tuple[str, ...]
    needs_load: bool
    has_same_key: bool = True

    def __str__(self) -> str:
        renamed = [f"{old} → {new}" for old, new in self.renamed.items()]
        gone = {field.name for field in self.schema if DROPPED in (field.metadata or {})}
        dropped = [f"-{field.name}" for field in self.schema if field.name in gone - {*self.sources.values()}]
        said = ", ".join([*(f"+{name}" for name in self.added), *dropped, *renamed])
        return said or "types, partitions or dropped columns"

    @property
    def renamed(self) -> dict[str, str]:
        """The new name of each column that has another one, by the name before."""
        return {old: new for new, old in self.sources.items() if new != old}


def plan_alteration(old: pa.Schema, new: pa.Schema, *, keeps: bool, highest: int) -> Alteration:
    """Plan how a table with the columns `old` gets those of `new`, where `drift.py` finds no doubt.

    Args:
        old: the lake's columns.
        new: those of the database's table, then the mirror's own.
        keeps: whether columns that the database dropped stay, with their values.
        highest: the highest number of a column that the database's table had when it was noted. One that
            comes to be mirrored and is older has values that the lake does not know.

    A column that got another mask loses the values that it had under the one before, or none.
    """
    # No number is used twice, so it says which column one is.
    before, after = _by_identity(old), _by_identity(new)
    pairs = [(before[identity], after[identity]) for identity in after if identity in before]
    sources = {field.name: own.name for own, field in pairs if _can_cast(own, field)}
    fields = [*new]
    if keeps:
        fields += _kept_fields(old, new, sources)
    # The lake's own columns say nothing of the database: they are carried over by their names.
    sources |= {name: name for name in _own_names(old) & _own_names(new)}
    altered = [field for own, field in pairs if not _keeps_values(own, field)]
    has_same_key = _key(old) == _key(new) and not any(KEY in field.metadata for field in altered)
    added = _added(before, after)
    # A column that was there before, and was not mirrored so, has values that only the database knows.
    is_older = any(number <= highest for number in added)
    is_remasked = len(pairs) + len(added) < len(after)
    needs_load = bool(altered) or not has_same_key or is_older or is_remasked
    return Alteration(pa.schema(fields), sources, tuple(added.values()), needs_load, has_same_key)


def _added(before: Mapping[_Identity, pa.Field], after: Mapping[_Identity, pa.Field]) -> dict[int, str]:
    """Return the name of each column whose number was not there before."""
    known = {number for number, _ in before}
    return {int(number): field.name for (number, _), field in after.items() if number not in known}


def _identity(field: pa.Field) -> _Identity:
    """Return what tells a column from others: its number; and its mask, under which it has other values."""
    return field.metadata[COLUMN], field.metadata.get(MASK)


def _by_identity(schema: pa.Schema) -> dict[_Identity, pa.Field]:
    return {_identity(field): field for field in schema if is_followed(field)}


def _key(schema: pa.Schema) -> dict[bytes, _Identity]:
    keys = (field for field in schema if is_followed(field) and KEY in field.metadata)
    return {field.metadata[KEY]: _identity(field) for field in keys}


def _own_names(schema: pa.Schema) -> set[str]:
    """Return the names of the mirror's own columns."""
    return {field.name for field in schema if number_of(field) is None}


def _kept_fields(old: pa.Schema, new: pa.Schema, sources: dict[str, str]) -> Iterator[pa.Field]:
    """Yield the columns that only the lake has from now on; note where their values come from."""
    names, taken = {*new.names}, {*sources.values()}
    present = _by_identity(new)
    numbers = {number for number, _ in present}
    for field in old:
        number = number_of(field)
        if number is None or field.name in taken:
            continue
        # One whose mask changed is not kept beside itself: nobody may have the values that it had.
        if is_followed(field) and number in numbers and _identity(field) not in present:
            continue
        kept = field.name
        # In `history` and `changes` a name may come again; a number never does.
        while kept in names:
            kept = f"{kept}_{number.decode()}"
        names.add(kept)
        sources[kept] = field.name
        yield with_metadata(field.with_name(kept), dropped="true", partition=None)


def altered_rows(
    batches: Iterable[pa.RecordBatch], alteration: Alteration, default: Callable[[str], pa.Scalar], mode: Mode
) -> Iterator[pa.RecordBatch]:
    """Yield a table's rows with its altered columns.

    Args:
        batches: its rows.
        alteration: what is altered.
        default: returns the value that an added column has in the database's older rows.
        mode: what the lake holds of it; rows that the database does not have now get no default.
    """
    defaults = {name: default(name) for name in alteration.added}
    for batch in (mode.renamed(old, alteration.renamed) for old in batches):
        columns = []
        for field in alteration.schema:
            column = pa.nulls(len(batch), field.type)
            if field.name in alteration.sources:
                column = batch.column(alteration.sources[field.name]).cast(field.type)
            elif field.name in defaults:
                column = pc.if_else(mode.present(batch), defaults[field.name].cast(field.type), column)
            columns.append(column)
        yield pa.RecordBatch.from_arrays(columns, schema=alteration.schema)


def _keeps_values(old: pa.Field, new: pa.Field) -> bool:
    """Tell whether a column that was altered without a rewrite has its values as the lake has them."""
    return not _has_other_nulls(old, new) and _shows_same(old, new)


def _shows_same(old: pa.Field, new: pa.Field) -> bool:
    """Tell whether each value of a column is the same in its new type."""
    if old.type == new.type and old.metadata[TYPE] == new.metadata[TYPE]:
        return True
    if pa.types.is_decimal(old.type) and not pa.types.is_decimal(new.type):
        # Beyond this scale Arrow writes small numbers with an exponent, as PostgreSQL never does.
        return bool(new.metadata[TYPE] == b"numeric" and 0 <= old.type.scale <= _PLAIN_SCALE)
    if pa.types.is_decimal(old.type):
        more = new.type.scale - old.type.scale
        return bool(0 <= more <= new.type.precision - old.type.precision)
    names = (field.metadata[TYPE].decode().partition("(")[0] for field in (old, new))
    return all(name in _TEXTS for name in names)


def _has_other_nulls(old: pa.Field, new: pa.Field) -> bool:
    """Tell whether a column may have NULL now for other values than before."""
    was_nulled, is_nulled = (NULLED in field.metadata for field in (old, new))
    # What did not fit one type may fit another one.
    if was_nulled:
        return not is_nulled or old.type != new.type
    # All values did fit; but infinite moments were no NULL then.
    return is_nulled and bool(pa.types.is_temporal(new.type))


def _can_cast(old: pa.Field, new: pa.Field) -> bool:
    """Tell whether old values of a column fit its new type, whatever they are."""
    if old.type == new.type or _shows_same(old, new):
        return True
    kinds = (pa.types.is_integer, pa.types.is_floating)
    is_same_kind = any(matches(old.type) and matches(new.type) for matches in kinds)
    return bool(is_same_kind and old.type.bit_width <= new.type.bit_width)
