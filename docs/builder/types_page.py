"""Generate the page of types from the table of types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from headrace.model.types import TYPES, ArrowForm, TypeRow
from headrace.model.value_type import Attribute, DatabaseType, ValueType, resolve
from headrace.model.values import json_form

_HEAD = """\
# Types

**For Spark programmers and readers of documents**: what a value of each PostgreSQL type becomes.

Values of the log travel as the text that PostgreSQL prints, with the same settings on every connection, and
become typed where typed columns are requested. So a value is the same whether it comes from a snapshot, the
stream or a replay. Why each type is what it is: [decisions on types](../decisions/types.md).

## Types with a name of their own

"""

_MADE = """
## Types made of others

"""

_TAIL = """
## What a typed column cannot hold

Such a value never becomes another one, nor silently NULL: reading it as typed ends with `HEADRACE_VALUE`.

| type | value |
|---|---|
| `numeric(p,s)` as a decimal | NaN (PostgreSQL itself allows no infinity there) |
| `date`, `timestamp`, `timestamptz` | from the year 294247 on |
| arrays | another number of dimensions than declared (`int[][]` has two, `int[]` one); empty ones fit |
| arrays, ranges, composite types | a value with a part that does not fit |

The lower bounds of an array are neither in a typed column nor in JSON: `[0:1]={a}` is `["a"]`.

**Infinity.** Infinite dates and timestamps become `+294247-01-01` and `-290000-01-01`, at midnight UTC. No
other value becomes those. They order and compare as they should (`valid_until > now()`), a cast from date
to timestamp keeps them, and they lie some way from the ends of Spark's types, so that a change of zone does
not wrap around. Python has no dates outside the years 1 to 9999: `collect` and `toPandas` of infinite, BC or
later values fail there; filter or cast first.

**BC.** The calendar is the proleptic Gregorian one in PostgreSQL, Arrow and Spark. 44 BC is Spark's year
`-0043`; JSON keeps PostgreSQL's ` BC` after the date.

## JSON

- Numbers keep every digit. NaN and the infinities of numbers are the strings `"NaN"`, `"Infinity"`,
  `"-Infinity"`; those of dates and timestamps `"infinity"` and `"-infinity"`.
- Documents have the same JSON, made by the database, with one difference: NaN and the infinities, also those
  of dates, are null there, alone and in arrays, because a search index refuses them.
- Inside a composite type, `bytea` is PostgreSQL's hex text, `money` its text and `oid` a string, as `to_json`
  has them. If an extension's type has a cast of its own to json,
  documents hold the result of that cast.
- Line breaks between the tokens of a `json` value become spaces, so that a value is one line.
"""

_DECIMAL = (10 << 16) + 2 + 4  # the modifier of numeric(10,2)
_INT4, _TEXT, _NUMERIC, _MOOD, _PRICE, _LIST, _RANGE, _RANGES, _PAIR, _OTHER = range(1, 11)
_EXAMPLES = {
    database_type.oid: database_type
    for database_type in (
        DatabaseType(_INT4, "pg_catalog", "int4", "base"),
        DatabaseType(_TEXT, "pg_catalog", "text", "base"),
        DatabaseType(_NUMERIC, "pg_catalog", "numeric", "base"),
        DatabaseType(_MOOD, "public", "mood", "enum"),
        DatabaseType(_PRICE, "public", "price", "domain", _NUMERIC, _DECIMAL),
        DatabaseType(_LIST, "pg_catalog", "_int4", "array", _INT4),
        DatabaseType(_RANGE, "pg_catalog", "int4range", "range", _INT4),
        DatabaseType(_RANGES, "pg_catalog", "int4multirange", "multirange", _RANGE),
        DatabaseType(
            _PAIR, "public", "pair", "composite", fields=(Attribute("a", _INT4), Attribute("b", _TEXT))
        ),
        DatabaseType(_OTHER, "public", "ltree", "base", extension="ltree"),
    )
}
_MADE_OF_OTHERS = (
    ("an enum", Attribute("", _MOOD), "so so", "the label"),
    ("a domain", Attribute("", _PRICE), "1.50", "its base; here `numeric(10,2)`"),
    ("an array", Attribute("", _LIST), "{1,NULL,3}", "of any type"),
    (
        "",
        Attribute("", _LIST, dimensions=2),
        "{{1,2},{3,4}}",
        "`int[][]`: as many lists as brackets are declared",
    ),
    (
        "a range",
        Attribute("", _RANGE),
        "[1,5)",
        "of any type; a bound that is NULL is open, unless it `isempty`",
    ),
    ("a multirange", Attribute("", _RANGES), "{[1,3),[5,7)}", ""),
    ("a composite type", Attribute("", _PAIR), '(1,"x, y")', "a table's row type too"),
    ("any other type", Attribute("", _OTHER), "a.b", "of extensions, and new ones of PostgreSQL"),
)


def page() -> str:
    """Return the text of the page."""
    named = [line for row in TYPES for line in _named(row)]
    composed = [
        _line(name, resolve(attribute, _EXAMPLES), example, note)
        for name, attribute, example, note in _MADE_OF_OTHERS
    ]
    return _HEAD + _table(named) + _MADE + _table(composed) + _TAIL


def _table(lines: Sequence[str]) -> str:
    head = "| PostgreSQL | Arrow | Spark | JSON | for example | in JSON | |\n" + "|---" * 7 + "|\n"
    return head + "".join(lines)


def _named(row: TypeRow) -> Iterator[str]:
    named = DatabaseType(1, "pg_catalog", row.names[0], "base", extension=row.extension)
    names = ", ".join(f"`{name}`" for name in row.names)
    if row.form is ArrowForm.DECIMAL:
        declared = resolve(Attribute("", 1, _DECIMAL), {1: named})
        yield _line("`numeric(10,2)`", declared, row.example, row.note)
        yield _line(names, resolve(Attribute("", 1), {1: named}), "NaN", "")
    else:
        yield _line(names, resolve(Attribute("", 1), {1: named}), row.example, row.note)


def _line(names: str, kind: ValueType, example: str, note: str) -> str:
    [json] = json_form(kind, pa.array([example]), names).to_pylist()
    cells = (
        names,
        _code(str(kind.arrow)),
        _code(kind.spark),
        kind.json.value,
        _code(example),
        _code(json),
        note,
    )
    return f"| {' | '.join(cells)} |\n".replace(" |  |", " | |")


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"
