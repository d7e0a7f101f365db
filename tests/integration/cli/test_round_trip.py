"""init, check, setup, teardown: what was made is taken back, and nothing that is there is overwritten."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace

import pytest

from headrace.config.load import load_deployment
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.pipeline.source_of_run import new_state
from headrace.postgres.connection import connect
from headrace.postgres.server import inspect_server
from headrace.postgres.slot import create_slot
from headrace.sinks.opensearch import Client, Endpoint, Generations
from headrace.state import GenerationState, StateKey, StateStore
from headrace.state.lease import Lease
from integration.cli.command_line import NOWHERE, Deployment


@pytest.fixture
def first(whole: Deployment) -> Deployment:
    """A folder without files, and variables in the place of options."""
    for file in whole.folder.iterdir():
        file.unlink()
    return whole


def follow(deployment: Deployment, index: str) -> None:
    """What a run leaves: a slot, an index, and the cluster's memory of both."""
    with create_slot(deployment.url, deployment.name) as slot, connect(deployment.url) as connection:
        server = inspect_server(connection)
    client = Client(Endpoint((deployment.sink,)))
    made = Generations(client).create(index, "0123456789ab", {"settings": {"index": {}}, "mappings": {}})
    state = replace(
        new_state(server, deployment.name, deployment.name),
        phase="following",
        consistent_point=slot.consistent_point,
        applied=slot.consistent_point,
        generations=(
            GenerationState(index, made.index, made.uuid, made.hash, slot.consistent_point, published=True),
        ),
    )
    StateStore(client, StateKey(deployment.name, "")).save(state)
    client.close()


@pytest.mark.long
def test_what_was_made_is_taken_back(first: Deployment) -> None:
    variables = {
        "DATABASE_URL": first.url,
        "HEADRACE_TABLE": "people",
        "HEADRACE_SINK": first.sink,
        "HEADRACE_SLOT": first.name,
        "HEADRACE_PUBLICATION": first.name,
    }
    assert first.type("init", **variables).code == 0
    names = {file.name for file in first.folder.iterdir()}
    assert names == {"headrace.toml", "people.schema.yml", "headrace.schema.json"}
    assert "$schema=headrace.schema.json" in (first.folder / "people.schema.yml").read_text().splitlines()[0]
    assert 'env = "DATABASE_URL"' in (first.folder / "headrace.toml").read_text()
    assert "postgresql://" not in (first.folder / "headrace.toml").read_text()
    assert "exists already" in first.type("init", **variables).refused(2, "USAGE")
    written = (first.folder / "headrace.toml").read_text()
    assert re.search(r'^slot = "headrace_\w+_[0-9a-f]{6}"', written, re.MULTILINE), "another one for each"

    before = first.type("check", **variables)
    assert (before.code, before.errors) == (0, []), "nothing is wrong before it is set up"
    assert "to do before the first run: [HEADRACE_REPLICA_IDENTITY]" in before.err
    assert "next: headrace setup" in before.err
    assert first.left_in_database() == []
    refused = first.type("setup", answer="n\n", **variables)
    assert (refused.code, first.left_in_database()) == (1, [])
    assert "BEGIN;" in refused.out
    agreed = first.type("setup", answer="y\n", **variables)
    assert (agreed.code, agreed.errors) == (0, [])
    made = first.left_in_database()
    assert [one.partition(" ")[0] for one in made] == ["identity", "index", "publication"]
    assert first.type("setup", **variables).code == 0, "nothing is left to ask for"
    checked = first.type("check", **variables)
    assert checked.code == 0
    assert [line.split()[-1] for line in checked.out.splitlines()[1:]] == ["complete", "complete"]

    follow(first, "people")
    assert first.type("check", **variables).errors == []
    unanswered = first.type("teardown", "--indexes", **variables).refused(2, "USAGE")
    assert "--yes" in unanswered
    first_left = first.left_in_database()
    assert len(first_left) == len(made) + 1
    told = first.type("teardown", HEADRACE_YES="1", HEADRACE_INDEXES="1", **variables)
    assert (told.code, told.errors) == (0, [])
    assert (first.left_in_database(), first.left_in_cluster()) == ([], [])


def test_a_teardown_forgets_the_state_and_keeps_the_documents(whole: Deployment) -> None:
    assert whole.type("setup", "--yes").code == 0
    follow(whole, whole.name)
    assert len(whole.left_in_cluster()) == len(["an index", "the state"])
    told = whole.type("teardown", "--yes")
    assert told.code == 0
    assert f'DROP PUBLICATION "{whole.name}"' in told.err, "what is done is said, not why it was made"
    assert "was made by Headrace" not in told.err
    assert whole.left_in_database() == []
    [index] = whole.left_in_cluster()
    assert index.startswith(whole.name)
    assert whole.type("teardown", "--indexes", "--yes").code == 0
    assert whole.left_in_cluster() == []


def test_a_teardown_names_the_indexes_of_every_cluster_and_fails_where_some_stay(whole: Deployment) -> None:
    assert whole.type("setup", "--yes").code == 0
    follow(whole, whole.name)
    prefix = f"beside_{whole.name}_"
    beside = f'[sinks.beside]\ntype = "opensearch"\nprefix = "{prefix}"\n'
    away = f'[sinks.away]\ntype = "opensearch"\nurl = "{NOWHERE}"\nprefix = "far_"\n'
    whole.more = f'{beside}url = "{whole.sink}"\n{away}'
    whole.write()
    with closing(Client(Endpoint((whole.sink,)))) as client:
        Generations(client, prefix).create(whole.name, "aa", {"settings": {"index": {}}, "mappings": {}})
        told = whole.type("teardown", "--indexes", "--yes")
        assert (
            f"indexes of {whole.name}, beside: {prefix}{whole.name}, away: far_{whole.name} are" in told.err
        )
        stays = told.refused(1, "SINK_UNREACHABLE")
        assert "the sink 'away': its indexes are still there" in stays
        assert "run the same teardown again" in stays
        assert (whole.left_in_database(), whole.left_in_cluster()) == ([], [])
        assert Generations(client, prefix).existing(whole.name) == []
        whole.more = f'{beside}url = "{whole.sink}"'
        whole.write()
        with Lease(client, StateKey("another", prefix), [whole.name]):
            assert "the sink 'beside'" in whole.type("teardown", "--indexes", "--yes").refused(
                1, "SLOT_IN_USE"
            )
        assert whole.type("teardown", "--indexes", "--yes").code == 0


def test_files_that_cannot_be_written_leave_none(first: Deployment) -> None:
    (first.folder / "file").touch()
    told = first.type("init", first.url, "--table", "people", "--sink", first.sink, "--folder", "file/new")
    assert "--folder" in told.refused(1, "DISK")
    assert [file.name for file in first.folder.iterdir()] == ["file"]


def test_an_index_is_added_to_a_deployment_that_is_there(people: Deployment) -> None:
    """It was refused because headrace.toml exists, and had to be written by hand."""
    variables = {
        "DATABASE_URL": people.url,
        "HEADRACE_SLOT": people.name,
        "HEADRACE_PUBLICATION": people.name,
    }
    file = people.folder / "headrace.toml"
    before = file.read_text()
    assert people.type("init", "--table", "pets", **variables).code == 0
    assert file.read_text().startswith(before.rstrip("\n"))
    assert [entry.name for entry in load_deployment(file, {}).indexes] == [people.name, "pets"]
    assert people.type("check", "--offline", **variables).code == 0
    (people.folder / "pets.schema.yml").rename(people.folder / "mine.yml")
    file.write_text(file.read_text().replace("pets.schema.yml", "mine.yml"))
    refused = people.type("init", "--table", "pets", **variables).refused(2, "USAGE")
    assert "has an index 'pets' already" in refused


def test_a_deployment_of_another_database_is_not_torn_down(
    whole: Deployment, postgres: EmbeddedPostgres
) -> None:
    """The advice printed in one deployment wiped another one's state, live: both had the default slot."""
    assert whole.type("setup", "--yes").code == 0
    follow(whole, whole.name)
    elsewhere = postgres.create_database(f"not_{whole.name}")
    other = Deployment(whole.folder.parent / "other", elsewhere, sink=whole.sink, name=whole.name)
    other.write()
    refused = other.type("teardown", "--indexes", "--yes").refused(1, "CONTINUITY")
    assert "another deployment of this cluster uses the slot name" in refused
    with closing(Client(Endpoint((whole.sink,)))) as client:
        assert StateStore(client, StateKey(whole.name, "")).load() is not None
        with Lease(client, StateKey(whole.name, ""), [whole.name]):
            assert "another Headrace works with" in other.type("teardown", "--yes", "--moved").refused(
                1, "SLOT_IN_USE"
            )
        assert len(Generations(client).existing(whole.name)) == 1
    assert whole.type("teardown", "--indexes", "--yes").code == 0
    postgres.drop_database(f"not_{whole.name}")
