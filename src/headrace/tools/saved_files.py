"""Write files of a deployment, after they have been loaded as a run would load them.

Every command that writes such files does so here: none leaves a deployment file or a schema file that the
next command cannot load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.config.load import load_deployment
from headrace.config.text_files import as_if_written, write_files
from headrace.errors import ErrorGroup, HeadraceError, LocatedError
from headrace.pipeline.project import error_list
from headrace.schema.load import load_schema

_DEPLOYMENT, _SCHEMA = ".toml", (".yml", ".yaml")


def save_files(folder: Path, files: Mapping[Path, bytes], environ: Mapping[str, str]) -> None:
    """Write all files, or none where one of them has a mistake; deployment files last.

    Args:
        folder: where they are; it need not exist.
        files: the bytes of each path.
        environ: the environment variables.

    Raises:
        ErrorGroup: CONFIG, SCHEMA: what a run would say of the files.
        HeadraceError: DISK.
    """
    # A new deployment file names schema files that are not on disk yet.
    with as_if_written(files):
        mistakes = [mistake for file in files for mistake in _find_mistakes(file, environ)]
    if mistakes:
        raise ErrorGroup([_not_written(mistake) for mistake in mistakes])
    # A kill between two of them leaves an index that no deployment names, and no index without its schema.
    write_files(folder, dict(sorted(files.items(), key=lambda item: item[0].suffix == _DEPLOYMENT)))


def _find_mistakes(file: Path, environ: Mapping[str, str]) -> Iterator[HeadraceError]:
    """Yield what a run would say of a deployment file or a schema file."""
    try:
        if file.suffix == _DEPLOYMENT:
            load_deployment(file, environ)
        elif file.suffix in _SCHEMA:
            load_schema(file, file.name.partition(".")[0])
    except HeadraceError as error:
        yield from error_list(error)


def _not_written(mistake: HeadraceError) -> HeadraceError:
    if isinstance(mistake, LocatedError):
        problem = f"nothing is written: {mistake.problem}"
        return LocatedError(mistake.kind, mistake.place, problem, mistake.remedy)
    return HeadraceError(mistake.kind, f"nothing is written: {mistake.cause}", mistake.remedy)
