"""Read numbers and strings from a message, never past its end."""

from __future__ import annotations

import struct

from headrace.errors import HeadraceError, Kind


def broken(what: str) -> HeadraceError:
    """Return the error for bytes that are no pgoutput message."""
    return HeadraceError(
        Kind.PROTOCOL,
        f"the replication stream is broken: {what}",
        "Check that nothing between server and Headrace alters the stream, and report this.",
    )


class Cursor:
    """Reads one message from left to right; a read past the end raises PROTOCOL."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _number(self, form: struct.Struct) -> int:
        try:
            (value,) = form.unpack_from(self._data, self._position)
        except struct.error as error:
            raise broken(f"a message of {len(self._data)} bytes ends too early") from error
        self._position += form.size
        return int(value)

    def uint8(self) -> int:
        """Read one byte."""
        return self._number(_UINT8)

    def uint16(self) -> int:
        """Read two bytes, unsigned."""
        return self._number(_UINT16)

    def int32(self) -> int:
        """Read four bytes, signed."""
        return self._number(_INT32)

    def uint32(self) -> int:
        """Read four bytes, unsigned."""
        return self._number(_UINT32)

    def int64(self) -> int:
        """Read eight bytes, signed."""
        return self._number(_INT64)

    def uint64(self) -> int:
        """Read eight bytes, unsigned."""
        return self._number(_UINT64)

    def take(self, size: int) -> bytes:
        """Read the next `size` bytes."""
        end = self._position + size
        # A negative length would read backwards.
        if size < 0 or end > len(self._data):
            raise broken(f"a message of {len(self._data)} bytes ends too early")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def text(self) -> str:
        """Read a NUL-terminated string."""
        end = self._data.find(b"\0", self._position)
        if end < 0:
            raise broken("a name does not end")
        raw = self._data[self._position : end]
        self._position = end + 1
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise broken("a name is not UTF-8") from error

    def letter(self) -> str:
        """Read one byte as a character."""
        return chr(self.uint8())

    def finish(self) -> None:
        """Raise PROTOCOL if bytes are left."""
        left = len(self._data) - self._position
        if left:
            raise broken(f"{left} bytes are left after a message")


_UINT8 = struct.Struct(">B")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_UINT64 = struct.Struct(">Q")
