"""Turn the settings of PGSync's environment into those of a deployment file; no secret is written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from headrace.config.text_files import read_text
from headrace.errors import Kind
from headrace.tools.convert.notes import Notes

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""(["'])(.*?)\1\s*(?:#.*)?""")
_OF_DATABASE = ("PG_URL", "PG_HOST", "PG_PORT", "PG_USER", "PG_PASSWORD", "PG_SSLMODE", "PG_SSLROOTCERT")
_PREFIXES = ("PG_", "ELASTICSEARCH", "OPENSEARCH")
_NUMBERS = {
    "ELASTICSEARCH_CHUNK_SIZE": "batch_size",
    "ELASTICSEARCH_MAX_CHUNK_BYTES": "max_bytes",
    "ELASTICSEARCH_TIMEOUT": "timeout_secs",
}
_KNOWN = {
    *_OF_DATABASE,
    *_NUMBERS,
    *("ELASTICSEARCH", "OPENSEARCH", "PG_DRIVER", "PG_DATABASE"),
    *(
        f"ELASTICSEARCH_{word}"
        for word in (
            "URL SCHEME HOST PORT USER PASSWORD API_KEY API_KEY_ID VERIFY_CERTS CA_CERTS HTTP_COMPRESS "
            "BASIC_AUTH HTTP_AUTH"
        ).split()
    ),
}
_YES, _NO = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})
_USERNAME, _PASSWORD, _API_KEY = "SEARCH_USERNAME", "SEARCH_PASSWORD", "SEARCH_API_KEY"


@dataclass(frozen=True, slots=True)
class EnvFile:
    """The variables of a .env file, each with its line."""

    path: Path
    values: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """Return a variable; empty where it is not set."""
        return self.values.get(name, "").strip()

    def line(self, name: str) -> int:
        """Return the line of a variable."""
        return self.lines.get(name, 1)


def read_env(path: Path, notes: Notes) -> EnvFile:
    """Read a .env file: `NAME=value`, with or without quotes and `export`.

    Raises:
        HeadraceError: CONFIG: it cannot be read.
    """
    text = read_text(path, "the environment of PGSync", Kind.CONFIG)
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            notes.left(number, "the line is not NAME=value: it is left out", "Write NAME=value.")
            continue
        values[match[1]], lines[match[1]] = _value(match[2]), number
    return EnvFile(path, values, lines)


def _value(text: str) -> str:
    quoted = _QUOTED.fullmatch(text.strip())
    return quoted[2] if quoted else re.sub(r"(^|\s+)#.*", "", text).strip()


def connection_of(env: EnvFile, database: str, notes: Notes) -> Any:
    """Return `connection_url` of a deployment file for one database, as a value of TOML."""
    url = env.get("PG_URL")
    if url:
        return _connection_of_url(env, url, database, notes)
    port = _number(env, "PG_PORT", notes)
    parameters = {
        name: env.get(variable)
        for name, variable in (("sslmode", "PG_SSLMODE"), ("sslrootcert", "PG_SSLROOTCERT"))
        if env.get(variable)
    }
    return {
        "host": env.get("PG_HOST") or "localhost",
        **({"port": port} if port else {}),
        **({"user": env.get("PG_USER")} if env.get("PG_USER") else {}),
        **({"password": {"env": "PG_PASSWORD"}} if env.get("PG_PASSWORD") else {}),
        "database": database,
        **({"parameters": parameters} if parameters else {}),
    }


def address_of(env: EnvFile, database: str) -> str:
    """Return the address of a database by PG_URL, with its password; empty where that is not set."""
    try:
        parts = urlsplit(env.get("PG_URL"))
    except ValueError:
        return ""
    # SQLAlchemy's `postgresql+psycopg2` names a driver behind the protocol.
    scheme = parts.scheme.partition("+")[0]
    return (
        urlunsplit((scheme, parts.netloc, "/" + quote(database, safe=""), parts.query, "")) if scheme else ""
    )


def _connection_of_url(env: EnvFile, url: str, database: str, notes: Notes) -> Any:
    """Return the address itself, or the variable that holds it where it has a password."""
    try:
        parts = urlsplit(url)
        has_password = parts.password is not None or "password=" in parts.query
    except ValueError:
        notes.left(env.line("PG_URL"), "PG_URL is not a URL", "Write postgresql://USER@HOST:PORT/DATABASE.")
        return {"env": "PG_URL"}
    path = "/" + quote(database, safe="")
    # With a password the address is never written: the file names the variable that holds it.
    if not has_password:
        return urlunsplit((parts.scheme.partition("+")[0], parts.netloc, path, parts.query, ""))
    if parts.path != path or "+" in parts.scheme:
        notes.left(
            env.line("PG_URL"),
            f"PGSync takes the database {database} in place of the one in PG_URL, which holds a password",
            f"Set DATABASE_URL to PG_URL with {path} at its end.",
        )
        # The address in PG_URL leads to another database, and its password may not be copied into the file.
        return {"env": "DATABASE_URL"}
    return {"env": "PG_URL"}


def sink_of(env: EnvFile, notes: Notes) -> dict[str, Any]:
    """Return the keys of the sink of a deployment file."""
    scheme = env.get("ELASTICSEARCH_SCHEME") or "http"
    port = _number(env, "ELASTICSEARCH_PORT", notes) or 9200
    url = env.get("ELASTICSEARCH_URL") or f"{scheme}://{env.get('ELASTICSEARCH_HOST') or 'localhost'}:{port}"
    found: dict[str, Any] = {"type": "opensearch", "url": url}
    try:
        parts = urlsplit(url)
        # What stands before the @ may hold a password, and is not written.
        address = parts.netloc.rpartition("@")
        found["url"] = urlunsplit((parts.scheme, address[2], parts.path, "", ""))
        found |= _credentials(env, "ELASTICSEARCH_URL" if address[1] else "", notes)
    except ValueError:
        notes.left(
            env.line("ELASTICSEARCH_URL"), "ELASTICSEARCH_URL is not a URL", "Write https://HOST:PORT."
        )
        found["url"] = "http://localhost:9200"
    return found | dict(_options(env, notes))


def _options(env: EnvFile, notes: Notes) -> Iterator[tuple[str, Any]]:
    """Yield the options of a sink that are not the default."""
    if env.get("ELASTICSEARCH_VERIFY_CERTS").lower() in _NO:
        yield "tls_verify", False
    if certificates := env.get("ELASTICSEARCH_CA_CERTS"):
        yield "ca_file", certificates
    if env.get("ELASTICSEARCH_HTTP_COMPRESS").lower() in _YES:
        yield "gzip", True
    for variable, key in _NUMBERS.items():
        if number := _number(env, variable, notes):
            yield key, number


def _credentials(env: EnvFile, in_url: str, notes: Notes) -> dict[str, Any]:
    """Return how the cluster is logged in to: by references alone."""
    by_user = in_url or next(filter(env.get, ("ELASTICSEARCH_BASIC_AUTH", "ELASTICSEARCH_HTTP_AUTH")), "")
    if by_user:
        notes.left(
            env.line(by_user),
            f"{by_user} holds name and password, and Headrace needs them separately",
            f"Set {_USERNAME} and {_PASSWORD}.",
        )
        return {"username": {"env": _USERNAME}, "password": {"env": _PASSWORD}}
    if env.get("ELASTICSEARCH_API_KEY"):
        notes.left(
            env.line("ELASTICSEARCH_API_KEY"),
            "Headrace takes an API key as one text",
            f'Set {_API_KEY} to "$ELASTICSEARCH_API_KEY_ID:$ELASTICSEARCH_API_KEY".',
        )
        return {"api_key": {"env": _API_KEY}}
    if env.get("ELASTICSEARCH_USER") and env.get("ELASTICSEARCH_PASSWORD"):
        return {"username": env.get("ELASTICSEARCH_USER"), "password": {"env": "ELASTICSEARCH_PASSWORD"}}
    return {}


def note_rest(env: EnvFile, notes: Notes) -> None:
    """Note the variables that have no counterpart."""
    if env.get("PG_DRIVER") in ("pymysql", "mysqldb", "mariadbconnector"):
        notes.left(
            env.line("PG_DRIVER"), "the database is not PostgreSQL", "Headrace reads PostgreSQL alone."
        )
    for name in env.values:
        if name.startswith(_PREFIXES) and name not in _KNOWN and env.get(name):
            notes.left(
                env.line(name),
                f"{name} has no counterpart",
                "docs/guides/configuration.md lists the keys of a sink.",
            )
    if env.get("OPENSEARCH").lower() not in _YES:
        notes.differs(
            env.line("ELASTICSEARCH"),
            "PGSync writes to Elasticsearch; Headrace to OpenSearch, and to Elasticsearch 7.10",
            "docs/guides/sinks.md says more.",
        )


def _number(env: EnvFile, name: str, notes: Notes) -> int:
    """Return a variable as a whole number; 0 where it is absent or wrong."""
    text = env.get(name)
    try:
        return round(float(text)) if text else 0
    except (ValueError, OverflowError):
        notes.left(env.line(name), f"{name} is not a number: it is left out", "Write digits.")
        return 0
