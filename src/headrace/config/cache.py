"""Locate the cache folder, for files that can always be fetched or created again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.errors import HeadraceError, Kind


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return `$XDG_CACHE_HOME/headrace`, else `~/.cache/headrace`; it is not created.

    Raises:
        HeadraceError: CONFIG, where there is no home folder.
    """
    base = environ.get("XDG_CACHE_HOME", "")
    if base.startswith("/"):  # the XDG specification ignores relative paths
        return Path(base) / "headrace"
    home = environ.get("HOME", "")
    try:
        return (Path(home) if home else Path.home()) / ".cache" / "headrace"
    except RuntimeError as error:
        raise HeadraceError(
            Kind.CONFIG, "there is no home folder for the cache", "Set XDG_CACHE_HOME to a folder."
        ) from error
