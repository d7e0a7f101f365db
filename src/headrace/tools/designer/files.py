"""Read and write the files of a deployment that is being designed; nothing that is there is lost.

A file is replaced as a whole or stays as it is: only one that is still as it was loaded, by one that loads.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.config.deployment import Deployment
from headrace.config.load import load_deployment
from headrace.config.suggestion import suggest_deployment, suggest_index, suggest_index_name, suggest_slot
from headrace.config.text_files import read_text
from headrace.errors import HeadraceError, Kind
from headrace.schema.json_schema import EDITOR_FILE, schema_text
from headrace.tools.saved_files import save_files

CONFIG = "headrace.toml"
_SUFFIXES = (".yml", ".yaml")
_BOM = b"\xef\xbb\xbf"


class ChangedMeanwhileError(HeadraceError):
    """A file on disk is not what was loaded any more."""


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A schema file as it was loaded, or is to be saved.

    Attributes:
        index: the name of its index.
        file: its path, relative to the folder.
        text: its text, lines ending in a newline alone.
        fingerprint: of its bytes on disk; empty where there is no such file.
    """

    index: str
    file: str
    text: str
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class DeploymentFolder:
    """The folder of a deployment file and its schema files.

    Attributes:
        folder: need not exist yet.
        url: the database, for a new deployment file.
        sink: the cluster's URL, for a new deployment file.
        environ: the environment variables.
    """

    folder: Path
    url: str
    sink: str
    environ: Mapping[str, str]

    @property
    def config(self) -> Path:
        """The deployment file."""
        return self.folder / CONFIG

    def deployment(self) -> Deployment | None:
        """Load the deployment file; None where there is none.

        Raises:
            HeadraceError: CONFIG.
        """
        return load_deployment(self.config, self.environ) if self.config.exists() else None

    def files(self) -> dict[str, str]:
        """Return the schema files that are there, each with its index: the deployment's, then the others.

        Raises:
            HeadraceError: CONFIG.
        """
        deployment = self.deployment()
        entries = () if deployment is None else deployment.indexes
        known = {os.path.relpath(entry.schema_path, self.folder): entry.name for entry in entries}
        for file in sorted(self.folder.glob("*.schema.y*ml")):
            if file.name not in known:
                known[file.name] = suggest_index_name(file.name.partition(".")[0], known.values())
        return known

    def load(self, file: str) -> SchemaFile:
        """Load a schema file.

        Raises:
            HeadraceError: USAGE: no schema file of this folder is called so; SCHEMA: it cannot be read, or is
                not UTF-8; DISK.
        """
        path = self._path(file)
        # Before the text: where the file changes in between, a save is refused, and nothing is lost.
        before = fingerprint(_read(path))
        text = read_text(path, "the schema file", Kind.SCHEMA).replace("\r\n", "\n")
        return SchemaFile(self.files().get(file, ""), file, text, before)

    def save(self, schema: SchemaFile, database: str = "", *, force: bool = False) -> tuple[list[Path], str]:
        """Save a schema file; add its index to the deployment file, which is written where there is none.

        Args:
            schema: with the fingerprint of what it was made from.
            database: the database's name, for the slot of a new deployment file.
            force: whether to replace a file that has changed meanwhile.

        Returns:
            The files that were written, and the new fingerprint.

        Raises:
            ChangedMeanwhileError: the schema file is not what was loaded.
            ErrorGroup: CONFIG, SCHEMA: what a run would say of the new files.
            HeadraceError: USAGE: the index has another schema file; CONFIG; DISK.
        """
        path = self._path(schema.file)
        before = _read(path)
        if not force and fingerprint(before) != schema.fingerprint:
            if before is None:
                what = "has been removed meanwhile"
            else:
                what = "has been changed on disk meanwhile" if schema.fingerprint else "exists already"
            raise ChangedMeanwhileError(Kind.USAGE, f"{path} {what}", "Load it again, or replace it.")
        new = {path: _encode(schema.text, before)}
        if (config := self._config_with(schema, database)) is not None:
            new[self.config] = config.encode()
        if not (self.folder / EDITOR_FILE).exists():
            new[self.folder / EDITOR_FILE] = schema_text().encode()
        save_files(self.folder, new, self.environ)
        return list(new), fingerprint(new[path])

    def _config_with(self, schema: SchemaFile, database: str) -> str | None:
        """Return the deployment file with the index; None where it has it."""
        deployment = self.deployment()
        if deployment is None:
            indexes, slot = {schema.index: schema.file}, suggest_slot(database)
            return suggest_deployment(self.url, indexes, opensearch_url=self.sink, slot=slot)
        path = self._path(schema.file).absolute()
        paths = {entry.name: entry.schema_path for entry in deployment.indexes}
        # The index is there already, perhaps under another name than the file suggests.
        if any(os.path.normpath(known) == os.path.normpath(path) for known in paths.values()):
            return None
        if schema.index in paths:
            raise HeadraceError(
                Kind.USAGE,
                f"{self.config} has an index {schema.index!r} already",
                "Choose another name, or name another --folder.",
            )
        known = (_read(self.config) or b"").decode()
        return known.rstrip("\n") + "\n" + suggest_index(schema.index, schema.file)

    def _path(self, file: str) -> Path:
        """Return the path of a schema file: one of the deployment's, or one of the folder's own."""
        is_own = (
            # The page names the file, and must not lead out of the folder.
            file.endswith(_SUFFIXES) and Path(file).name == file and "\\" not in file and "\0" not in file
        )
        if not is_own and file not in self.files():
            raise HeadraceError(
                Kind.USAGE, f"{file!r} is not the name of a schema file", "Write NAME.schema.yml."
            )
        return self.folder / file


def fingerprint(data: bytes | None) -> str:
    """Return what tells two contents of a file apart; empty for no file."""
    return "" if data is None else hashlib.sha256(data).hexdigest()


def _encode(text: str, before: bytes | None) -> bytes:
    """Return a text as bytes, with the line ends and the byte order mark that the file had."""
    if before is not None and b"\n" in before and before.count(b"\r\n") == before.count(b"\n"):
        text = text.replace("\n", "\r\n")
    return (_BOM if before is not None and before.startswith(_BOM) else b"") + text.encode()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HeadraceError(
            Kind.DISK, f"{path} cannot be read: {error.strerror}", "Make it readable."
        ) from error
