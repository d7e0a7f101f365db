"""Keep the classes of a Java program in an archive: its next starts map them instead of reading jars.

Java 17 writes a class-data sharing archive, Java 25 an AOT cache, when a recording program ends. Java itself
checks that an archive fits its jars and options, and starts without it where it does not (decision 0095).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.config.cache import cache_folder
from headrace.config.java import Java

_SHARED = ("ArchiveClassesAtExit", "SharedArchiveFile")
_SHARED_IN = 17
_AOT = ("AOTCacheOutput", "AOTCache")
_AOT_SINCE = 25
_NEW = ".new"
_ARCHIVE = ".classes"
_UNUSED_SECONDS = 30 * 86_400


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one program for one Java; it may not exist yet.

    Attributes:
        path: its file, in the cache folder.
        record: the name of Java's option that writes an archive.
        use: the name of the option that reads one.
    """

    path: Path
    record: str
    use: str

    @property
    def exists(self) -> bool:
        """Whether it has been recorded."""
        return self.path.is_file()

    def options(self) -> str:
        """Return the option of Java that uses it, and note its use; nothing where there is none yet."""
        if not self.exists:
            return ""
        with contextlib.suppress(OSError):  # somebody else's, or read-only
            self.path.touch()
        return _option(self.use, self.path)

    @contextlib.contextmanager
    def recording(self) -> Iterator[str | None]:
        """Yield the option of Java that records it; the program must have ended when the context is left.

        Yields None while another process records it.

        Raises:
            OSError: the cache folder cannot be written to.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            for left in self.path.parent.glob(f"{self.path.stem}.*{_NEW}"):
                shutil.rmtree(left, ignore_errors=True)  # of a recording that was killed
            with tempfile.TemporaryDirectory(_NEW, f"{self.path.stem}.", self.path.parent) as folder:
                new = Path(folder) / self.path.name
                yield _option(self.record, new)
                if new.is_file():
                    new.replace(self.path)
                    self._remove_unused()

    def _remove_unused(self) -> None:
        """Remove archives that nothing has used for a month: of other versions and folders."""
        for other in self.path.parent.glob(f"*{_ARCHIVE}"):
            with contextlib.suppress(OSError):
                if time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
                    other.unlink()
                    other.with_suffix(".lock").unlink(missing_ok=True)


def class_archive(
    java: Java, program: str, installed: str, environ: Mapping[str, str]
) -> ClassArchive | None:
    """Return the archive of a program; None where this version of Java cannot make use of one.

    Java 21 refuses an archive where the manifest of a jar names other jars, as of Spark's some do.

    Args:
        java: what runs the program.
        program: its name, for the file's.
        installed: what tells this installation from others that share the cache: version, folder, options.
        environ: the environment variables.
    """
    if java.major == _SHARED_IN:
        record, use = _SHARED
    elif java.major >= _AOT_SINCE:
        record, use = _AOT
    else:
        return None
    key = hashlib.sha256(f"{java.home}\n{installed}".encode()).hexdigest()[:16]
    name = f"{program}-java{java.major}-{key}{_ARCHIVE}"
    return ClassArchive(cache_folder(environ) / name, record, use)


def _option(name: str, path: Path) -> str:
    option = f"-XX:{name}={os.fspath(path)}"
    return f'"{option}"' if " " in option else option  # Spark's launcher splits options at blanks
