"""Write a first deployment file, never with a password in it, and names that a deployment file takes."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit, urlunsplit

_PASSWORD = re.compile(r"(?:^|[\s?&])(?:ssl)?password\s*=", re.IGNORECASE)

_MAX_READABLE_LENGTH = 40
_MAX_INDEX_LENGTH = 56
"""Of the 63 that a name may have; the rest is for a number."""


def suggest_deployment(
    database_url: str,
    indexes: Mapping[str, str],
    *,
    opensearch_url: str = "http://localhost:9200",
    slot: str = "headrace",
    publication: str = "",
) -> str:
    """Return a deployment file, as TOML text.

    Args:
        database_url: the database; where it holds a password, the file refers to DATABASE_URL instead.
        indexes: the schema file of each index, relative to the deployment file.
        opensearch_url: the cluster; its credentials, if any, become references.
        slot: the name of the slot, under which the cluster keeps the deployment's state.
        publication: its name; left out, that of the slot.
    """
    if holds_password(database_url):
        connection = '{ env = "DATABASE_URL" }  # it holds a password, so it stays out of this file'
    else:
        connection = write_toml_text(database_url)
    url, credentials = _without_credentials(opensearch_url)
    lines = [
        "[source]",
        'type = "postgres"',
        f"connection_url = {connection}",
        f"slot = {write_toml_text(slot)}  # no two deployments of a cluster have the same",
        f"publication = {write_toml_text(publication or slot)}",
        "",
        "[sinks.primary]",
        'type = "opensearch"',
        f"url = {write_toml_text(url)}",
    ]
    if credentials:
        lines.append('username = { env = "PRIMARY_OPENSEARCH_USERNAME" }')
        lines.append('password = { env = "PRIMARY_OPENSEARCH_PASSWORD" }')
    return "\n".join(lines) + "\n" + "".join(suggest_index(*index) for index in indexes.items())


def suggest_index(name: str, schema: str) -> str:
    """Return an index of a deployment file, as TOML text to append to the file."""
    files = f"name = {write_toml_text(name)}\nschema = {write_toml_text(schema)}"
    return f"\n[[index]]\n{files}\nenabled = true\n"


def suggest_index_name(text: str, taken: Collection[str] = ()) -> str:
    """Return a name of an index like `text` that a deployment file takes and that is not taken."""
    name = re.sub(r"[^a-z0-9_]+", "_", text.lower()).lstrip("_") or "documents"
    return unused_name(f"documents_{name}" if name[0].isdigit() else name, taken)


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return a name of an index, shortened to what it may have, with a number where it is taken."""
    base = name = name[:_MAX_INDEX_LENGTH]
    number = 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name


def suggest_slot(database: str) -> str:
    """Return a unique name for a deployment's slot: the database's name with a random ending."""
    readable = re.sub(r"[^a-z0-9]+", "_", database.lower()).strip("_")[:_MAX_READABLE_LENGTH]
    return "_".join(filter(None, ("headrace", readable, secrets.token_hex(3))))


def holds_password(url: str) -> bool:
    """Return whether a connection string, URL or keywords, holds a password; in doubt, True."""
    if _PASSWORD.search(url):
        return True
    try:
        return "://" in url and urlsplit(url).password is not None
    except ValueError:
        return True


def _without_credentials(url: str) -> tuple[str, bool]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "http://localhost:9200", False
    address = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, address[2], parts.path, "", "")), bool(address[1])


def write_toml_text(value: str) -> str:
    """Return a text in TOML's quotes."""
    # TOML's escapes are JSON's; it wants one more character escaped, and has no lone surrogates.
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return text.encode(errors="replace").decode()
