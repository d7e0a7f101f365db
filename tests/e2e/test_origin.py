"""Does a run notice that the log, the slot or the state is not the one that its documents come from?"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace, Shop
from headrace.embedded.opensearch import EmbeddedOpenSearch
from support.servers import short_lived_server

_REFUSED = "put back to an earlier time"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_slot_that_may_be_a_strangers_is_not_dropped_after_a_kill(deploy: Deploy) -> None:
    """One that the start has noted is its own, and goes with what the start had begun."""
    with deploy(users=30) as pipeline:
        pipeline.start(failpoint="created")
        pipeline.wait_failpoint()
        pipeline.kill()
        stands = pipeline.confirmed()
        pipeline.start()
        assert pipeline.wait_end(120) == 1
        assert f"SELECT pg_drop_replication_slot('{pipeline.name}')" in pipeline.last_output()
        assert pipeline.confirmed() == stands
        pipeline.close()
        pipeline.shop.drop_slots()
        pipeline.start(failpoint="known")
        pipeline.wait_failpoint()
        pipeline.kill()
        pipeline.start()
        pipeline.wait_ready()
        pipeline.converges()
        pipeline.terminate()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_storage_that_was_put_back_under_a_run_is_noticed_then_and_at_the_next_start(
    opensearch: EmbeddedOpenSearch, tmp_path: Path
) -> None:
    """A virtual machine's snapshot: the server has written past the documents' position when it is back."""
    with short_lived_server() as server:
        shop = Shop(server.create_database("shop"), 30)
        pipeline = Headrace(tmp_path, shop, opensearch.url, "putback")
        try:
            pipeline.arguments = ("--on-gap", "stop")
            pipeline.start()
            pipeline.wait_ready()
            data, copy = server._site.data, server._site.folder / "copy"
            server.stop()
            subprocess.run(["cp", "-a", data, copy], check=True)
            server.start()
            shop.run("UPDATE users SET name = name || ' who never was'")
            pipeline.converges()
            server.stop("immediate")
            shutil.rmtree(data)
            copy.rename(data)
            settings = data / "postgresql.auto.conf"
            before = settings.read_text()
            settings.write_text(before + "max_wal_senders = 0\n")  # nobody reads before it has written more
            server.start()
            shop.run("UPDATE orders SET status = 'paid'", "UPDATE order_items SET quantity = quantity + 1")
            shop.ids("SELECT length(pg_logical_emit_message(false, '', repeat('x', 20000000))::text)")
            server.stop()
            settings.write_text(before)
            server.start()
            assert pipeline.wait_end(180) == 1
            assert _REFUSED in pipeline.last_output()
            told = pipeline.output.read_text().count(_REFUSED)
            pipeline.close()
            pipeline.start()
            assert pipeline.wait_end(180) == 1
            assert pipeline.output.read_text().count(_REFUSED) > told
            pipeline.close()
            pipeline.arguments = ()
            pipeline._ready_within = 400.0
            pipeline.start()
            pipeline.wait_ready()
            pipeline.converges()
        finally:
            pipeline.close()
