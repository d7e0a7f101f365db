"""Load a deployment file, or report all its mistakes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headrace.config.deployment import Deployment
from headrace.config.problems import Locator, deployment_locator
from headrace.config.secret import Secret
from headrace.config.text_files import is_file, read_text
from headrace.errors import ErrorGroup, HeadraceError, Kind, LocatedError, Place

_AT = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")


def load_deployment(path: Path, environ: Mapping[str, str]) -> Deployment:
    """Load the deployment file `path`; schema paths are made absolute, from the file's folder.

    No variable needs to be set: those that the deployment can use are copied from `environ` for `resolve`.

    Raises:
        ErrorGroup: CONFIG; every mistake of the file.
        HeadraceError: CONFIG, where it cannot be read or is not TOML.
    """
    text = read_text(
        path, "the deployment file", Kind.CONFIG, "Name it with --config, or write one with `headrace init`."
    )
    data = _parse(path, text)
    return _check(deployment_locator(path, text, data), data, path, environ)


def deployment_of(values: Mapping[str, Any], environ: Mapping[str, str]) -> Deployment:
    """Create a deployment from values, as from a file; paths are relative to the working folder.

    Raises:
        ErrorGroup: CONFIG; every mistake, with its key.
    """
    data, path = dict(values), Path("deployment")
    return _check(deployment_locator(path, None, data), data, path, environ)


def _check(locator: Locator, data: dict[str, Any], path: Path, environ: Mapping[str, str]) -> Deployment:
    try:
        deployment = Deployment.model_validate(data, context={"folder": path.parent.absolute()})
    except ValidationError as error:
        # An input may be a password.
        details = error.errors(include_url=False, include_input=False)
        raise ErrorGroup(locator.translate(details)) from None
    if errors := list(_wrong_indexes(locator, deployment)):
        raise ErrorGroup(errors)
    deployment._file = path  # noqa: SLF001 -- known at loading, and not part of the file
    deployment._environment = {  # noqa: SLF001
        name: Secret(environ[name]) for name in sorted(deployment.variables()) if environ.get(name)
    }
    return deployment


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        # tomllib recurses for nested lists.
        raise HeadraceError(
            Kind.CONFIG, f"{path}: nested too deeply", "Write it with fewer levels."
        ) from error
    except ValueError as error:
        match = _AT.search(str(error))
        lines = text.count("\n") + 1
        line, column = (match["line"], match["column"]) if match and match["line"] else (lines, 1)
        raise LocatedError(
            Kind.CONFIG,
            Place(path, int(line), int(column)),
            f"not TOML: {_AT.sub('', str(error))}",
            "A text stands in quotes, a table begins with [name] and a list of indexes with [[index]].",
        ) from error


_INDEX_FILES = ("schema_path", "settings_file", "mappings_file")


def _wrong_indexes(locator: Locator, deployment: Deployment) -> Iterator[HeadraceError]:
    """Yield an error for each name of an index that is taken or bad, and each file that is missing."""
    first: dict[str, int] = {}
    for number, entry in enumerate(deployment.indexes):
        name, what = ("index", number, "name"), f"the index {entry.name!r}"
        before = first.setdefault(entry.name, number)
        if before != number:
            line = locator.line(("index", before, "name"))
            place = f" (first in line {line})" if line else ""
            yield locator.error(name, f"{what} stands twice{place}", "Rename one of them.")
        if entry.name.startswith("_") and not deployment.prefix:
            problem = f"{what} begins with _, which a cluster refuses"
            yield locator.error(name, problem, "Rename it, or set a `prefix`.")
        for field in _INDEX_FILES:
            file = getattr(entry, field)
            if file is not None and not is_file(file):
                key = field.replace("schema_path", "schema")
                yield locator.error(
                    ("index", number, key),
                    f"the {key.removesuffix('_file')} file {file} of {what} is not there",
                    "Correct the path; it counts from the deployment file's folder.",
                )
