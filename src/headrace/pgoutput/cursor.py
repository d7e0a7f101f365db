"""Read numbers and strings from a message, never past its end."""

from __future__ import annotations

from headrace.errors import HeadraceError, Kind


def broken(what: str, consequence: str = "the replication stream is broken") -> HeadraceError:
    """Return the error for bytes that are no pgoutput message, or none of another binary form."""
    remedy = "Check that nothing between server and Headrace alters the stream, and report this."
    return HeadraceError(Kind.PROTOCOL, f"{consequence}: {what}", remedy)


class Cursor:
    """Reads one message from left to right; a read past the end raises PROTOCOL."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def uint8(self) -> int:
        """Read one byte."""
        return int.from_bytes(self.take(1))

    def uint16(self) -> int:
        """Read two bytes, unsigned."""
        return int.from_bytes(self.take(2))

    def int32(self) -> int:
        """Read four bytes, signed."""
        return int.from_bytes(self.take(4), signed=True)

    def uint32(self) -> int:
        """Read four bytes, unsigned."""
        return int.from_bytes(self.take(4))

    def int64(self) -> int:
        """Read eight bytes, signed."""
        return int.from_bytes(self.take(8), signed=True)

    def uint64(self) -> int:
        """Read eight bytes, unsigned."""
        return int.from_bytes(self.take(8))

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
