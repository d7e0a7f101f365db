"""Define the options of each source, in addition to those that both have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from headrace.datasources.options import Bytes, DatabaseOptions, parse_by_table
from headrace.errors import HeadraceError
from headrace.model.lsn import parse_lsn
from headrace.model.names import TableName
from headrace.postgres.address import for_slot
from headrace.postgres.slot import check_slot_name
from headrace.snapshot.planning import PARTITION_BYTES

STARTS = ("snapshot", "earliest", "latest")
_NAME_BYTES = 63
Envelope = Literal["rows", "changes", "elements"]
_Value = TypeVar("_Value")


class CdcOptions(DatabaseOptions):
    """The options of `postgres_cdc`."""

    slot: str = Field(description="the replication slot, like `spark_orders`; the source is its only reader")
    publication: str = Field("headrace", description="the publication that says which tables are sent")
    create_slot: bool = Field(default=True, description="create slot and publication where they are missing")
    temporary_slot: bool = Field(
        default=False,
        description="a slot that ends with the query and keeps no log afterwards, for a look at a table; its "
        "checkpoint cannot be used again, and a connection that is lost ends the query",
    )
    envelope: Envelope | None = Field(
        None,
        description="`rows`: one table, its columns typed; `changes`: many tables, their values as text; "
        "`elements`: rows as nodes of a graph. Without the option it is `rows` if `tables` names one table, "
        "else `changes`",
    )
    table_keys: dict[TableName | None, tuple[str, ...]] = Field(
        {},
        description="the columns that tell rows apart, if not those of the primary key: of one table "
        '`id, tenant`; of several JSON, `{"public.users": ["id"]}`; the log must carry them of deleted rows',
    )
    source_id: str | None = Field(
        None, description="`elements`: the `source_id` of all references; if absent, the slot's name"
    )
    starting_offsets: str = Field(
        "snapshot",
        description="where a new checkpoint begins: `snapshot`: the rows that are there, then the stream "
        "from that very moment; `earliest`: where the slot stands; `latest`: now; or a place in the log, "
        "like `0/16B3748`",
    )
    bootstrap: str = Field(
        "snapshot",
        description="where the first rows of `startingOffsets=snapshot` come from: `snapshot`: the tables; "
        "`none`: there are none; the path of a file of JSON lines; or a class, `module:Class`",
    )
    fail_on_data_loss: bool = Field(
        default=True,
        description="where the slot was recreated, moved or lost, so that it cannot give what follows the "
        "checkpoint, `true` ends the query. `false` goes on from where it can, recreates a slot that is "
        "gone, and logs from where to where changes are missing",
    )
    upgraded_from: str | None = Field(
        None,
        description="after pg_upgrade (from 17 on): the system identifier of the server before the upgrade, "
        "as `pg_controldata` prints it. A checkpoint of that server then goes on here. Slot and catalog are "
        "compared first; once the checkpoint is on this server, the option does nothing",
    )
    where: dict[TableName | None, str] = Field(
        {},
        description="SQL that says which rows are followed, and read first; of several tables: JSON, "
        '`{"public.users": "age > 17"}`. It becomes a row filter of the publication (PostgreSQL 15), so it '
        "may read only columns of the replica identity",
    )
    new_tables: Literal["refuse", "follow", "snapshot"] = Field(
        "refuse",
        description="`changes`: what a checkpoint does with a table that is new in `tables`: `refuse`: an "
        "error names it; `follow`: its changes come from now on; `snapshot`: its rows are read first",
    )
    on_schema_change: Literal["fail", "rescue", "ignore"] = Field(
        "fail",
        description="`rows`: what happens where a table is altered while it is followed. `fail` ends the "
        "query before the first row that does not fit. With `rescue`, values of new columns, and those that "
        "do not fit their column's type any more, stand as JSON in `_rescued_data`. With `ignore`, new "
        "columns are left out. With both, columns that are dropped become NULL",
    )
    on_unlogged_change: Literal["fail", "snapshot", "keep", "ignore"] = Field(
        "fail",
        description="what happens where rows changed and the log does not say so (a partition came or went "
        "with its rows, `ALTER … TYPE … USING`). `fail`: an error says what. `snapshot`: the table is read "
        "again, a `truncate` and then every row. `keep`: as `fail`, and rows that went with a partition "
        "stay. `ignore`: it is not looked at",
    )
    confirm_folder: str | None = Field(
        None,
        description="a folder of the driver's machine. Another program writes into its file `confirm_limit` "
        "up to where the slot may be confirmed, as in `0/1A2B3C`; the server keeps the log after that. "
        "The file `planned_end` has the offset at the end of the batch that was planned last",
    )
    pre_images: bool = Field(
        default=False,
        description="`rows` alone, so not for `for_each_table`: a row with the values before each update, as "
        "`update_preimage`",
    )
    metadata_prefix: str = Field("_", description="what the names of our own columns begin with")
    unchanged_toast: Literal["reread", "old", "mark"] = Field(
        "reread",
        description="a large value that an update left as it was is not in the log. `reread` reads what the "
        "row holds now, `old` takes it from the old row (`rows`; needs REPLICA IDENTITY FULL), `mark` leaves "
        "it out. In `rows` it is NULL then, and the column `_unchanged` names what is not known",
    )
    max_bytes_per_trigger: Bytes = Field(128 << 20, gt=0, description="how much one batch may hold")
    max_rows_per_trigger: int | None = Field(
        None,
        gt=0,
        description="how many changes one batch holds, about: of a transaction that alone is larger, a batch "
        "takes as many as arrived together",
    )
    rows_per_partition: int = Field(20_000, gt=0, description="a batch is split into tasks of this size")
    buffer_bytes: Bytes = Field(256 << 20, gt=0, description="how much may wait in the driver's memory")
    backlog_bytes: Bytes = Field(
        64 << 20,
        ge=0,
        description="where so much log waits it is read through SQL, which is faster; 0: never",
    )

    @field_validator("slot")
    @classmethod
    def _check_slot_name(cls, value: str) -> str:
        try:
            check_slot_name(value)
        except HeadraceError as error:
            raise ValueError(error.remedy) from error
        return value

    @field_validator("publication")
    @classmethod
    def _check_publication_name(cls, value: str) -> str:
        if not 0 < len(value.encode()) <= _NAME_BYTES:
            raise ValueError(f"a name has 1 to {_NAME_BYTES} bytes")
        return value

    @field_validator("starting_offsets")
    @classmethod
    def _check_start(cls, value: str) -> str:
        if value.lower() in STARTS:
            return value.lower()
        parse_lsn(value)
        return value

    @field_validator("where", mode="before")
    @classmethod
    def _parse_where(cls, value: object) -> object:
        found = parse_by_table(value) if isinstance(value, str) else value
        if isinstance(found, Mapping) and any(
            isinstance(condition, str) and not condition.strip() for condition in found.values()
        ):
            raise ValueError("there is no condition")
        return found

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems: dict[str, object] = {
            "bootstrap says where the first rows come from: it needs startingOffsets=snapshot": (
                self.bootstrap != "snapshot" and self.starting_offsets != "snapshot"
            ),
            "envelope=rows gives the columns of one table: name it by tables": (
                self.envelope == "rows" and self.one_table is None
            ),
            "sourceId is for envelope=elements": self.source_id is not None and self.form != "elements",
            "temporarySlot=true makes a slot, and createSlot=false says not to": (
                self.temporary_slot and not self.create_slot
            ),
            "onUnloggedChange=snapshot reads the tables, and bootstrap names another place: leave bootstrap "
            "out, the checkpoint has its rows": (
                self.on_unlogged_change == "snapshot" and self.bootstrap not in {"snapshot", "none"}
            ),
        }
        if self.form == "rows":
            problems["newTables is for many tables (envelope=changes)"] = self.new_tables != "refuse"
        else:
            problems |= {
                "preImages is for envelope=rows": self.pre_images,
                "excludeColumns is for envelope=rows: name what is wanted by columns": self.exclude_columns,
                "unchangedToast=old is for envelope=rows; what the old row holds is taken anyway": (
                    self.unchanged_toast == "old"
                ),
                "onSchemaChange is for envelope=rows": self.on_schema_change != "fail",
            }
        if self.one_table is None:
            problems |= {
                'tableKeys names no table: write JSON, {"public.users": ["id"]}': None in self.table_keys,
                'where: of several tables write JSON: {"public.users": "age > 17"}': None in self.where,
                'columns: of several tables write JSON: {"public.users": ["id"]}': None in self.columns,
            }
        problems |= dict.fromkeys(self._find_unfollowed(), True)
        for problem, is_there in problems.items():
            if is_there:
                raise ValueError(problem)
        return self

    def _find_unfollowed(self) -> Iterator[str]:
        """Yield the options that name a table which is not among `tables`."""
        for option, by_table in (("where", self.where), ("columns", self.columns)):
            for table in filter(None, by_table):
                if self.tables and not any(pattern.matches(table) for pattern in self.tables):
                    yield f"{option} names {table}, which is not followed"

    @property
    def conditions(self) -> dict[TableName, str]:
        """Return `where` by table; a line feed ends a trailing SQL comment."""
        named = self._by_table(self.where)
        return {table: f"{sql}\n" if "--" in sql else sql for table, sql in named.items()}

    @property
    def slot_url(self) -> str:
        """Return the connection string of what works for the slot; it contains the password."""
        return for_slot(self.connection, self.slot)

    @property
    def listed_columns(self) -> dict[TableName, frozenset[str]]:
        """Return `columns` by table."""
        return {table: frozenset(names) for table, names in self._by_table(self.columns).items()}

    def _by_table(self, given: Mapping[TableName | None, _Value]) -> dict[TableName, _Value]:
        """Return values by table; None stands for the only one."""
        named = {self.one_table if table is None else table: value for table, value in given.items()}
        return {table: value for table, value in named.items() if table is not None}

    @property
    def one_table(self) -> TableName | None:
        """Return the table if exactly one is named."""
        return self.tables[0].exact if len(self.tables) == 1 else None

    @property
    def reads_first(self) -> bool:
        """Tell whether a new checkpoint begins with existing rows."""
        return self.starting_offsets == "snapshot" and self.bootstrap != "none"

    @property
    def form(self) -> Envelope:
        """Return the envelope, given or derived."""
        return self.envelope or ("changes" if self.one_table is None else "rows")


_SNAPSHOT = re.compile(r"[0-9A-F]{8}-[0-9A-F]{8}-[0-9]+")


class SnapshotOptions(DatabaseOptions):
    """The options of `postgres_snapshot`."""

    where: str | None = Field(
        None, description="SQL that says which rows are read; it is put into the statement as it is"
    )
    snapshot_id: str | None = Field(
        None, description="of an exported snapshot, the moment that all rows are read as of"
    )
    num_partitions: int | None = Field(None, gt=0, description="into how many tasks the table is cut, about")
    partition_bytes: Bytes = Field(
        PARTITION_BYTES, gt=0, description="without `numPartitions`: how much of its file a task reads, about"
    )
    batch_bytes: Bytes = Field(
        8 << 20, gt=0, le=512 << 20, description="how much of its rows a task holds at once, about"
    )

    @field_validator("snapshot_id")
    @classmethod
    def _check_snapshot(cls, value: str | None) -> str | None:
        if value is not None and not _SNAPSHOT.fullmatch(value):
            raise ValueError("it is not what pg_export_snapshot() gives")
        return value

    @model_validator(mode="after")
    def _check_table(self) -> Self:
        if len(self.tables) != 1 or self.tables[0].exact is None:
            raise ValueError('name one table, by tables or as in load("public.users")')
        return self

    @property
    def table(self) -> TableName:
        """Return the table."""
        exact = self.tables[0].exact
        assert exact is not None
        return exact
