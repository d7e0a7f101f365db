"""Who is told that the stream stands still? Whoever asks `/readyz`; and nobody where it does not."""

from __future__ import annotations

import pytest

from e2e.conftest import Deploy
from headrace.embedded.processes import until
from headrace.postgres.connection import connect, execute

_WITHIN = 60.0
"""Seconds; the promise."""


@pytest.mark.long
def test_a_batch_that_does_not_get_on_is_told_of_within_a_minute(deploy: Deploy) -> None:
    with deploy() as pipeline:
        shop = pipeline.shop
        pipeline.start()
        pipeline.wait_ready()
        with connect(shop.url, autocommit=False) as stranger:
            execute(stranger, "LOCK TABLE public.profiles IN ACCESS EXCLUSIVE MODE")
            shop.run("UPDATE users SET name = name || '!' WHERE id = 1")
            assert until(lambda: not pipeline.is_ready(), _WITHIN + 5), "a batch hangs, and it is ready"
            assert "stalled" in pipeline.ask("/readyz").data.decode()
            stranger.rollback()
        pipeline.wait_ready()
        pipeline.converges()
        pipeline.terminate()


@pytest.mark.long
def test_an_idle_deployment_and_one_long_transaction_are_no_stall(deploy: Deploy) -> None:
    with deploy() as pipeline:
        shop = pipeline.shop
        pipeline.start()
        pipeline.wait_ready()
        with connect(shop.url, autocommit=False) as writer:
            execute(writer, "SET LOCAL search_path = public")

            def wrote_and_unready() -> bool:
                execute(writer, "UPDATE reviews SET rating = rating, body = repeat(md5(id::text), 200)")
                return not pipeline.is_ready()

            assert not until(wrote_and_unready, _WITHIN), pipeline.ask("/readyz").data
            writer.commit()
        assert not until(lambda: not pipeline.is_ready(), _WITHIN), pipeline.ask("/readyz").data
        pipeline.converges()
        pipeline.terminate()
