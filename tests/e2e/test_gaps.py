"""What do readers find when the log cannot be gone on from, and everything is built anew?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.cli import main

_INDEX = "users"


@pytest.fixture
def stopped(deploy: Deploy) -> Iterator[Headrace]:
    """A deployment that was seeded and is stopped."""
    with deploy(users=30) as pipeline:
        pipeline.start()
        pipeline.wait_ready()
        pipeline.terminate()
        yield pipeline


def typed(pipeline: Headrace, command: str, *words: str) -> int:
    """The exit code of a command."""
    names = ["--slot", pipeline.name, "--publication", pipeline.name]
    with pytest.raises(SystemExit) as ended:
        main([command, *words, "--config", str(pipeline.config), *names])
    return int(str(ended.value.code))


def generations(pipeline: Headrace, index: str = _INDEX) -> set[str]:
    """Every concrete index of an index, served or not."""
    target = f"{pipeline.sink_url}/{pipeline.prefix}{index}_*"
    return set(urllib3.request("GET", target, timeout=30).json())


def served(pipeline: Headrace, index: str = _INDEX) -> str:
    """The concrete index behind an alias."""
    [name] = urllib3.request("GET", f"{pipeline.sink_url}/{pipeline.prefix}{index}", timeout=30).json()
    return str(name)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_teardown_leaves_readers_what_they_have_until_the_next_run_has_built_it_anew(
    stopped: Headrace,
) -> None:
    """What the messages advise after a failover, a lost slot or a restore."""
    old, documents = served(stopped), stopped.documents(_INDEX)
    assert typed(stopped, "teardown", "--yes") == 0
    assert stopped.documents(_INDEX) == documents
    stopped.shop.run("UPDATE users SET name = name || '!'", "DELETE FROM reviews WHERE id % 5 = 0")
    stopped.start(failpoint="filled")
    stopped.wait_failpoint()
    assert (served(stopped), stopped.documents(_INDEX)) == (old, documents)
    stopped.kill()
    stopped.start()
    stopped.wait_ready()
    stopped.converges()
    new = served(stopped)
    stopped.terminate()
    assert new != old
    assert generations(stopped) == {new}
