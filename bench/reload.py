"""How long do other indexes pause for a changed schema file? `python bench/reload.py [--users N] [--quick]`.

Beside 200 commits a second a field of the orders is taken out of their schema file and put back, each time
with a reload. Meanwhile the name of one user changes all the time; the pause is the longest time in which the
document of that user does not, up to the swap of the orders.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable

import urllib3

from harness import report
from harness.deployment import PREFIX, Deployment, shop
from harness.pace import UPDATE, loaded, some_users
from headrace.postgres.connection import connect, execute
from support.pauses import Pauses, in_thread

BAR_SECONDS = 5.0
RATE = 200
ROUNDS = 4
FIELD = "  - text: note\n    required: false\n"
_EVERY_SECONDS = 0.02
_WITHIN = 600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (10,000)")
    parser.add_argument("--quick", action="store_true", help="1,000 users, 2 reloads instead of 4")
    given = parser.parse_args()
    users = given.users or (1_000 if given.quick else 10_000)
    report.machine()
    with shop(users, ready_within=900) as deployment:
        deployment.run.start()
        deployment.run.wait_ready()
        [user] = some_users(deployment, 1)
        with loaded(deployment, users, RATE), in_thread(lambda stop: rename(deployment, user, stop)):
            pauses = [pause_of_reload(deployment, user) for _ in range(2 if given.quick else ROUNDS)]
        report.machine()
        deployment.run.terminate()
    report.table(
        ("pause of untouched indexes", "seconds"),
        [(f"reload {n + 1}", f"{p:.2f}") for n, p in enumerate(pauses)],
    )
    sys.exit(not report.result("reload", BAR_SECONDS / max(pauses), 1.0))


def pause_of_reload(deployment: Deployment, user: int) -> float:
    """The longest pause of a user's document while the schema file of the orders is changed and taken up."""
    schema = deployment.config.parent / "orders.schema.yml"
    text = schema.read_text()
    changed = (
        text.replace(FIELD, "") if FIELD in text else text.replace("  - constant:", f"{FIELD}  - constant:")
    )
    pauses = Pauses(named(deployment, user))
    before = served(deployment)
    with pauses.measuring():
        schema.write_text(changed)
        done = deployment.run.run_command("reload")
        assert "rebuilt: orders" in done.stderr, done.stderr
        deployment.run.wait_until(lambda: served(deployment) != before, "does not serve it", _WITHIN)
    return pauses.longest


def named(deployment: Deployment, user: int) -> Callable[[], int | None]:
    """A function that reads the number that is in the name of a user's document."""
    pool = urllib3.PoolManager()
    document = f"{deployment.sink}/{PREFIX}users/_doc/{user}?_source_includes=name"

    def read() -> int | None:
        name = pool.request("GET", document).json()["_source"]["name"]
        return int(name.split()[-1]) if name.startswith("number ") else None

    return read


def rename(deployment: Deployment, user: int, stop: threading.Event) -> None:
    """Give a user another number in its name all the time."""
    number = 0
    with connect(deployment.database) as connection:
        while not stop.wait(_EVERY_SECONDS):
            number += 1
            execute(connection, UPDATE, (f"number {number}", user))


def served(deployment: Deployment) -> str:
    """The generation of the orders that readers see."""
    return str(next(iter(urllib3.request("GET", f"{deployment.sink}/{PREFIX}orders/_alias").json())))


if __name__ == "__main__":
    main()
