"""Render column values as JSON text, as SQL expressions for PostgreSQL.

Every expression is NULL where the document holds null, so the caller adds the default. Numbers keep all their
digits. Values that no search index accepts (NaN, the infinities of numbers and dates) become null
(decision 0020).
"""

from __future__ import annotations

from headrace.catalog.comparison import is_foreign
from headrace.catalog.table import Column
from headrace.postgres.quoting import identifier

TEXTUAL = frozenset({"text", "varchar", "bpchar", "name", "char", "citext"})
FLOATS = frozenset({"float4", "float8"})

_AS_PRINTED = frozenset({"int2", "int4", "int8", "oid", "bool", "jsonb", "vector", "halfvec"})
_NEVER_ESCAPED = frozenset(
    "uuid time timetz interval cidr macaddr macaddr8 bit varbit pg_lsn xid xid8".split()
)
_ELEMENT_WISE = frozenset(
    "numeric float4 float8 money oid date timestamp timestamptz bytea json vector halfvec".split()
)
_VECTORS = frozenset({"vector", "halfvec"})
"""pgvector's types, whose text is a JSON array."""
_SHAPES = frozenset({"geometry", "geography"})
"""PostGIS' types."""
_GEOJSON_TYPES = (
    *("Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon"),
    "GeometryCollection",
)
_DEGREES, _DIGITS = 4326, 9
"""WGS 84, and the decimals of degrees: tenths of a millimetre."""
# PostgreSQL's limit for arrays.
_MAX_DIMENSIONS = 6
_LINE_BREAKS = "chr(10) || chr(13)"


def json_text(column: Column, sql: str) -> str:
    """Render `sql`, an expression of the column's type, as JSON text; NULL where it has none."""
    element, is_own = column.base_type.removeprefix("_"), column.category == "U"
    if element in _VECTORS and column.home != "pg_catalog" and (is_own or column.element_category == "U"):
        return f"{sql}::text" if is_own else _array(element, sql)
    if element in _SHAPES and is_foreign(column) and is_own:
        return _shape_text(column, sql)
    if column.category == "A":
        return _array(element, sql)
    return scalar_text(column.base_type, sql)


def scalar_text(base_type: str, sql: str) -> str:  # noqa: PLR0911, one for each way to write a value
    """Render as `json_text` a value that is no array."""
    if base_type in _AS_PRINTED:
        return f"{sql}::text"
    if base_type in _NEVER_ESCAPED:
        return f"'\"' || {sql}::text || '\"'"
    match base_type:
        case "numeric" | "float4" | "float8":
            # PostgreSQL sorts NaN above Infinity: the first comparison leaves it out, too.
            return f"CASE WHEN {sql} < 'Infinity' AND {sql} > '-Infinity' THEN {sql}::text END"
        case "money":
            return f"{sql}::numeric::text"
        case "date" | "timestamp" | "timestamptz":
            return f"CASE WHEN isfinite({sql}) THEN to_json({sql})::text END"
        case "bytea":
            # encode breaks lines after 76 characters.
            return f"'\"' || translate(encode({sql}, 'base64'), chr(10), '') || '\"'"
        case "text" | "varchar" | "bpchar" | "citext" | "name" | "char":
            return f"to_json({sql})::text"
        case "json":
            # Outside its strings JSON may hold line breaks, which would end the line of a bulk request.
            return f"translate({sql}::text, {_LINE_BREAKS}, '  ')"
        case _:
            return f"translate(to_json({sql})::text, {_LINE_BREAKS}, '  ')"


def _array(element: str, sql: str) -> str:
    if element not in _ELEMENT_WISE:
        return f"translate(to_json({sql})::text, {_LINE_BREAKS}, '  ')"
    text = f"coalesce({scalar_text(element, 'u.e')}, 'null')"
    elements = f"FROM unnest({sql}) WITH ORDINALITY AS u (e, o)"
    opening, closing = (
        f"(SELECT count(*)::int FROM unnest(d.sizes) AS size WHERE {ordinal} % size = 0)"
        for ordinal in ("(u.o - 1)", "u.o")
    )
    deep = f"string_agg(repeat('[', {opening}) || {text} || repeat(']', {closing}), ',' ORDER BY u.o)"
    return (
        f"CASE WHEN array_ndims({sql}) > 1 "
        f"THEN (SELECT {deep} {elements}, (SELECT {_sizes(sql)}) AS d (sizes)) "
        f"WHEN {sql} IS NOT NULL "
        f"THEN (SELECT concat('[', string_agg({text}, ',' ORDER BY u.o), ']') {elements}) END"
    )


def _sizes(sql: str) -> str:
    """Render how many elements one list of each dimension holds, the outermost first."""
    lengths = [f"coalesce(array_length({sql}, {number}), 1)" for number in range(1, _MAX_DIMENSIONS + 1)]
    sizes = ", ".join(" * ".join(lengths[number:]) for number in range(_MAX_DIMENSIONS))
    return f"(ARRAY[{sizes}])[:array_ndims({sql})]"


def transformed_text(column: Column, sql: str, transforms: tuple[str, ...]) -> str:
    """Render a text after its transforms as JSON; of an array, each element in one flat list."""
    text = "u.e::text" if column.element_category else f"{sql}::text"
    for transform in transforms:
        text = f"lower({text})" if transform == "lowercase" else f"btrim({text}, E' \\t\\n\\r\\f\\v')"
    if not column.element_category:
        return f"to_json({text})::text"
    elements = f"SELECT {text} FROM unnest({sql}) WITH ORDINALITY AS u (e, o) ORDER BY u.o"
    return f"CASE WHEN {sql} IS NOT NULL THEN to_json(ARRAY({elements}))::text END"


def point_text(lat: tuple[Column, str], lon: tuple[Column, str]) -> str:
    """Render two numbers as the JSON text of a point; NULL where either is NULL."""
    return _place(json_text(*lat), json_text(*lon))


def location_text(column: Column, sql: str) -> str:
    """Render a point in one column as JSON: PostgreSQL's or PostGIS' point, or json or text unchanged.

    PostGIS reports a shape that is no point as an internal error (XX000); the cast makes it an error of the
    row (22P02).
    """
    if column.base_type == "point":
        lon, lat = (scalar_text("float8", f"({sql})[{axis}]") for axis in (0, 1))
    elif column.base_type in ("geometry", "geography") and is_foreign(column):
        schema = identifier(column.home)
        point = f"{sql}::{schema}.geometry"
        lon, lat = (scalar_text("float8", f"{schema}.st_{axis}({point})") for axis in ("x", "y"))
        kind = f"{schema}.st_geometrytype({point})"
        is_no_point = f"({kind} || ' is no point')::float8::text"
        return f"CASE WHEN {kind} = 'ST_Point' THEN {_place(lat, lon)} ELSE {is_no_point} END"
    else:
        return json_text(column, sql)
    return _place(lat, lon)


def _shape_text(column: Column, sql: str) -> str:
    """Render PostGIS' geometry or geography as GeoJSON in WGS 84, which indexes of shapes expect.

    Of curves and surfaces GeoJSON knows nothing: such a shape is an error of its row.
    """
    schema = identifier(column.home)
    shape = f"{sql}::{schema}.geometry"
    in_degrees = (
        f"CASE WHEN {schema}.st_srid({shape}) IN (0, {_DEGREES}) THEN {shape} "
        f"ELSE {schema}.st_transform({shape}, {_DEGREES}) END"
    )
    kind = f"{schema}.st_geometrytype({shape})"
    names = ", ".join(f"'ST_{name}'" for name in _GEOJSON_TYPES)
    return (
        f"CASE WHEN {kind} IN ({names}) THEN {schema}.st_asgeojson({in_degrees}, {_DIGITS}, 0) "
        f"ELSE ({kind} || ' is no shape of GeoJSON')::float8::text END"
    )


def _place(lat: str, lon: str) -> str:
    return f"'{{\"lat\":' || ({lat}) || ',\"lon\":' || ({lon}) || '}}'"
