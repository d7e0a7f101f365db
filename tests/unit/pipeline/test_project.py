from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.pipeline.project import error_list, open_endpoints, open_project
from headrace.postgres.address import for_slot
from headrace.schema.normal import spec_hash
from headrace.state import StateKey

SCHEMA = "version: 1\ntable: users\nprimary_key: id\nfields:\n  - long: id\n"
SINK = '[sinks.primary]\ntype = "opensearch"\nurl = "http://me:s3cret@127.0.0.1:9200"\n'
INDEX = '[[index]]\nname = "users"\nschema = "users.schema.yml"\n'
SOURCE = '[source]\ntype = "postgres"\nconnection_url = "postgresql://me:w0rd@127.0.0.1/shop"\n'
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(text: str, **schemas: str) -> Path:
        for name, schema in ({"users": SCHEMA} | schemas).items():
            (tmp_path / f"{name}.schema.yml").write_text(schema)
        file = tmp_path / "headrace.toml"
        file.write_text(text)
        return file

    return make


def test_options_win_over_the_file_and_the_file_over_what_is_usual(write: Write) -> None:
    config = write(SOURCE + 'slot = "mine"\n' + SINK + INDEX)
    project = open_project(config, {})
    assert (project.slot, project.publication) == ("mine", "headrace")
    project = open_project(config, {}, slot="other", publication="Its own")
    assert (project.slot, project.publication) == ("other", "Its own")


def test_addresses_and_secrets_come_from_the_environment_and_do_not_print(write: Write) -> None:
    config = write(SOURCE + SINK + INDEX)
    environ = {
        "DATABASE_URL": "postgresql://you:oth3r@127.0.0.1/shop",
        "PRIMARY_OPENSEARCH_PASSWORD": "w0rd2",
    }
    endpoints = open_project(config, environ).resolve()
    assert endpoints.database == for_slot(environ["DATABASE_URL"], "headrace")
    assert (endpoints.sink.urls, endpoints.sink.username, endpoints.sink.password) == (
        ("http://127.0.0.1:9200",),
        "me",
        "w0rd2",
    )
    assert "oth3r" not in repr(endpoints)


def test_the_mistakes_of_all_schema_files_come_at_once(write: Write) -> None:
    two = INDEX + INDEX.replace("users", "orders")
    wrong = SCHEMA.replace("long", "lnog")
    with pytest.raises(ErrorGroup) as refused:
        open_project(write(SOURCE + SINK + two, users=wrong, orders=wrong), {})
    assert len(error_list(refused.value)) == 2
    assert refused.value.exit_code == 2
    assert len(str(refused.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SOURCE + SINK, "no index is enabled"),
        (SOURCE + SINK + INDEX + "enabled = false", "no index is enabled"),
        (SOURCE + INDEX, "no sink is a search cluster"),
        (SOURCE + '[sinks.a]\ntype = "stdout"\n' + INDEX, "no sink is a search cluster"),
        ('primary_sink = "primray"\n' + SOURCE + SINK + INDEX, "no sink of the type opensearch.*primary"),
    ],
)
def test_what_this_version_cannot_run_is_a_mistake_in_the_file(write: Write, text: str, words: str) -> None:
    with pytest.raises(HeadraceError, match=words) as refused:
        open_project(write(text), {})
    assert refused.value.kind is Kind.CONFIG


def test_a_command_of_documents_says_so_where_there_is_only_a_mirror(write: Write) -> None:
    mirror = '[mirror]\nlocation = "lake"\n[[mirror.tables]]\ntables = ["*.*"]\n'
    with pytest.raises(HeadraceError, match="there is a mirror, and no index") as refused:
        open_endpoints(write(SOURCE + mirror), {}, None)
    assert "`headrace mirror verify`" in refused.value.remedy


def test_the_first_cluster_keeps_the_state_unless_the_file_names_another(write: Write) -> None:
    other = SINK.replace("primary", "other").replace("9200", "9300") + 'prefix = "o_"\n'
    printed = '[sinks.printed]\ntype = "stdout"\npretty = true\n'
    project = open_project(write(SOURCE + printed + SINK + other + INDEX), {})
    assert (project.primary.name, [*project.secondary]) == ("primary", ["printed", "other"])
    endpoints = project.resolve()
    assert endpoints.secondary["printed"].options == {"pretty": True}
    assert endpoints.secondary["other"].sink.urls == ("http://127.0.0.1:9300",)
    assert endpoints.secondary["other"].state == endpoints.sink
    own = project.secondary["other"]
    assert (own.key, own.prefix, own.kind) == (StateKey("headrace", "", "other"), "o_", "opensearch")
    assert project.secondary["printed"].kind == "stdout"

    project = open_project(write('primary_sink = "other"\n' + SOURCE + SINK + other + INDEX), {})
    assert (project.primary.name, project.primary.prefix, [*project.secondary]) == (
        "other",
        "o_",
        ["primary"],
    )
    assert (project.secondary["primary"].prefix, project.secondary["primary"].key.prefix) == ("", "o_")


def test_only_a_sink_that_is_a_cluster_can_be_asked_what_it_holds(write: Write) -> None:
    other = SINK.replace("primary", "other").replace("9200", "9300")
    printed = '[sinks.printed]\ntype = "stdout"\n'
    project = open_project(write(SOURCE + SINK + other + printed + INDEX), {})
    found = [project.find_cluster(name).key for name in (None, "primary", "other")]
    assert found == [project.key, project.key, StateKey("headrace", "", "other")]
    with pytest.raises(HeadraceError, match="'printed' is no search cluster"):
        project.find_cluster("printed")
    with pytest.raises(HeadraceError, match=r"'othre' is no search cluster.*other"):
        project.find_cluster("othre")


def test_two_sinks_that_would_write_the_same_indexes_are_refused(write: Write) -> None:
    twice = SINK.replace("primary", "other")
    with pytest.raises(HeadraceError, match="are the same cluster") as refused:
        open_project(write(SOURCE + SINK + twice + INDEX), {}).resolve()
    assert "s3cret" not in str(refused.value)
    assert open_project(write(SOURCE + SINK + twice + 'prefix = "o_"\n' + INDEX), {}).resolve()
    elsewhere = [twice.replace("other", name).replace("9200", "9300") for name in ("second", "third")]
    with pytest.raises(HeadraceError, match="sinks 'second' and 'third' are the same cluster"):
        open_project(write(SOURCE + SINK + "".join(elsewhere) + INDEX), {}).resolve()


def test_a_kind_that_a_package_offers_gets_the_options_that_the_file_gives(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "ours-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[headrace.sinks]\nmemory = headrace.testing.memory_sink:made\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    guest = '[sinks.guest]\ntype = "memory"\nfile = "x.db"\ndepth = 3\n'
    endpoints = open_project(write(SOURCE + SINK + guest + INDEX), {}).resolve()
    assert endpoints.secondary["guest"].options == {"file": "x.db", "depth": 3}


def test_what_determines_the_documents_changes_the_hash_and_nothing_else_does(write: Write) -> None:
    def hashed(text: str) -> str:
        project = open_project(write(text), {})
        spec = project.specs["users"]
        return spec_hash(spec, project.primary.determinants(spec, []))

    usual = hashed(SOURCE + SINK + INDEX)
    assert hashed(SOURCE + 'slot = "other"\n' + SINK + "batch_size = 7\n" + INDEX) == usual
    assert hashed(SOURCE + SINK + "auto_subfields = false\n" + INDEX) != usual


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", r"users.json:1:2: not JSON"),
        ("[]", "no JSON object"),
        ('{"_source": {"enabled": false}}', "_source cannot be set"),
    ],
)
def test_a_mistake_in_a_file_of_an_index_is_named(write: Write, content: str, said: str) -> None:
    config = write(SOURCE + SINK + INDEX + 'mappings_file = "users.json"')
    (config.parent / "users.json").write_text(content)
    with pytest.raises(ErrorGroup, match=said) as refused:
        open_project(config, {})
    assert refused.value.exit_code == 2


def test_a_refused_document_stops_the_run_unless_the_file_says_otherwise(write: Write) -> None:
    assert open_project(write(SOURCE + SINK + INDEX), {}).skip_rejected() == set()
    assert open_project(write('on_error = "skip"\n' + SOURCE + SINK + INDEX), {}).skip_rejected() == {"users"}
    own = write('on_error = "skip"\n' + SOURCE + SINK + INDEX + 'on_error = "stop"')
    assert open_project(own, {}).skip_rejected() == set()


def test_an_error_that_is_one_is_its_own_list() -> None:
    one = HeadraceError(Kind.DISK, "full")
    assert error_list(one) == (one,)
    assert ErrorGroup((one, HeadraceError(Kind.SCHEMA, "wrong"))).exit_code == 2
    assert ErrorGroup((one,)).exit_code == 1
