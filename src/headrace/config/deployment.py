"""Define what a deployment file may contain, with defaults.

The module defines values and their form. It reads no environment variable, so a file can be checked where the
pipeline does not run. `resolve.py` turns references into values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    field_validator,
)

from headrace.config.control import Control, HostName, command_words
from headrace.config.file_model import FileModel
from headrace.config.mirror import MirrorConfig
from headrace.config.secret import Secret
from headrace.config.value import (
    EnvReference,
    File,
    PublicationName,
    SlotName,
    Value,
    below_folder,
    value_form,
)

OnError = Literal["stop", "skip", "quarantine"]
"""What happens with a document that a sink refuses for good: end the run, skip it, or quarantine it."""

OnQuarantine = Literal["keep", "delete"]
"""What happens with the older version of a quarantined document."""

OnGap = Literal["stop", "reseed"]
"""What happens at a gap in the log, on the server that the documents come from: end the run, or reseed."""

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_PREFIX = re.compile(r"(?:[a-z0-9][a-z0-9._+-]{0,99})?")
_URL = re.compile(r"(?:postgresql|postgres)://\S+|jdbc:postgresql:\S*")
_KEYWORDS = re.compile(r"\s*[a-z_]+\s*=.*", re.DOTALL)
_INTERVAL = re.compile(r"-1|\d{1,9}(?:ms|s|m|h|d)")
_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\s:\[\]]*):(?P<port>\d{1,5})")
_LAST_PORT = 65535


def _address_form(value: object) -> str | None:
    return "<list>" if isinstance(value, list | tuple) else value_form(value)


Addresses = Annotated[
    Annotated[Secret, Tag("<text>")]
    | Annotated[EnvReference, Tag("<env>")]
    | Annotated[tuple[Value, ...], Tag("<list>"), Field(min_length=1, strict=False)],
    Discriminator(_address_form),
]
"""One value or several."""


def _check_prefix(value: str) -> str:
    if not _PREFIX.fullmatch(value):
        raise ValueError("must begin with a lower-case letter or a digit, and have only those and . _ + -")
    return value


def _check_interval(value: str) -> str:
    if not _INTERVAL.fullmatch(value):
        raise ValueError('must be a duration like "10s" or "500ms", or "-1" for never')
    return value


def _check_schema_path(value: object) -> object:
    if not isinstance(value, str) or "\0" in value or not value.endswith((".yml", ".yaml")):
        raise ValueError("must be the path of a .yml or .yaml file")
    return value


def _check_address(value: str) -> str:
    match = _ADDRESS.fullmatch(value)
    if match is None or int(match["port"]) > _LAST_PORT:
        raise ValueError("must be HOST:PORT, like 0.0.0.0:9464")
    return value


def folded_name(value: str) -> str:
    """Return the name of an index or a sink, trimmed and in lower case.

    Raises:
        ValueError: not a name.
    """
    name = value.strip().lower()
    if not _NAME.fullmatch(name):
        raise ValueError(f"{value[:80]!r} is no name: letters, digits and _, at most 63, no digit first")
    return name


Prefix = Annotated[str, AfterValidator(_check_prefix)]
FoldedName = Annotated[str, AfterValidator(folded_name)]
Address = Annotated[str, AfterValidator(_check_address)]


class ConnectionParts(FileModel):
    """A database connection, part by part."""

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """The server; parts need no percent-encoding."""
    port: Annotated[int, Field(ge=1, le=_LAST_PORT)] = 5432
    """Its port."""
    user: Annotated[str, Field(min_length=1)] = "postgres"
    """The role."""
    password: Value | None = None
    """Its password."""
    database: Annotated[str, Field(min_length=1)]
    """The database."""
    parameters: dict[str, str] = Field(default_factory=dict)
    """Further parameters of libpq: `sslmode`, `sslrootcert`, …"""


def _connection_form(value: object) -> str | None:
    if isinstance(value, dict):
        return "<env>" if "env" in value else "<parts>"
    return "<parts>" if isinstance(value, ConnectionParts) else value_form(value)


Connection = Annotated[
    Annotated[Secret, Tag("<text>")]
    | Annotated[EnvReference, Tag("<env>")]
    | Annotated[ConnectionParts, Tag("<parts>")],
    Discriminator(_connection_form),
]


def _tls_file(file: str, info: ValidationInfo) -> str:
    # `system` is no file: libpq takes what the machine trusts.
    return file if file == "system" else str(below_folder(Path(file), info))


TlsFile = Annotated[str, Field(min_length=1), AfterValidator(_tls_file)]


def _check_connection(value: object) -> object:
    if isinstance(value, Secret) and not is_connection_string(value.reveal()):
        raise ValueError("must be like postgresql://USER@HOST:PORT/DATABASE")
    return value


class SourceConfig(FileModel):
    """The database that changes are captured from."""

    type: Literal["postgres"]
    """The only kind."""
    connection_url: Annotated[Connection | None, AfterValidator(_check_connection)] = None
    """A libpq URL or keyword string, a `jdbc:postgresql:` URL, or a table of `host`, `port`, `user`,
    `password`, `database` and `parameters` (`{ sslmode = "verify-full" }`); see docs/guides/connections.md.
    None: the variable `DATABASE_URL`."""
    password_command: Annotated[tuple[str, ...] | None, BeforeValidator(command_words)] = None
    """A command, `["program", "word"]` or one text, that prints the password; asked at each connect, for
    tokens that live for minutes, and run without a shell. Or `"iam:aws"`, `"iam:azure"`, `"iam:google"`:
    a token of that cloud; see docs/guides/connections.md#tokens-of-a-cloud."""
    manage_publication: bool = True
    """Whether Headrace may make and extend the publication; if not, what it lacks is refused, with the SQL
    for its owner."""
    replica_identity: Literal["check", "auto", "ignore"] = "check"
    """A table whose old rows carry too little: `check` refuses and prints the SQL, `auto` alters it and
    records what was before, `ignore` runs and lists in `/status` what can go stale; see
    docs/guides/replica-identities.md#replica-identities-and-what-they-cost."""
    slot: SlotName = "headrace"
    """The replication slot; lower-case letters, digits and `_`."""
    failover: bool = False
    """Whether a slot that is made is kept on standbys too, so that it survives a failover (PostgreSQL 17 and
    later); see docs/guides/failover.md."""
    on_gap: OnGap = "reseed"
    """What a run does at a gap in the log (a lost slot, a promotion, a restored database). `reseed`: it
    rebuilds everything, while searches use the present indexes. `stop`: it ends. Another server or database,
    and an older timeline, always end it; see docs/guides/gaps.md#a-gap-in-the-log. `--on-gap` wins."""
    wal_budget: Annotated[ByteSize, Field(gt=0)] | None = None
    """How much log the slot may retain on the primary's disk, as in `"50 GB"`. From half of it on there is a
    warning, in `/status` and in the log."""
    wal_budget_hours: Annotated[float, Field(gt=0)] | None = None
    """How far the slot may be behind (hours); as `wal_budget`."""
    on_budget: Literal["warn", "release"] = "warn"
    """Beyond the budget: `warn`, or `release` the slot before the primary's disk is full, and backfill
    everything again when the cluster answers. `release` does not go with `on_gap = "stop"`; a run must
    follow for it."""
    stalled_after: Annotated[float, Field(ge=20)] = 40.0
    """After how many seconds without progress the stream has stalled; see
    docs/guides/monitoring.md#a-stream-that-stands-still. An idle slot moves every ten;
    20 is the least."""
    publication: PublicationName = "headrace"
    """The publication."""
    ssl_mode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] | None = None
    """As `sslmode` in the address, over which it wins; flusso 0.16 writes it so, and the next three."""
    ssl_root_cert: TlsFile | None = None
    """As `sslrootcert`."""
    ssl_cert: TlsFile | None = None
    """As `sslcert`."""
    ssl_key: TlsFile | None = None
    """As `sslkey`."""

    def tls_parameters(self) -> dict[str, str]:
        """Return libpq's parameters for what the file says of TLS beside the address."""
        keys = ("ssl_mode", "ssl_root_cert", "ssl_cert", "ssl_key")
        return {key.replace("_", ""): value for key in keys if (value := getattr(self, key)) is not None}

    @field_validator("on_budget")
    @classmethod
    def _may_release(cls, value: str, info: ValidationInfo) -> str:
        # A slot that is released leaves a gap: without reseeding nothing would ever follow again.
        if value == "release" and info.data.get("on_gap") != "reseed":
            raise ValueError('"release" needs on_gap = "reseed": what is released must be backfilled again')
        if value == "release" and not (info.data.get("wal_budget") or info.data.get("wal_budget_hours")):
            raise ValueError('"release" needs wal_budget or wal_budget_hours')
        return value


class OpenSearchSink(FileModel):
    """An OpenSearch cluster; the paths are absolute once the file is loaded."""

    type: Literal["opensearch"]
    """The kind of the sink."""
    url: Addresses | None = None
    """`https://HOST:PORT`, or a list for several nodes of one cluster, each tried at most once for a request;
    see docs/guides/configuration.md#the-cluster. None: the variable `NAME_OPENSEARCH_URL`."""
    username: Value | None = None
    """For basic authentication."""
    password: Value | None = None
    """For basic authentication."""
    api_key: Value | None = None
    """Instead of the two: `ID:KEY`, or the same in base64, as clusters print it."""
    bearer_token: Value | None = None
    """Instead of those: a token that the cluster takes as `Authorization: Bearer`."""
    aws_region: Annotated[str, Field(pattern=r"^[a-z]{2,}(-[a-z0-9]+)+$")] | None = None
    """Instead of those, for a domain of Amazon OpenSearch Service: sign each request (SigV4) for this region,
    with the AWS credentials of each machine; needs `headrace[aws]`."""
    client_cert: File | None = None
    """A PEM file with the certificate that is shown to the cluster, with or without its key."""
    client_key: File | None = None
    """A PEM file with the key of `client_cert`, where that lacks it; without a passphrase."""
    tls_verify: bool = True
    """Whether the cluster's certificate must be valid."""
    ca_file: File | None = None
    """A PEM file with the authorities that are trusted. None: the system's."""
    ca_fingerprint: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{2}(?::?[0-9a-fA-F]{2}){31}$")] | None = None
    """Instead of `ca_file`: the SHA-256 fingerprint of the authority's certificate, as Elasticsearch prints
    it; the cluster must send that certificate."""
    gzip: bool = False
    """Whether requests are compressed: worth it where the network is slow or paid for."""
    batch_size: Annotated[int, Field(ge=1)] = 1000
    """Documents in one bulk request, at most."""
    max_bytes: Annotated[int, Field(ge=1)] = 10 * 1024 * 1024
    """Bytes in one bulk request, at most; a single larger document goes alone."""
    max_document_bytes: Annotated[int, Field(ge=1)] = 20 * 1024 * 1024
    """A larger document is refused before it is sent, as `on_error` says: a node needs several times its size
    to parse it, and one that is too large ends a small node, again with each attempt; see
    docs/guides/delivery.md#a-document-with-very-many-children."""
    timeout_secs: Annotated[int, Field(ge=1)] = 30
    """How long one request may take."""
    max_retries: Annotated[int, Field(ge=0)] = 3
    """Without effect, read for the sake of older files: a cluster that is away or busy is retried for as long
    as it takes."""
    pipeline: Annotated[str, Field(min_length=1)] | None = None
    """An ingest pipeline of the cluster that every document goes through."""
    number_of_shards: Annotated[int, Field(ge=1)] = 1
    """Of new indexes."""
    number_of_replicas: Annotated[int, Field(ge=0)] = 1
    """Of new indexes; replicas are added after the backfill."""
    refresh_interval: Annotated[str, AfterValidator(_check_interval)] = "10s"
    """How often the cluster makes new documents searchable; refreshes are off while an index is backfilled.
    A change is usually searchable much sooner: see `eager_refresh`."""
    eager_refresh: bool = True
    """Whether Headrace asks for a refresh as soon as a batch of fewer than 1,000 changes is written, whatever
    the interval. After each refresh it pauses for as long as that took
    (docs/guides/consistency.md#how-soon-a-search-finds-a-change). Off with the interval `"-1"`."""
    text_analysis: Literal["builtin", "icu"] = "builtin"
    """`"icu"` needs the plugin analysis-icu on every node."""
    auto_subfields: bool = True
    """Subfields of text and keyword fields for exact, analysed and sorted use. They take half of what the
    cluster works while it indexes (docs/explanation/performance.md#what-a-choice-costs-the-cluster);
    `options: {fields: {}}` leaves them out of one field."""
    prefix: Prefix | None = None
    """Stands before every name in this cluster. None: the deployment's."""


class StdoutSink(FileModel):
    """Standard output, one JSON object per operation."""

    type: Literal["stdout"]
    """The kind of the sink."""
    pretty: bool = False
    """Whether the JSON is indented, for eyes."""


SINK_KINDS = "headrace.sinks"
"""The entry-point group in which packages register kinds of sinks."""


class OtherSink(BaseModel):
    """A sink of a kind that an installed package registers; the package checks its options."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)
    type: str

    def options(self) -> dict[str, Any]:
        """Return what the file says besides the kind."""
        return dict(self.model_extra or {})


SINK_TYPES: dict[str, type[BaseModel]] = {"opensearch": OpenSearchSink, "stdout": StdoutSink}


def sink_kinds() -> list[str]:
    """Return the values that a sink's `type` may have."""
    return sorted({*SINK_TYPES, *(entry_point.name for entry_point in entry_points(group=SINK_KINDS))})


def _sink_form(value: object) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    if not isinstance(kind, str):
        return None
    return "<other>" if kind not in SINK_TYPES and kind in sink_kinds() else f"<{kind}>"


Sink = Annotated[
    Annotated[OpenSearchSink, Tag("<opensearch>")]
    | Annotated[StdoutSink, Tag("<stdout>")]
    | Annotated[OtherSink, Tag("<other>")],
    Discriminator(_sink_form),
]

TAGS = frozenset({"<text>", "<env>", "<list>", "<parts>", "<opensearch>", "<stdout>", "<other>"})
"""Tags that a union adds to the location of an error; they are no keys of a file."""


class IndexEntry(FileModel):
    """One index: its name, its schema file, whether it is built; paths are absolute once it is loaded."""

    name: FoldedName
    """The documents are served by the alias `{prefix}{name}`."""
    schema_path: Annotated[File, Field(alias="schema"), BeforeValidator(_check_schema_path)]
    """The schema file, see docs/reference/schema.md."""
    enabled: bool = True
    """A disabled index is neither backfilled nor followed."""
    on_error: OnError | None = None
    """As above, for this index. None: the deployment's."""
    on_quarantine: OnQuarantine | None = None
    """As above, for this index. None: the deployment's."""
    settings_file: File | None = None
    """JSON with settings of the search index, which win over all others; see
    docs/guides/configuration.md#settings-and-mappings-of-your-own."""
    mappings_file: File | None = None
    """JSON that is laid over the mapping which the schema file gives."""
    transform: Annotated[str, Field(min_length=1)] | None = None
    """`module:function`, your own Python that changes its documents; see
    docs/guides/configuration.md#transforms."""


class Server(FileModel):
    """The addresses of the two HTTP servers, `HOST:PORT`; port 0 takes a free one."""

    public_address: Address = "127.0.0.1:9464"
    """Health, readiness, status, metrics and the console, for everyone who reaches it. `--public-address`
    wins; listens only where the file or the option says so."""
    public_hosts: Annotated[tuple[HostName, ...], Field(strict=False)] = ()
    """Names that the public address is asked by, of a proxy or a Service: `HOST:PORT`, or `HOST` with any
    port. IP addresses and localhost need not be named. Those of `--public-hosts` count too."""
    private_address: Address = "127.0.0.1:9465"
    """Orders, with the tokens of `[control]`; see docs/guides/control.md. `--private-address` wins; listens
    only where the file or the option says so."""


class BackfillConfig(FileModel):
    """Limits for the load that a backfill puts on the database and the cluster."""

    rows_per_second: Annotated[int, Field(ge=1)] | None = None
    """The most documents that are read in a second, all indexes together. None: no limit."""
    connections: Annotated[int, Field(ge=1)] | None = None
    """Ranges of rows that are read at once, each over a connection of its own. None: one for each task slot
    of Spark."""
    snapshot_minutes: Annotated[float, Field(ge=0)] = 10.0
    """How long the first backfill may hold the new slot's snapshot, which holds back VACUUM in the whole
    database; 0 never uses it."""

    @property
    def is_limited(self) -> bool:
        """Whether backfills together may not read as much as they can."""
        return self.rows_per_second is not None or self.connections is not None


class GenerationsPolicy(FileModel):
    """What happens with an index that a newer one has replaced."""

    keep: Annotated[int, Field(ge=0, le=9)] = 1
    """How many former generations of an index are kept and followed, for a rollback; 0 drops the old one at
    the swap."""


_PRINTING: dict[str, Sink] = {"stdout": StdoutSink(type="stdout")}
"""The sinks of a file that has none."""


def _folded_names(sinks: Any) -> Any:
    if not isinstance(sinks, dict):
        return sinks
    folded = {folded_name(name): sink for name, sink in (sinks or _PRINTING).items()}
    if len(folded) < len(sinks):
        raise ValueError("two sinks have the same name, letter case aside")
    return folded


class Deployment(FileModel):
    """The content of a deployment file."""

    source: SourceConfig
    sinks: Annotated[dict[str, Sink], Field(strict=False), BeforeValidator(_folded_names)] = _PRINTING
    """The sinks by name; without any in the file, one called `stdout` that prints."""
    primary_sink: str | None = None
    """The sink that keeps the state, where there are several; see docs/guides/sinks.md#several-sinks. None:
    the first `opensearch` sink of the file."""
    max_deferred: Annotated[int, Field(ge=1)] = 1_000_000
    """Documents that wait for a failing secondary sink, of each index at most; an index with more is
    backfilled again. A hundred documents of one large change count as one."""
    indexes: Annotated[tuple[IndexEntry, ...], Field(alias="index", strict=False)] = ()
    on_error: OnError = "quarantine"
    """What happens to a document that the cluster refuses, or that cannot be read: it goes to `quarantine`,
    is left out (`skip`), or its index stops (`stop`); see
    docs/guides/delivery.md#documents-that-the-cluster-refuses."""
    on_quarantine: OnQuarantine = "keep"
    """The older version of a quarantined document in the index: `keep`, or `delete` it."""
    large_change: Annotated[int, Field(ge=1)] = 50_000
    """Documents of one index that a change may touch before they are written beside the changes after it;
    see docs/guides/delivery.md#a-change-that-touches-very-many-documents."""
    prefix: Prefix = ""
    """Stands before every name that Headrace makes in a cluster, separator included."""
    server: Server = Server()
    control: Control = Control()
    backfill: BackfillConfig = BackfillConfig()
    generations: GenerationsPolicy = GenerationsPolicy()
    stream: dict[str, Any] = Field(default_factory=dict)
    """What flusso 0.16 says of its queue; without effect, Headrace's is bounded by bytes."""
    batch: dict[str, Any] = Field(default_factory=dict)
    """What flusso 0.16 says of its batches; without effect, Spark cuts Headrace's."""
    mirror: MirrorConfig | None = None

    _file: Path = PrivateAttr(default=Path("headrace.toml"))
    _environment: dict[str, Secret] = PrivateAttr(default_factory=dict)

    @property
    def file(self) -> Path:
        """The file that this was loaded from."""
        return self._file

    @property
    def environment(self) -> Mapping[str, Secret]:
        """The environment variables that this deployment may use, as they were at loading."""
        return self._environment

    @property
    def enabled(self) -> tuple[IndexEntry, ...]:
        """The indexes that are built."""
        return tuple(entry for entry in self.indexes if entry.enabled)

    def variables(self) -> frozenset[str]:
        """Return the names of all environment variables that can give this deployment a value."""
        names = {*DATABASE_VARIABLES, PASSWORD_VARIABLE}
        values: list[object] = [self.source.connection_url]
        if isinstance(self.source.connection_url, ConnectionParts):
            values.append(self.source.connection_url.password)
        for name, sink in self.sinks.items():
            if isinstance(sink, OpenSearchSink):
                names.update(variable for part in RESERVED for variable in reserved(name, part))
                values.extend(sink.url if isinstance(sink.url, tuple) else (sink.url,))
                values.extend((sink.username, sink.password, sink.api_key, sink.bearer_token))
        values.append(self.mirror.mask_salt if self.mirror is not None else None)
        names.update(token.token_env for token in self.control.tokens if token.token_env is not None)
        return frozenset(names | {value.env for value in values if isinstance(value, EnvReference)})

    def on_error_of(self, name: str) -> OnError:
        """Return the error policy of the index called `name`."""
        return next((entry.on_error for entry in self.indexes if entry.name == name), None) or self.on_error

    def on_quarantine_of(self, name: str) -> OnQuarantine:
        """Return what the index called `name` does with the older version of a quarantined document."""
        own = next((entry.on_quarantine for entry in self.indexes if entry.name == name), None)
        return own or self.on_quarantine


DATABASE_VARIABLES = ("DATABASE_URL", "SOURCE_POSTGRES_CONNECTION_URL")
"""The variables that take the place of a literal `connection_url`: flusso 0.15's and 0.16's name."""

PASSWORD_VARIABLE = "SOURCE_POSTGRES_CONNECTION_URL_PASSWORD"  # noqa: S105 -- the name of a variable
"""The variable that takes the place of a literal password of its parts; flusso 0.16's name."""

RESERVED = ("url", "username", "password", "api_key", "bearer_token", "ca_file", "gzip")
"""The keys of a cluster that environment variables override."""


def reserved(sink: str, part: str) -> tuple[str, str]:
    """Return the variables that override `part` of the sink `sink`; the first that is set wins."""
    name = f"{sink.upper()}_OPENSEARCH_{part.upper()}"
    return name, f"HEADRACE_{name}"


def is_connection_string(text: str) -> bool:
    """Return whether `text` looks like a URL or a keyword string of libpq."""
    return bool(_URL.fullmatch(text) or ("://" not in text.partition("=")[0] and _KEYWORDS.fullmatch(text)))
