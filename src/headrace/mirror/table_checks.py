"""Tell why tables cannot be mirrored as the file wants it; every mistake at once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import pyarrow as pa

from headrace.catalog.fingerprint import TablePrint
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.mirror.columns import PREFIX
from headrace.mirror.lake import folder_name
from headrace.mirror.partitions import allowed_transforms
from headrace.mirror.tables import MirroredTable
from headrace.model.lake_partition import Partition
from headrace.model.names import TableName
from headrace.model.suggestion import nearest
from headrace.postgres.quoting import table as quoted


def find_problem(table: MirroredTable) -> HeadraceError | None:
    """Return why a table cannot be mirrored as the file wants it; None: it can.

    An alteration may bring that about at any time: a masked column that was renamed would lose its mask.

    Returns:
        REPLICA_IDENTITY, where nothing identifies its rows; BINDING, where its key is left out, or it has a
        column with the name of one of the mirror's own, or lacks what `partition_by`, `soft_delete` and
        `masks` need; several as a group.
    """
    checks = (_own_problems, _mask_problems, _type_problems, _partition_problems, _soft_delete_problems)
    problems = [problem for check in checks for problem in check(table)]
    return ErrorGroup(problems) if problems else None


def _unfit(cause: str, remedy: str) -> HeadraceError:
    return HeadraceError(Kind.BINDING, cause, remedy)


def find_namesakes(
    names: Iterable[TableName], known: Collection[TableName]
) -> dict[TableName, HeadraceError]:
    """Return the error of each table whose folder differs from another one's in case alone.

    Many file systems and catalogs take such names for one.

    Args:
        names: the tables.
        known: those that the lake has, which keep their folders.
    """
    first: dict[tuple[str, str], TableName] = {}
    found = {}
    for name in sorted(names, key=lambda name: (name not in known, name)):
        folder = folder_name(name.schema).casefold(), folder_name(name.name).casefold()
        other = first.setdefault(folder, name)
        if other != name:
            found[name] = _unfit(
                f"the tables {name} and {other} differ in case alone, which many file systems ignore",
                "Leave one of them out of `tables`, or rename it.",
            )
    return found


def find_unknown_columns(
    tables: Mapping[TableName, MirroredTable],
) -> Iterator[tuple[HeadraceError, list[TableName]]]:
    """Yield the error of each column that the file names and no table of its part has, and those tables.

    Args:
        tables: all tables that exist.
    """
    options: Mapping[str, Callable[[MirroredTable], tuple[str, ...]]] = {
        "columns": lambda table: table.part.columns,
        "exclude_columns": lambda table: table.part.exclude_columns,
        "types, on_value": lambda table: (*table.part.types, *table.part.on_value),
    }
    for option, named_by in options.items():
        parts: dict[int, list[MirroredTable]] = {}
        for table in tables.values():
            parts.setdefault(id(table.part), []).append(table)
        for part in parts.values():
            columns = {name for table in part for name in table.numbers}
            for absent in (name for name in named_by(part[0]) if name not in columns):
                near = nearest(absent, columns)
                error = _unfit(
                    f'{option}: no table of its [[mirror.tables]] has a column "{absent}"',
                    f"Write the column as it is called now{f' ({near}?)' if near else ''}, or leave it out.",
                )
                yield error, [table.name for table in part]


def find_renamed(table: MirroredTable, noted: TablePrint) -> HeadraceError | None:
    """Return the error of a renamed column that the file names; None: there is none.

    Its values would come into the lake, or leave it.

    Args:
        table: the table as it is now.
        noted: its columns when the lake was last written.
    """
    names = {number: name for name, number in table.numbers.items()}
    options: Mapping[str, Collection[str]] = {
        "columns": table.part.columns,
        "exclude_columns": table.part.exclude_columns,
        "masks": table.masks.kinds,
    }
    for former, column in noted.columns.items():
        name = names.get(column.number, former)
        for option, named in options.items():
            if former in named and name not in named:
                bared = "" if option == "columns" else f" Without it the lake gets the values of {name}."
                return _unfit(
                    f"the column {former} of {table.name}, which the file names, is called {name} now",
                    f"Write {name} in place of {former} into {option} of its [[mirror.tables]].{bared}",
                )
    return None


def _soft_delete_problems(table: MirroredTable) -> Iterator[HeadraceError]:
    if table.part.soft_delete and not table.key:
        yield HeadraceError(
            Kind.REPLICA_IDENTITY,
            f"the table {table.name} has no key: soft_delete needs one to find a row that comes again",
            f"Run: ALTER TABLE {quoted(table.name)} ADD PRIMARY KEY (…). Or leave soft_delete out.",
        )


def _mask_problems(table: MirroredTable) -> Iterator[HeadraceError]:
    for name, kind in table.masks.kinds.items():
        if name not in table.columns:
            yield _absent("masks", name, table)
        elif name in table.key and kind != "sha256":
            yield _unfit(
                f"masks: the column {name} of {table.name} belongs to the key, which {kind} would make the "
                "same in all rows",
                f'Write {name} = "sha256", or exclude_columns in mode = "changes".',
            )


def _type_problems(table: MirroredTable) -> Iterator[HeadraceError]:
    for name, chosen in table.part.types.items():
        is_instant = chosen == "timestamptz" and name in table.columns
        if is_instant and not pa.types.is_timestamp(table.row_type.columns[name].arrow):
            yield _unfit(
                f"types: the column {name} of {table.name} is not a timestamp, and cannot be an instant",
                f"Leave {name} out of types.",
            )
    for name, policy in table.part.on_value.items():
        # NULL equals nothing: no change would find the row of the key again.
        if policy == "null" and name in table.key and table.part.mode != "changes":
            yield _unfit(
                f"on_value: the column {name} of {table.name} belongs to the key, which cannot be NULL",
                f'Write types = {{ {name} = "text" }}, or leave it out.',
            )


def _partition_problems(table: MirroredTable) -> Iterator[HeadraceError]:
    own = table.lake_schema if table.part.mode == "changes" else table.schema
    known = {name.casefold() for name in table.lake_schema.names}
    for partition in table.part.partitions:
        problem = _partition_problem(table, own, partition)
        if problem is not None:
            yield problem
        elif partition.name != partition.column and partition.name.casefold() in known:
            yield _unfit(
                f"partition_by: the table {table.name} has a column {partition.name}: "
                "the partitions need this name",
                f'Write exclude_columns = ["{partition.name}"], or partition by something else.',
            )
    if not set(table.lake_schema.names) - {partition.name for partition in table.part.partitions}:
        yield _unfit(f"partition_by: all columns of {table.name} would be partitions", "Leave one out.")


def _partition_problem(table: MirroredTable, own: pa.Schema, partition: Partition) -> HeadraceError | None:
    if partition.column not in own.names:
        return _absent("partition_by", partition.column, table)
    # Its partitions would be folders, or values in files' statistics, with what the mask is to hide.
    if partition.column in table.masks.kinds:
        return _unfit(
            f"partition_by: the column {partition.column} of {table.name} is masked",
            "Partition by another one.",
        )
    allowed = allowed_transforms(own.field(partition.column).type)
    if partition.transform in allowed:
        return None
    return _unfit(
        f"partition_by: the column {partition.column} of {table.name} has a type that allows "
        f"{', '.join(allowed).replace('identity', 'its name') or 'no partitions'}",
        "Choose another transform or column: see docs/guides/mirror-tables.md.",
    )


def _absent(option: str, column: str, table: MirroredTable) -> HeadraceError:
    bared = " A column that is taken out of masks comes into the lake unmasked." if option == "masks" else ""
    return _unfit(
        f'{option} of [[mirror.tables]]: the table {table.name} has no mirrored column "{column}"',
        f"Write the column as it is called now. Mirrored are: {', '.join(table.columns)}.{bared}",
    )


def _own_problems(table: MirroredTable) -> Iterator[HeadraceError]:
    if table.problem is not None:
        yield table.problem
        return
    for name, why in _unfit_names(table):
        yield _unfit(
            f"the column {name} of {table.name} cannot be mirrored: {why}",
            f'Write exclude_columns = ["{name}"] in its [[mirror.tables]], or rename it.',
        )
    if table.part.mode != "changes":
        yield from _key_problems(table)


def _key_remedy(table: MirroredTable) -> str:
    name, is_full = quoted(table.name), table.has_full_identity
    key, full = f"ALTER TABLE {name} ADD PRIMARY KEY (…)", f"ALTER TABLE {name} REPLICA IDENTITY FULL"
    if table.part.mode != "history":
        return f"Run: {key}. Or: {full}."
    return f'Run: {key}. Or choose mode = "current"{"" if is_full else f" and run: {full}"}.'


def _key_problems(table: MirroredTable) -> Iterator[HeadraceError]:
    # FULL tells rows by all of their values: enough to count them, not to follow one through its versions.
    if not table.key and (table.part.mode == "history" or not table.has_full_identity):
        refuses = (
            ""
            if table.has_full_identity
            else ", and PostgreSQL refuses UPDATE and DELETE of a published table without one"
        )
        yield HeadraceError(
            Kind.REPLICA_IDENTITY,
            f"the table {table.name} has no key: the log does not say which row of it was changed{refuses}",
            _key_remedy(table),
        )
    absent = [name for name in table.key if name not in table.columns]
    if absent:
        yield _unfit(
            f"the column {absent[0]} of {table.name} is left out, but it belongs to the key",
            'Mirror it, or choose mode = "changes".',
        )


def _unfit_names(table: MirroredTable) -> Iterator[tuple[str, str]]:
    """Yield the columns whose names no lake can have beside others, and why."""
    first: dict[str, str] = {}
    for name in table.columns:
        other = first.setdefault(name.casefold(), name)
        if other != name:
            yield name, f"{other} differs from it in case alone, which readers of lakes ignore"
        if name in table.rules.names:
            yield name, f"the mirror's mode {table.part.mode!r} has a column of this name"
        if name.startswith(PREFIX):
            yield name, f"names that begin with {PREFIX} are the mirror's own"
