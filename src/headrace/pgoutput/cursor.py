"""Read numbers and strings from a message, never past its end."""

from __future__ import annotations

import struct

from headrace.errors import HeadraceError, Kind
from headrace.pgoutput.messages import UNCHANGED, Binary, Row, Value

_TEXT, _BINARY, _NULL, _UNCHANGED = b"tbnu"


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

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self._position = position

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

    def row(self) -> Row:
        """Read a row: a count and as many values.

        It is one loop without calls, because every value of a row that is not decoded by columns passes it.
        """
        data, count = self._data, self.uint16()
        position, size = self._position, len(self._data)
        values: list[Value] = []
        for _ in range(count):
            kind = data[position] if position < size else None
            position += 1
            if kind in {_TEXT, _BINARY}:
                begin = position + 4
                position = begin + int.from_bytes(data[position:begin])
                # A length is unsigned here, and a broken one may lead behind the message.
                if not begin <= position <= size:
                    raise broken(f"a message of {size} bytes ends too early")
                value = data[begin:position]
                values.append(value if kind == _TEXT else Binary(value))
            elif kind == _NULL:
                values.append(None)
            elif kind == _UNCHANGED:
                values.append(UNCHANGED)
            elif kind is None:
                raise broken(f"a message of {size} bytes ends too early")
            else:
                raise broken(f"unknown value kind {chr(kind)!r}")
        self._position = position
        return tuple(values)

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return len(self._data) - self._position

    def finish(self) -> None:
        """Raise PROTOCOL if bytes are left."""
        if self.left:
            raise broken(f"{self.left} bytes are left after a message")


_UINT8 = struct.Struct(">B")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_UINT64 = struct.Struct(">Q")
