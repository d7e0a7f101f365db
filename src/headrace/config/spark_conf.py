"""Read the user's Spark settings from the command line and `spark-defaults.conf`.

A setting of the user is never replaced by one of Headrace. The rules are Spark's own: the command line wins
over the file, which lies in SPARK_CONF_DIR, or in the folder `conf` of SPARK_HOME.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.errors import HeadraceError, Kind

MASTER = "spark.master"
_LOCAL = "local[*]"
_PREFIX = "spark."
_LINE = re.compile(r"(?P<key>[^\s=:]+)(?:\s*[=:]\s*|\s+)(?P<value>.*)")


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """Parse `KEY=VALUE` texts; of several with the same key, the last one wins.

    Raises:
        HeadraceError: USAGE.
    """
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith(_PREFIX) or key == _PREFIX:
            raise HeadraceError(
                Kind.USAGE,
                f"--conf {key} is no setting of Spark",
                "Write --conf KEY=VALUE, where KEY begins with spark.",
            )
        settings[key] = value
    return settings


def given_settings(texts: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the user's settings, of the command line and of the file.

    Args:
        texts: the settings of the command line.
        environ: the environment, which says where the file is.

    Raises:
        HeadraceError: USAGE; CONFIG, where the file cannot be read.
    """
    return {**_read_defaults(environ), **parse_settings(texts)}


def parse_defaults(text: str) -> dict[str, str]:
    """Parse the settings of a `spark-defaults.conf`."""
    lines = (line.strip() for line in text.splitlines())
    matches = (_LINE.fullmatch(line) for line in lines if not line.startswith(("#", "!")))
    return {match["key"]: match["value"] for match in matches if match and match["key"].startswith(_PREFIX)}


def chosen_master(option: str | None, texts: Iterable[str], given: Mapping[str, str]) -> str:
    """Return Spark's master: the option's, else the setting's, else all cores of this machine.

    Raises:
        HeadraceError: USAGE, where the command line names two.
    """
    named = parse_settings(texts).get(MASTER)
    if option is not None and named is not None and option != named:
        raise HeadraceError(
            Kind.USAGE, f"--master {option} and --conf {MASTER}={named} name two masters", "Name one."
        )
    return option or given.get(MASTER) or _LOCAL


def _read_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (str(Path(home) / "conf") if home else "")
    if not folder:
        return {}
    file = Path(folder) / "spark-defaults.conf"
    try:
        return parse_defaults(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise HeadraceError(
            Kind.CONFIG, f"{file} cannot be read: {error}", "Correct it, or set SPARK_CONF_DIR."
        ) from error
