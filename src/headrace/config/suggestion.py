"""What would a good first deployment file be? Never with a password in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

_PASSWORD = re.compile(r"(?:^|[\s?&])(?:ssl)?password\s*=", re.IGNORECASE)


def suggest_deployment(
    database_url: str, indexes: Mapping[str, str], *, opensearch_url: str = "http://localhost:9200"
) -> str:
    """A deployment file, as TOML text.

    Args:
        database_url: the database; where it holds a password, the file refers to DATABASE_URL instead.
        indexes: the schema file of each index, relative to the deployment file.
        opensearch_url: the cluster; its credentials, if any, become references.
    """
    if holds_password(database_url):
        connection = '{ env = "DATABASE_URL" }  # it holds a password, so it stays out of this file'
    else:
        connection = _text(database_url)
    url, credentials = _without_credentials(opensearch_url)
    lines = [
        "[source]",
        'type = "postgres"',
        f"connection_url = {connection}",
        "",
        "[sinks.primary]",
        'type = "opensearch"',
        f"url = {_text(url)}",
    ]
    if credentials:
        lines.append('username = { env = "PRIMARY_OPENSEARCH_USERNAME" }')
        lines.append('password = { env = "PRIMARY_OPENSEARCH_PASSWORD" }')
    for name, schema in indexes.items():
        lines += ["", "[[index]]", f"name = {_text(name)}", f"schema = {_text(schema)}", "enabled = true"]
    return "\n".join(lines) + "\n"


def holds_password(url: str) -> bool:
    """Whether a connection string, URL or keywords, holds a password; in doubt, it does."""
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


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
