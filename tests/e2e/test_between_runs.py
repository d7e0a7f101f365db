"""What may someone else change while nothing runs, or just as it ends, without a document going wrong?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import Headrace, Shop


@pytest.fixture(scope="module")
def stopped(deploy: Deploy) -> Iterator[Headrace]:
    """A deployment that was backfilled and is stopped."""
    with deploy(users=30) as pipeline:
        pipeline.start()
        pipeline.wait_ready()
        pipeline.terminate()
        yield pipeline


@pytest.fixture(scope="module")
def shop(stopped: Headrace) -> Shop:
    return stopped.shop


@pytest.mark.long
def test_a_table_that_left_the_publication_is_backbackfilled_again(stopped: Headrace, shop: Shop) -> None:
    """Its changes are not in the log; that it is published again by the next start must not hide that."""
    publication = stopped.prefix.rstrip("_")
    shop.run(f"ALTER PUBLICATION {publication} DROP TABLE reviews")
    shop.run("UPDATE reviews SET rating = rating % 5 + 1, approved = true")
    kept = _generation(stopped, "orders")
    replaced = _generation(stopped, "products")
    stopped.start()
    stopped.wait_ready()
    stopped.converges()
    shop.run("UPDATE reviews SET rating = rating % 5 + 1")
    stopped.converges()
    stopped.terminate()
    assert _generation(stopped, "orders") == kept, "no document of it reads reviews"
    assert _generation(stopped, "products") != replaced


@pytest.mark.long
def test_also_where_someone_else_has_published_it_again(stopped: Headrace, shop: Shop) -> None:
    publication = stopped.prefix.rstrip("_")
    shop.run(f"ALTER PUBLICATION {publication} DROP TABLE tags")
    shop.run("UPDATE tags SET name = name || '!'")
    shop.run(f"ALTER PUBLICATION {publication} ADD TABLE tags")
    stopped.start()
    stopped.wait_ready()
    stopped.converges()
    stopped.terminate()


@pytest.mark.long
def test_an_alias_and_a_generation_that_were_deleted_come_back(stopped: Headrace) -> None:
    urllib3.request(
        "DELETE", f"{stopped.sink_url}/{_generation(stopped, 'users')}/_alias/{stopped.prefix}users"
    )
    urllib3.request("DELETE", f"{stopped.sink_url}/{_generation(stopped, 'orders')}")
    stopped.start()
    stopped.wait_ready()
    stopped.converges()
    stopped.terminate()


def _generation(pipeline: Headrace, index: str) -> str:
    """The concrete index behind an alias."""
    answer = urllib3.request("GET", f"{pipeline.sink_url}/{pipeline.prefix}{index}", timeout=30)
    assert answer.status == 200, answer.data
    [name] = answer.json()
    return str(name)
