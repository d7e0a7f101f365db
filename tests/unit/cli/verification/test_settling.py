"""A document that is on its way is never called wrong, whatever happens between two looks at it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import pytest

from headrace.cli.verification.settling import Look, Settling, Verdict
from headrace.sinks.opensearch.stored import Stored

Step = Callable[["World"], None]


class World:
    """A database, an index and a pipeline; each look at them takes the next step of what happens beside.

    Positions count commits. The pipeline applies only when a step lets it, or when somebody waits for it.
    """

    def __init__(self, *steps: Step) -> None:
        self.position_now = 1
        self.rows: dict[str, tuple[int, bytes]] = {}
        self.held: dict[str, Stored] = {}
        self.pipeline_runs = True
        self.applied = 1
        self._steps = list(steps)
        self.log: list[tuple[int, str]] = []

    def commit(self, id_: str, document: bytes | None) -> None:
        self.position_now += 1
        if document is None:
            self.rows.pop(id_, None)
        else:
            self.rows[id_] = (self.position_now, document)
        self.log.append((self.position_now, id_))

    def apply(self) -> None:
        """As the pipeline does: documents as they are now, at the position of the batch."""
        for position, id_ in self.log:
            if position > self.applied:
                if id_ in self.rows:
                    self.held[id_] = Stored(self.position_now, self.rows[id_][1])
                else:
                    self.held.pop(id_, None)
        self.applied = self.position_now

    def happens(self) -> None:
        if self._steps:
            self._steps.pop(0)(self)

    # The two sides.

    def read(self, ids: Sequence[str]) -> Mapping[str, Stored]:
        self.happens()
        return {id_: self.held[id_] for id_ in ids if id_ in self.held}

    def stamps(self, ids: Sequence[str]) -> Mapping[str, str]:
        self.happens()
        return {id_: str(self.rows[id_][0]) for id_ in ids if id_ in self.rows}

    def look(self, ids: Sequence[str]) -> Look:
        self.happens()
        stamps = {id_: str(self.rows[id_][0]) for id_ in ids if id_ in self.rows}
        return Look(stamps, {id_: self.rows[id_][1] for id_ in ids if id_ in self.rows})

    def position(self) -> int:
        self.happens()
        return self.position_now

    def reached(self, position: int) -> bool:
        if self.pipeline_runs and self.applied < position:
            self.apply()
        return self.applied >= position


def settled(world: World, **more: object) -> dict[str, Verdict]:
    settling = Settling(world, world, world.reached, sleep=lambda _: None, **more)  # type: ignore[arg-type]
    return {one.id: one.verdict for one in settling.settle(["a"])}


def nothing(_: World) -> None:
    pass


def commit(document: bytes | None) -> Step:
    return lambda world: world.commit("a", document)


def apply(world: World) -> None:
    world.apply()


def test_what_is_wrong_is_found() -> None:
    for held, row, verdict in (
        (None, b"{}", Verdict.MISSING),
        (b"{}", None, Verdict.EXTRA),
        (b'{"x":1}', b'{"x":2}', Verdict.DIFFERENT),
        (b'{"x":1}', b'{"x":1.0}', Verdict.RIGHT),
        (None, None, Verdict.RIGHT),
    ):
        world = World()
        if held is not None:
            world.held["a"] = Stored(1, held)
        if row is not None:
            world.rows["a"] = (1, row)
        assert settled(world) == {"a": verdict}


STATES = (None, b'{"x":1}', b'{"x":2}')


@pytest.mark.parametrize("first", STATES)
def test_a_right_index_is_never_wrong(first: bytes | None) -> None:
    """Two commits at any moments, also to and fro, applied at once or only when somebody waits for them."""
    moments = itertools.product(STATES, STATES, range(6), range(3), ([], [apply]))
    for second, third, before, between, follow in moments:
        world = World(
            *[nothing] * before, commit(second), *follow, *[nothing] * between, commit(third), *follow
        )
        world.commit("a", first)
        world.apply()
        assert settled(world)["a"] is Verdict.RIGHT, (second, third, before, between, follow)


def test_what_changes_each_time_is_given_up_and_not_called_wrong() -> None:
    def toggled(world: World) -> None:
        world.commit("a", b'{"x":%d}' % world.position_now)
        world.apply()

    world = World(*[toggled] * 200)
    world.commit("a", b"{}")
    assert settled(world)["a"] is Verdict.CHANGING


def test_without_a_pipeline_nobody_can_tell() -> None:
    world = World()
    world.commit("a", b'{"x":1}')
    world.apply()
    world.pipeline_runs = False
    world.commit("a", b'{"x":2}')
    assert settled(world) == {"a": Verdict.UNAPPLIED}


def test_a_version_beyond_the_log_is_told() -> None:
    world = World()
    world.commit("a", b'{"x":1}')
    world.held["a"] = Stored(2**61, b'{"x":2}')
    world.applied = world.position_now
    [found] = Settling(world, world, world.reached).settle(["a"])
    assert (found.verdict, found.ahead) == (Verdict.DIFFERENT, True)


def test_where_a_pipeline_of_the_cluster_alters_documents_only_ids_count() -> None:
    world = World()
    world.rows["a"] = (1, b'{"x":1}')
    world.held["a"] = Stored(1, b'{"x":2}')
    assert settled(world, contents=False) == {"a": Verdict.RIGHT}


def test_two_looks_in_a_row_must_say_that_a_document_is_wrong() -> None:
    """Whatever mended it meanwhile: it is not wrong any more."""

    def mended(world: World) -> None:
        world.held["a"] = Stored(1, b'{"x":2}')

    for moment in range(8):
        world = World(*[nothing] * moment, mended)
        world.held["a"], world.rows["a"] = Stored(1, b'{"x":1}'), (1, b'{"x":2}')
        assert settled(world) == {"a": Verdict.RIGHT if moment < 7 else Verdict.DIFFERENT}, moment
