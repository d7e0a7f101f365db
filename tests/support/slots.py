"""A slot and its publication, prepared as a source prepares them."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.postgres.provision import prepare_slot
from headrace.postgres.publication_filters import PublicationRequirements, Selections


def ensure_slot(
    url: str,
    *,
    slot: str,
    publication: str,
    tables: Sequence[TableName],
    create: bool,
    selections: Selections | None = None,
) -> Lsn:
    """Prepare a slot, with only `selections` required; return its confirmed position."""
    return prepare_slot(
        url,
        slot=slot,
        publication=publication,
        tables=tables,
        create=create,
        requirements={
            table: PublicationRequirements(selection=selection)
            for table, selection in (selections or {}).items()
        },
    ).confirmed
