"""List the types of the columns of random tables, and the values that they hold.

Every type has a small pool of values, so that keys meet, filters hit and writers get in each other's way.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from headrace.postgres.quoting import literal

_TEXTS = ("a", "B", "b:c", "50%", "o'k", 'q"\\', "é ß", "zz", "漢", "A b")
_UUIDS = tuple(f"0000000{n}-0000-4000-8000-00000000000{n}" for n in range(1, 9))
_JSON = ('{"a": 1, "b": [1, null, "x"]}', '{"a": "2"}', "{}", '{"c": {"d": 1.5}}')


@dataclass(frozen=True, slots=True)
class Kind:
    """A column type.

    Attributes:
        sql: the type.
        tags: the type keys of a schema file that read it.
        pool: its values as SQL's text literals, without quotes.
        fresh: an SQL expression of `i` that gives a value outside the pool, another one for each `i`; empty
            where there is none, and then it makes no key alone.
        compared: whether filters may compare it and lists be ordered by it.
        reduced: the value type of its least and greatest value; empty for none.
        summed: the value type of its sum; empty for none.
        operands: the values as a filter of a schema file writes them; empty: the pool's texts.
    """

    sql: str
    tags: tuple[str, ...]
    pool: tuple[str, ...]
    fresh: str = ""
    compared: bool = True
    reduced: str = ""
    summed: str = ""
    operands: tuple[str | int | float | bool, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether transforms and LIKE work on it."""
        return self.tags[0] in ("keyword", "text") and self.sql != _MOOD and not self.sql.startswith("char")

    def value(self, random: Random) -> str:
        """One of the pool, as an SQL literal."""
        return literal(random.choice(self.pool)).strip()

    def any(self, random: Random, nulls: float = 0.15) -> str:
        """One of the pool or NULL."""
        return "NULL" if random.random() < nulls else self.value(random)

    def cycling(self, step: int) -> str:
        """An SQL expression of `i` that walks through the pool."""
        values = ", ".join(literal(one).strip() for one in self.pool)
        return f"(ARRAY[{values}]::{self.sql}[])[1 + (i * {step}) % {len(self.pool)}]"

    def operand(self, random: Random) -> str | int | float | bool:
        """One of the pool as a filter writes it."""
        return random.choice(self.operands or self.pool)


_MOOD = '"Moods".mood'
_CODE = '"Moods".code'
NEEDED = (
    'CREATE SCHEMA "Moods"',
    f"CREATE TYPE {_MOOD} AS ENUM ('sad', 'ok', 'happy', 'Zen')",
    f"CREATE DOMAIN {_CODE} AS text CHECK (value ~ '^[A-Z]')",
    'CREATE EXTENSION citext SCHEMA "Moods"',
)
"""What the kinds need; the labels are not in the order of the alphabet."""

_NUMBERS = tuple(range(1, 10))

KINDS: dict[str, Kind] = {
    "int": Kind(
        "integer",
        ("integer", "long"),
        tuple(map(str, _NUMBERS)),
        "(1000 + i)::int",
        reduced="integer",
        summed="long",
        operands=_NUMBERS,
    ),
    "small": Kind(
        "smallint",
        ("short", "integer", "long"),
        ("-3", "0", "7", "32767"),
        reduced="short",
        summed="long",
        operands=(-3, 0, 7),
    ),
    "big": Kind(
        "bigint",
        ("long",),
        ("1", "2", "3", "9007199254740993", "-9223372036854775808", "40"),
        "4000000000 + i",
        reduced="long",
        summed="decimal",
        operands=(1, 3, 9007199254740993),
    ),
    "numeric": Kind(
        "numeric",
        ("decimal",),
        ("0", "1.50", "2.25", "-3.10", "12345678901234567890.123", "100"),
        "0.5 + i",
        reduced="decimal",
        summed="decimal",
        operands=(0, 1.5, 2.25, 100),
    ),
    "amount": Kind(
        "numeric(12,2)",
        ("decimal",),
        ("0.00", "1.50", "19.99", "250.00"),
        reduced="decimal",
        summed="decimal",
        operands=(0, 1.5, 19.99),
    ),
    "double": Kind(
        "double precision",
        ("double",),
        ("0.1", "0.2", "-1e300", "3", "0.30000000000000004", "NaN"),
        compared=False,
    ),
    "latitude": Kind("double precision", ("double",), ("0", "51.5", "-12.25"), summed="double"),
    "text": Kind("text", ("keyword", "text", "identifier"), _TEXTS, "'k' || i", reduced="keyword"),
    "varchar": Kind("varchar(40)", ("keyword", "text"), _TEXTS[:6], "'v' || i", reduced="keyword"),
    "spaced": Kind("text", ("text",), (" Ab ", "\tx\n", "Y y", ""), compared=False),
    "char": Kind("char(4)", ("keyword",), ("ab", "x", "abcd"), compared=False),
    "citext": Kind(
        '"Moods".citext', ("keyword", "text"), ("Ann", "bob", "Cid", "dOt"), "('c' || i)::\"Moods\".citext"
    ),
    "code": Kind(_CODE, ("keyword", "identifier"), ("AA", "B:b", "Z%", "Ca"), f"('K' || i)::{_CODE}"),
    "bool": Kind("boolean", ("boolean",), ("true", "false"), operands=(True, False)),
    "date": Kind(
        "date",
        ("date",),
        ("2024-02-29", "1999-12-31", "2030-01-01", "2025-06-01"),
        "date '2001-01-01' + i",
        reduced="date",
    ),
    "timestamp": Kind(
        "timestamp",
        ("timestamp",),
        ("2024-02-29T12:00:00", "2025-01-01T00:00:00.120", "1969-01-01T00:00:01"),
        reduced="timestamp",
    ),
    "timestamptz": Kind(
        "timestamptz",
        ("timestamp",),
        ("2024-02-29T12:00:00+02:00", "2025-01-01T00:00:00.000001+00:00", "1969-01-01T00:00:01-11:30"),
        reduced="timestamp",
    ),
    "uuid": Kind("uuid", ("uuid",), _UUIDS, "md5('u' || i)::uuid"),
    "mood": Kind(_MOOD, ("enum", "keyword"), ("sad", "ok", "happy", "Zen")),
    "jsonb": Kind("jsonb", ("json",), _JSON, compared=False),
    "json": Kind("json", ("json",), ('{ "a":\n 1 }', '{"b": "x\\ny"}'), compared=False),
    "bytea": Kind("bytea", ("binary",), ("\\x00ff", "\\x", "\\x" + "ab" * 60), compared=False),
    "ints": Kind("integer[]", ("custom",), ("{}", "{1,NULL,3}", "{{1,2},{3,4}}"), compared=False),
    "long": Kind("text", ("text",), tuple(letter * 3 for letter in "xyz"), compared=False),
}
"""By name. `long` also holds values that are kept out of line (`LONG`)."""

LONG = "(SELECT string_agg(md5({seed} || i::text), '') FROM generate_series(1, 120) i)"
"""An SQL expression: a text that does not become small enough by compression."""

KEYS = ("int", "int", "int", "int", "text", "uuid", "big", "varchar", "citext", "date", "numeric", "code")
"""The kinds of single keys, the usual ones more often."""

PARTS = ("int", "text", "mood", "date", "int")
"""The kinds of the parts of composite keys; the last part is always one with fresh values."""

PLAIN = tuple(name for name in KINDS if name != "citext")
"""The kinds of columns that hold something to show."""
