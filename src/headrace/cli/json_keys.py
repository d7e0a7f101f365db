"""What each command prints with `--format json`: the keys, as docs/reference/commands.md lists them.

They are stable (docs/versions.md). A command that is not here prints no data; its errors are JSON too.
"""

from __future__ import annotations

from collections.abc import Mapping

_ORDER = (
    "the order: `id` (null where the private address answers at once), `kind`, `index`, `state` (open or "
    "done), `result`"
)

JSON_KEYS: Mapping[str, str] = {
    "adopt": (
        "`name`, `index`, `before` (a list of indexes), `done`, `undo` (the body of a POST to /_aliases, "
        "or null); with --upgraded `system`, `position`, `done`"
    ),
    "check": (
        "`ok`, `ready`, `run`, `findings` (each `level`, `code`, `text`, `file`, `line`, `column`, "
        "`remedy`, `sql`), `setup` (SQL), `coverage`"
    ),
    "convert": (
        "`written` (files), `notes` (each `file`, `line`, `text`, `remedy`, `is_open`), `general`, `next`"
        " (for each deployment file its commands)"
    ),
    "design": "`url`, once the page is served",
    "explain": "`verdict`, `right`, `facts` (each `name`, `value`), `remedy`",
    "indexes": (
        "a list of generations: `index`, `generation`, `state`, `documents`, `bytes`, `created`, `hash`, "
        "`reason`, `ordered`"
    ),
    "init": "`written` (files), `next` (commands)",
    "lag": (
        "`slot`, `bytes`, `seconds`, `retained_bytes`, `confirmed`, `current`, `wal_status`, "
        "`safe_bytes`, `reader`"
    ),
    "log-level": _ORDER,
    "mirror": (
        "check: `tables` (each `table`, `mode`, `size` and more), `publication` and `slot` that will be "
        "made, `waiting`, `left_out`. verify: a list of `table`, `rows`, `right`, `missing`, `surplus`, "
        "`different`, `changing`, `undecided`, `repaired`, `waits_for`, `compared`"
    ),
    "orders": (
        "a list of `id`, `kind`, `index`, `sink`, `options`, `by`, `client`, `asked_at`, `state`, `run`, "
        "`ended_at`, `text`, `result`, `error`"
    ),
    "pause": _ORDER,
    "preview": (
        "the documents, one a line. With --cost: `index`, `documents`, `fields` (each `path`, `type`, "
        "`indexed_as`, `bytes`, `share`, `processed`, `nested`, `most_nested`) and totals"
    ),
    "quarantine": (
        "list: a list of `index`, `id`, `reason`, `position`, `at`, `generation`. retry: `found`, `left` "
        "(such a list). drop: `entries` (such a list), `done`"
    ),
    "reindex": _ORDER,
    "reload": _ORDER,
    "resume": _ORDER,
    "rollback": _ORDER,
    "schema": (
        "show: `index`, `table`, `primary_key`, `hash`, `tables`, `mapping`, `keys`, `more_keys`, "
        "`range`, `routes` (each `table`, `field`, `columns`, `statement`), `old_rows`. json: a JSON "
        "Schema. types: a module, as text"
    ),
    "setup": "`sql`, `warnings`, `done` (false: nothing was changed)",
    "slots": (
        "list: a list of `slot`, `ours`, `plugin`, `temporary`, `failover`, `reader`, `bytes`, `seconds`,"
        " `retained_bytes`, `safe_bytes`, `wal_status`, `lost`, `confirmed`, `current`. drop: `slot`, "
        "`retained_bytes`, `done`"
    ),
    "status": "what `/status` answers; see monitoring.md",
    "teardown": (
        "`sql`, `warnings`, `aliases` (whose indexes are deleted), `done` (false: nothing was changed)"
    ),
    "verify": (
        "`index`, `alias`, `sink`, `generation`, `applied`, `right`, `documents`, and for each kind of "
        "difference `count` and `first`"
    ),
    "wait": "`lsn`, `searchable`, `seconds`",
}
"""By command."""
