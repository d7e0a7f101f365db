"""A document that is on its way is never called wrong, whatever happens between two looks at it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import pytest

from headrace.sinks.opensearch.documents import StoredDocument
from headrace.tools.verification.recheck import Look, Recheck, Verdict

Step = Callable[["World"], None]


class World:
    """A database, an index and a pipeline; each look at them takes the next step of what happens beside.

    Positions count commits. The pipeline applies only when a step lets it, or when somebody waits for it.
    """

    def __init__(self, *steps: Step) -> None:
        self.position_now = 1
        self.rows: dict[str, tuple[int, bytes]] = {}
        self.held: dict[str, StoredDocument] = {}
        self.pipeline_runs = True
        self.applied = 1
        self._steps = list(steps)
        self.log: list[tuple[int, str]] = []

    def follow(self, steps: Sequence[Step]) -> None:
        self._steps = list(steps)

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
                    self.held[id_] = StoredDocument(self.position_now, self.rows[id_][1])
                else:
                    self.held.pop(id_, None)
        self.applied = self.position_now

    def happens(self) -> None:
        if self._steps:
            self._steps.pop(0)(self)

    # The two sides.

    def read(self, ids: Sequence[str]) -> Mapping[str, StoredDocument]:
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
    settling = Recheck(world, world.read, world.reached, sleep=lambda _: None, **more)  # type: ignore[arg-type]
    return {one.id: one.verdict for one in settling.run(["a"])}


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
            world.held["a"] = StoredDocument(1, held)
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


class Dropping(World):
    """The transform drops the document because of other rows: the root's is not written."""

    def stamps(self, ids: Sequence[str]) -> Mapping[str, str]:
        super().stamps(ids)
        return dict.fromkeys(ids, "the same")

    def look(self, ids: Sequence[str]) -> Look:
        return Look(dict.fromkeys(ids, "the same"), super().look(ids).documents)


def test_a_document_that_a_transform_drops_by_other_rows_is_not_wrong() -> None:
    for before, between in itertools.product(range(6), range(4)):
        steps = commit(b"{}"), *[nothing] * between, commit(None), apply
        assert settled(Dropping(*[nothing] * before, *steps), drops=True)["a"] is Verdict.RIGHT
    world = Dropping()
    world.rows["a"] = (1, b"{}")
    assert settled(world, drops=True)["a"] is Verdict.MISSING


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
    world.held["a"] = StoredDocument(2**61, b'{"x":2}')
    world.applied = world.position_now
    [found] = Recheck(world, world.read, world.reached).run(["a"])
    assert (found.verdict, found.ahead) == (Verdict.DIFFERENT, True)


def test_where_a_pipeline_of_the_cluster_alters_documents_only_ids_count() -> None:
    world = World()
    world.rows["a"] = (1, b'{"x":1}')
    world.held["a"] = StoredDocument(1, b'{"x":2}')
    assert settled(world, contents=False) == {"a": Verdict.RIGHT}


class Leading(World):
    """The document "a" hangs on a chain of `levels` rows below it, each of which may be moved elsewhere."""

    def __init__(self, levels: int, *steps: Step) -> None:
        super().__init__(*steps)
        self.changes: list[tuple[int, int]] = []
        self.change(levels)
        self.reached(self.position_now)
        self.change(levels)

    def change(self, level: int) -> None:
        """Change the row `level` steps away from the document; 0 is the one that holds the link to it."""
        self.commit("a", b'{"x":%d}' % self.position_now)
        self.changes.append((self.position_now, level))

    def reached(self, position: int) -> bool:
        """What leads from a change to the document is read now: it is not found where a nearer row moved."""
        self.happens()
        for at, level in self.changes:
            if self.applied < at <= position and not any(
                later > at and nearer < level for later, nearer in self.changes
            ):
                self.held["a"] = StoredDocument(position, self.rows["a"][1])
        self.applied = max(self.applied, position)
        return True


def moving(level: int) -> Step:
    def move(world: World) -> None:
        assert isinstance(world, Leading)
        world.change(level)

    return move


def verdicts(levels: int, waiting: int) -> set[Verdict]:
    """What is found where each row of the chain moves at any moment, the farthest first."""
    found = set()
    for moments in itertools.combinations(range(3 + 2 * levels), levels):
        moves = {moment: moving(levels - 1 - number) for number, moment in enumerate(moments)}
        world = Leading(levels)
        world.follow([moves.get(moment, nothing) for moment in range(3 + 2 * levels)])
        found.add(settled(world, levels=waiting)["a"])
    return found


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_document_that_only_a_later_move_leads_to_is_not_wrong(levels: int) -> None:
    """Each move hides it from the changes before, and brings it up to date itself: decision 0023."""
    assert verdicts(levels, waiting=levels) == {Verdict.RIGHT}
    assert Verdict.DIFFERENT in verdicts(levels, waiting=levels - 1)
