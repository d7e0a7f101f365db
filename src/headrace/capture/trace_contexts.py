"""Find the trace contexts that applications write into their transactions.

An application calls `pg_logical_emit_message(true, 'headrace.trace', TRACEPARENT)`. The log of a database may
be full of other programs' messages: only those with our prefix are decoded.
"""

from __future__ import annotations

import numpy as np

from headrace.capture.transactions import Transactions
from headrace.model.trace import CommitContext, parse_traceparent
from headrace.pgoutput.batch import MessageBatch, Numbers
from headrace.pgoutput.columnar import Letters
from headrace.pgoutput.decoder import decode_message
from headrace.pgoutput.messages import LogicalMessage

PREFIX = "headrace.trace"
MESSAGE = ord("M")
MOST_CONTEXTS = 128
"""Contexts that are kept of one batch; as many links may a span have."""

_PREFIX_AT = 10  # after the letter, the flags and the address
_NUL_BYTES = PREFIX.encode() + b"\0"


def find_messages(batch: MessageBatch, letters: Letters, *, header: int = 0) -> Numbers:
    """Return the indices of the logical messages with our prefix.

    Args:
        batch: plugin messages.
        letters: the first byte of each.
        header: bytes between the letter and the message's body: the id of a streamed transaction.
    """
    prefix_at = header + _PREFIX_AT
    found = np.flatnonzero(letters == MESSAGE).tolist()
    ours = [index for index in found if batch.payload(index).startswith(_NUL_BYTES, prefix_at)]
    return np.array(ours, np.int64)


def find_contexts(batch: MessageBatch, letters: Letters, transactions: Transactions) -> list[CommitContext]:
    """Return the first contexts of `batch`, in order, with the commits that they came with.

    A context that the application does not record is left out.

    Raises:
        HeadraceError: PROTOCOL for broken bytes.
    """
    contexts: list[CommitContext] = []
    for index in find_messages(batch, letters).tolist():
        message = decode_message(batch.payload(index))
        if not isinstance(message, LogicalMessage) or not message.transactional:
            continue
        context = parse_traceparent(message.content.decode("ascii", errors="replace").strip())
        if context is not None and not context.is_sampled:
            continue
        place = transactions.place_of(index)
        contexts.append(
            CommitContext(int(transactions.commit_lsn[place]), int(transactions.commit_time[place]), context)
        )
        if len(contexts) == MOST_CONTEXTS:
            break
    return contexts
