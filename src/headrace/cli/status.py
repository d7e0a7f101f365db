"""`headrace status`: show what a running pipeline says of itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import urllib3

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.config.load import load_deployment
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.units import duration, size
from headrace.sinks.opensearch import Client
from headrace.state.lease import read_slot_lease
from headrace.status.backfill_text import describe_backfill
from headrace.status.board import IndexStatus
from headrace.status.phases import Phase
from headrace.status.protection import EVERYWHERE

_ANSWER_SECONDS = 5.0
_LEASE_SECONDS = 4.0
_REMEDY = "Name the address that `headrace run --public-address` was given."


def show_status(context: CommandContext, address: str | None) -> bool:
    """Print the status of the run at a public address; return whether it is ready.

    Args:
        context: the deployment, whose run is asked for where no address is given.
        address: `HOST:PORT`; None: the one that the run has noted in the cluster, else the file's.

    Raises:
        HeadraceError: CONFIG; CONNECTION: no run answers there, or none runs; AUTHENTICATION.
    """
    status = _ask_run(context) if address is None else _ask(address)
    if context.as_json:
        terminal.data(status)
    else:
        for line in _lines(status):
            terminal.answer(line)
        rows = [_row(index) for index in status["indexes"]]
        terminal.table(("index", "state", "documents", "generation"), rows, right=(2,))
        for warning in status["warnings"]:
            terminal.warn(warning)
    return bool(status["ready"])


def _ask_run(context: CommandContext) -> dict[str, Any]:
    """Return what the run says at the address that it has noted in its lease.

    The file's is the next best: where the cluster does not answer, or no run has noted one.
    """
    server = load_deployment(context.config, context.environ).server
    endpoints, key = context.open_endpoints()
    # A person waits: a cluster that is away is told after one try, not after as many as a run makes.
    quick = Client(endpoints.keeps_state.with_timeout(_LEASE_SECONDS), read_attempts=1)
    try:
        with contextlib.closing(quick):
            lease = read_slot_lease(quick, key)
    except HeadraceError as error:
        if error.retry is not Retry.BACK_OFF:
            raise
        remedy = f"The cluster, which knows where the run is, does not answer either. {_REMEDY}"
        return _ask(server.public_address, remedy)
    if lease.address:
        return _ask(lease.address)
    if "public_address" in server.model_fields_set:
        return _ask(server.public_address)
    if lease.holder is not None:
        remedy = "Start it with --public-address; `headrace lag` and `headrace indexes` work without."
        raise HeadraceError(Kind.CONNECTION, f"the run ({lease.holder}) serves no status", remedy)
    remedy = "Start `headrace run`; `headrace lag` and `headrace indexes` work without a run."
    raise HeadraceError(Kind.CONNECTION, f"no run is active for {key}", remedy)


def _ask(address: str, remedy: str = _REMEDY) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    url = f"http://{EVERYWHERE.get(host, host)}:{port}/status"
    try:
        # A redirect would lead to a server that nobody has named.
        answer = urllib3.request("GET", url, retries=False, timeout=_ANSWER_SECONDS, redirect=False)
        if answer.status == HTTPStatus.MISDIRECTED_REQUEST:
            cause = f"the server at {address} does not accept the host name {host}"
            remedy = "Ask by an IP address, or give the run this name by --public-hosts."
            raise HeadraceError(Kind.CONNECTION, cause, remedy)
        found = answer.json()
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise HeadraceError(Kind.CONNECTION, f"no run answers at {address}", remedy) from error
    keys = found.keys() if isinstance(found, dict) else set()
    if {"phase", "tables", "slot"} <= keys:
        remedy = f"Its tables stand at {url}; `headrace slots` shows how far its slot is behind."
        raise HeadraceError(Kind.USAGE, f"at {address} is a mirror, not a run", remedy)
    if not {"phase", "ready", "indexes"} <= keys:
        raise HeadraceError(Kind.CONNECTION, f"the server at {address} is not a run of Headrace", _REMEDY)
    return dict(found)


def _lines(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the state of the run, how far it is behind, and what keeps it from being ready."""
    paused, reason = status["paused"], status["reason"]
    phase = "paused" if paused else status["phase"]
    if status["ready"] and phase == Phase.BACKFILLING:
        phase = "ready; a new generation is being backfilled"
    yield phase if reason in (None, phase) else f"{phase}: {reason.removeprefix(f'{phase}: ')}"
    lag = status["lag"]
    if lag["bytes"] is not None:
        late = "" if lag["seconds"] is None else f", {duration(lag['seconds'])}"
        yield f"{size(lag['bytes'])} of log behind{late}"


_PROGRESS = ("documents", "ranges_done", "ranges_total", "documents_per_second", "seconds_left")


def _row(index: Mapping[str, Any]) -> tuple[str, str, str, str]:
    held = index["documents"] if index["held"] is None else index["held"]
    is_live = index["phase"] == "live"
    if index["building"] is not None:
        # A run of an older version may say less of a backfill.
        known = {name: index[name] for name in _PROGRESS if name in index}
        state = f"backfilling: {describe_backfill(IndexStatus(index['name'], **known))}"
    elif index["error"] is not None:
        state = f"{'served' if is_live else 'waits'}: {index['error']}"
    else:
        state = "served" if is_live else index["phase"]
    return index["name"], state, "" if held is None else f"{held:,}", index["generation"] or ""
