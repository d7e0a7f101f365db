"""A mailbox in the memory of this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from headrace.state.orders import Mailbox


class MemoryMailbox(Mailbox):
    """Orders that no cluster keeps, with the same compare-and-set."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text: str | None = None

    def forget(self) -> None:
        self._text = None

    def _read(self) -> tuple[Mapping[str, Any] | None, Any]:
        text = self._text
        return (None if text is None else json.loads(text)), text

    def _replace(self, body: Mapping[str, Any], document: Any) -> bool:
        with self._lock:
            if self._text != document:
                return False
            self._text = json.dumps(body)
            return True
