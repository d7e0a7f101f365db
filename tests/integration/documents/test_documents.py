"""Whatever the schema and the workload, documents are what a fresh look at the database gives.

Every case is made from its seed alone: tables, schema files, statements of several sessions, and what befalls
the pipeline meanwhile. `python -m support.soak --seed N` runs one of them again, shrinks one that
fails, and runs others for as long as asked (`make soak`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from headrace.model.names import TableName
from support.servers import installation
from support.soak.cases import make_case
from support.soak.fixtures import CaseRunner, case_runner
from support.soak.preparation import Prepared

FEW = range(100, 106)
MANY = [*range(106, 109), *range(200, 230)]


@pytest.fixture(scope="module")
def runner() -> Iterator[CaseRunner]:
    with case_runner(installation()) as made:
        yield made


def check(runner: CaseRunner, seed: int) -> None:
    case = make_case(seed)
    wrong = runner.run(case).wrong
    short = runner.shrink(case, wrong, 60).text() if wrong else ""
    assert not wrong, f"seed {seed}: {'; '.join(wrong)}\n{short}"


@pytest.mark.parametrize("seed", FEW)
def test_documents_are_right(runner: CaseRunner, seed: int) -> None:
    check(runner, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", MANY)
def test_documents_are_right_in_many_more_cases(runner: CaseRunner, seed: int) -> None:
    check(runner, seed)


def test_the_same_seed_is_the_same_case() -> None:
    assert make_case(7) == make_case(7)
    assert make_case(7).text() != make_case(8).text()


def forgetting(runner: CaseRunner, table: TableName) -> CaseRunner:
    return CaseRunner(runner.server, lambda prepared: without_routes(prepared, table))


def without_routes(prepared: Prepared, table: TableName) -> Prepared:
    """The product as it would be if it forgot what a change of one table leads to."""
    plan = prepared.work.plan
    left = {name: routes for name, routes in plan.resolution.routes.items() if name != table}
    resolution = replace(plan.resolution, routes=left)
    return replace(prepared, work=replace(prepared.work, plan=replace(plan, resolution=resolution)))


@pytest.mark.long
def test_a_route_that_is_missing_is_seen_and_the_case_is_shrunk(runner: CaseRunner) -> None:
    """Some documents go stale, the comparison says so, and what is left of the case still fails."""
    case = replace(make_case(102, transactions=6), side_by_side=False)
    forgetful = (forgetting(runner, table.name) for table in reversed(case.database.tables))
    found = ((one, one.run(case).wrong) for one in forgetful)
    spoiled, wrong = next((one, wrong) for one, wrong in found if wrong)
    short = spoiled.shrink(case, wrong, 6)
    assert len(short.text()) < len(case.text())
    assert spoiled.run(short).wrong
    assert not runner.run(short).wrong
