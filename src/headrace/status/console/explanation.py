"""What is said about one document: why it is in an index, or why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headrace.status.console.events import Tone


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known about one document, in words; no values of its row are among them.

    Attributes:
        verdict: why the document is, or is not, in the index; one sentence.
        facts: what was found, by name.
        remedy: what to do; empty where nothing is to be done.
        tone: how that is shown.
        right: whether the index shows what the database says: the document of now, or rightly none.
    """

    verdict: str
    facts: tuple[tuple[str, str], ...] = ()
    remedy: str = ""
    tone: Tone = "plain"
    right: bool = False


class Explains(Protocol):
    """Says why a document is, or is not, in an index; called from several threads."""

    def explain(self, index: str, id_: str) -> Explanation:
        """Return what is known of the document.

        Raises:
            HeadraceError: USAGE for an unknown index; an error of the database or the cluster.
        """
        ...
