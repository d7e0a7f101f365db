"""Exchange a stream's state between processes of one machine, in small files that are replaced atomically.

The reader of the log runs in a process of Spark's that only sees changes and batches. The driver writes how
far the reader may confirm, which position a client waits for, a new plan for later batches, whether the
stream is paused, and which session holds its lock. The reader writes where the last finished batch ended,
which error keeps it from reading, that Spark still asks it for batches, and from where a plan holds.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError
from headrace.model.lsn import Lsn, format_lsn, parse_lsn
from headrace.postgres.locks import LockSession


@dataclass(frozen=True, slots=True)
class OfferedPlan:
    """A plan for later batches.

    Attributes:
        plan: the plan as the text of an option, in one line.
        settings: settings with which the log is read from there, in one line; empty: as before.
    """

    plan: str
    settings: str = ""


@dataclass(frozen=True, slots=True)
class SignalFiles:
    """The signals between the driver and the reader of one stream.

    Attributes:
        folder: holds the files; both processes have access.
    """

    folder: Path

    # What the driver tells the reader.

    def set_confirm_limit(self, position: Lsn) -> None:
        """Allow confirmation up to `position` (bytes); the limit holds when this returns.

        Raises:
            OSError: the file cannot be written; the old limit still holds.
        """
        # Not suppressed, unlike the others: who raises the limit must know that it holds.
        self._write("confirm_limit", format_lsn(position))

    def confirm_limit(self) -> Lsn:
        """Return up to where the slot may be confirmed (bytes); 0 where no limit was set."""
        text = self._read("confirm_limit")
        return 0 if text is None else parse_lsn(text)

    def request_lsn(self, lsn: Lsn) -> None:
        """Tell the reader that a client waits for `lsn`; a failed write is ignored.

        A position gets a batch of its own only where the server has reached it without changes.
        """
        with contextlib.suppress(OSError):
            self._write("requested_lsn", format_lsn(lsn))

    def requested_lsn(self) -> Lsn:
        """Return the position that was requested last; 0 where none was."""
        with contextlib.suppress(OSError, ValueError):
            text = self._read("requested_lsn")
            return 0 if text is None else parse_lsn(text)
        return 0

    def offer_plan(self, number: int, offered: OfferedPlan) -> None:
        """Offer a plan for later batches; each has a higher number than the one before."""
        # Number, plan and settings in one file: a reader never sees a new plan with old settings.
        self._write("plan_reload", f"{number}\n{offered.plan}\n{offered.settings}")

    def newer_plan(self, number: int) -> tuple[int, OfferedPlan] | None:
        """Return the plan that was offered last, with its number; None if that is not above `number`."""
        try:
            with (self.folder / "plan_reload").open() as file:
                offered = int(file.readline())
                if offered <= number:
                    return None
                return offered, OfferedPlan(file.readline().rstrip("\n"), file.readline())
        except FileNotFoundError:
            return None

    def set_paused(self, *, paused: bool) -> None:
        """Let the reader plan no batch, or again; a failed write is ignored, as the driver repeats it."""
        self._flag("paused", is_set=paused)

    def is_paused(self) -> bool:
        """Whether the reader must plan no batch."""
        return (self.folder / "paused").exists()

    def set_lock_session(self, session: LockSession) -> None:
        """Name the session of the driver that holds the deployment's lock; a failed write is ignored."""
        with contextlib.suppress(OSError):
            self._write("lock_session", f"{session.pid} {session.began}")

    def lock_session(self) -> LockSession | None:
        """Return the session without which the slot must not be claimed; None where none was named."""
        with contextlib.suppress(OSError, ValueError):
            pid, began = (self._read("lock_session") or "").split()
            return LockSession(int(pid), began)
        return None

    # What the reader tells the driver.

    def set_batch_end(self, end: dict[str, Any]) -> None:
        """Report that every batch up to `end` is done, an offset as Spark stores it; holds on return."""
        self._write("batch_end", json.dumps(end))

    def batch_end(self) -> dict[str, Any] | None:
        """Return where the last finished batch ended; None where none has finished."""
        text = self._read("batch_end")
        return None if text is None else dict(json.loads(text))

    def set_planned_end(self, end: dict[str, Any]) -> None:
        """Report where the batch ends that is planned now, an offset as Spark stores it; holds on return."""
        self._write("planned_end", json.dumps(end))

    def planned_end(self) -> dict[str, Any] | None:
        """Return where the batch ends that was planned last; None where none was."""
        text = self._read("planned_end")
        return None if text is None else dict(json.loads(text))

    def accept_plan(self, number: int, position: Lsn) -> None:
        """Report that everything before `position` is applied, and that later batches use this plan."""
        self._write("plan_accepted", f"{number} {format_lsn(position)}")

    def accepted_plan(self) -> tuple[int, Lsn] | None:
        """Return the number of the plan in use, and the position (bytes) from which it holds."""
        text = self._read("plan_accepted")
        if text is None:
            return None
        number, position = text.split()
        return int(number), parse_lsn(position)

    def report_error(self, error: HeadraceError) -> None:
        """Report that reading failed with `error` and is tried again; a failed write is ignored."""
        with contextlib.suppress(OSError):
            self._write("reader_status", error.for_transport())

    def clear_error(self) -> None:
        """Report that reading works again."""
        (self.folder / "reader_status").unlink(missing_ok=True)

    def reader_error(self) -> HeadraceError | None:
        """Return the error that keeps the reader from reading; None while it reads."""
        with contextlib.suppress(OSError):
            text = self._read("reader_status")
            return None if text is None else HeadraceError.find(text)
        return None

    def set_invisible(self, *, waits: bool) -> None:
        """Report whether changes wait until their transactions are visible; a failed write is ignored."""
        self._flag("invisible", is_set=waits)

    def is_invisible(self) -> bool:
        """Return whether changes have arrived whose transactions are not visible yet."""
        return (self.folder / "invisible").exists()

    def beat(self) -> None:
        """Note that Spark asks the reader for a batch; a failed write is ignored.

        Spark asks again when a batch is done, and several times a second while there is none. So a reader
        that has not been asked for long is in the middle of a batch, or hangs.
        """
        self._mark("beat")

    def seconds_since_beat(self) -> float | None:
        """Return the time since the last beat (seconds); None where there was none yet."""
        at = self._marked("beat")
        return None if at is None else time.monotonic() - at

    def mark_planned(self) -> None:
        """Note that the tasks of a batch are planned; a failed write is ignored."""
        self._mark("planned")

    def is_planned(self) -> bool:
        """Return whether the tasks of a batch were planned since the last beat."""
        beat, planned = self._marked("beat"), self._marked("planned")
        return beat is not None and planned is not None and planned >= beat

    def _mark(self, name: str) -> None:
        """Note that something happens now; a failed write is ignored."""
        with contextlib.suppress(OSError):
            self._write(name, str(time.monotonic()))  # monotonic: the system time can be changed

    def _marked(self, name: str) -> float | None:
        """Return when something happened last (monotonic seconds); None where it did not yet."""
        with contextlib.suppress(OSError):
            text = self._read(name)
            return None if text is None else float(text)
        return None

    def _flag(self, name: str, *, is_set: bool) -> None:
        """Create or remove an empty file; a failed write is ignored."""
        file = self.folder / name
        with contextlib.suppress(OSError):
            if is_set:
                file.touch()
            else:
                file.unlink(missing_ok=True)

    def _write(self, name: str, text: str) -> None:
        """Replace the content of a file atomically."""
        new = self.folder / f"{name}.new"
        new.write_text(text)
        # A reader sees the old text or the new one, and a kill between the two leaves the old one.
        os.replace(new, self.folder / name)  # noqa: PTH105 - atomic

    def _read(self, name: str) -> str | None:
        try:
            return (self.folder / name).read_text()
        except FileNotFoundError:
            return None
