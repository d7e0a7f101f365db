"""What does a change that touches very many documents do to the changes after it, and to a kill?"""

from __future__ import annotations

import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.embedded.processes import until

_STANDS_AT = 2
"""The round behind which a process of the pipeline stands still; each chunk has one document here."""

_ROUND = 10
"""All jobs together hold one chunk of so many before they take it away."""

_EVERYWHERE = """
INSERT INTO product_tags (id, product_id, tag_id)
SELECT 2000000 + p.id, p.id, {0} FROM products p
WHERE NOT EXISTS (SELECT FROM product_tags t WHERE t.product_id = p.id AND t.tag_id = {0})
"""


@pytest.mark.long
def test_a_renamed_tag_of_many_products_holds_nothing_up_and_is_gone_on_with(deploy: Deploy) -> None:
    with deploy() as pipeline:
        shop = pipeline.shop
        text = pipeline.config.read_text()
        pipeline.config.write_text(f"large_change = 10\n{text}")
        tag = shop.id("SELECT tag_id FROM product_tags GROUP BY 1 ORDER BY count(*) DESC LIMIT 1")
        shop.run(_EVERYWHERE.format(tag))
        pipeline.start(failpoint=f"deferred:{_STANDS_AT}")
        pipeline.wait_ready()
        pipeline.converges()

        before = shop.id("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        touched = shop.change(f"UPDATE tags SET name = name || ' renamed' WHERE id = {tag}")
        assert touched.keys() == {"products"}
        products = touched["products"]
        in_hand = len(products) // _ROUND
        done = 2 * _STANDS_AT * in_hand  # twice: the tasks of one job may be others' than those of the next
        assert in_hand > 1
        pipeline.wait_failpoint()
        late = shop.change("UPDATE users SET name = name || ' late' WHERE id = 1")
        shown = late["users"]
        assert until(lambda: not _stale(pipeline, "users", shown), 30), "a large change holds others up"
        stale = _stale(pipeline, "products", products)
        assert len(stale) >= len(products) - done - in_hand
        assert pipeline.confirmed() <= before, "the slot has passed documents that are not written"

        left = _deferred(pipeline)
        assert left >= len(stale)
        pipeline.kill()
        written = _writes(pipeline, "products")
        pipeline.start()
        pipeline.wait_ready()
        pipeline.converges()
        again = _writes(pipeline, "products") - written
        small = len(late.get("products", ()))  # its batch may be repeated
        assert again <= left + in_hand + small, "what was done before the kill is done again"
        shop.run("UPDATE users SET name = name || ' last' WHERE id = 2")
        pipeline.converges()
        assert until(lambda: pipeline.confirmed() > before, 30), "the slot is held for ever"
        pipeline.terminate()


def _stale(pipeline: Headrace, index: str, ids: set[str]) -> set[str]:
    expected, found = pipeline.shop.expected()[index], pipeline.documents(index)
    return {one for one in ids if expected.get(one) != found.get(one)}


def _deferred(pipeline: Headrace) -> int:
    """How many chunks are left; a document that a change leads to in two ways may be in two."""
    target = f"{pipeline.sink_url}/{pipeline.prefix}headrace_deferred"
    urllib3.request("POST", f"{target}/_refresh")
    return int(urllib3.request("GET", f"{target}/_count").json()["count"])


def _writes(pipeline: Headrace, index: str) -> int:
    """How many writes the index has taken, by its own numbering of them."""
    target = f"{pipeline.sink_url}/{pipeline.prefix}{index}/_stats"
    [shard] = urllib3.request("GET", f"{target}?level=shards").json()["indices"].popitem()[1]["shards"]["0"]
    return int(shard["seq_no"]["max_seq_no"])
