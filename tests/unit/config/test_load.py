"""A deployment file is read whole; every mistake is told with its line."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headrace.config.deployment import ConnectionParts, Deployment, OpenSearchSink, StdoutSink
from headrace.config.load import deployment_of, load_deployment
from headrace.config.secret import Secret
from headrace.errors import ErrorGroup, HeadraceError, Kind

SOURCE = '[source]\ntype = "postgres"\n'


def load(folder: Path, text: str, **environ: str) -> Deployment:
    for name in ("users", "orders"):
        (folder / f"{name}.schema.yml").touch()
    file = folder / "headrace.toml"
    file.write_text(text, encoding="utf-8")
    return load_deployment(file, environ)


def test_the_least_file_has_every_default(tmp_path: Path) -> None:
    deployment = load(tmp_path, SOURCE)
    assert (deployment.source.slot, deployment.source.publication) == ("headrace", "headrace")
    assert (deployment.source.replica_identity, deployment.source.manage_publication) == ("check", True)
    assert deployment.sinks == {"stdout": StdoutSink(type="stdout")}
    assert (deployment.on_error, deployment.prefix, deployment.indexes) == ("quarantine", "", ())
    assert deployment.server.public_address == "127.0.0.1:9464"
    assert deployment.server.private_address == "127.0.0.1:9465"


@pytest.mark.parametrize("key", ["settings_file", "mappings_file"])
def test_the_files_of_an_index_are_found_from_the_deployment_files_folder(tmp_path: Path, key: str) -> None:
    text = SOURCE + f'[[index]]\nname = "users"\nschema = "users.schema.yml"\n{key} = "x/users.json"'
    with pytest.raises(ErrorGroup, match=rf"headrace.toml:6: the {key[:-5]} file .*users.json .* not there"):
        load(tmp_path, text)
    (tmp_path / "x").mkdir()
    (tmp_path / "x/users.json").write_text("{}")
    [entry] = load(tmp_path, text).indexes
    assert getattr(entry, key) == tmp_path / "x/users.json"


def test_a_whole_file(tmp_path: Path) -> None:
    deployment = load(
        tmp_path,
        """
on_error = "skip"
prefix = "dev_"
[source]
type = "postgres"
manage_publication = false
replica_identity = "auto"
slot = "s1"
publication = "Mixed Case"
[source.connection_url]
host = "db"
port = 5433
user = "u"
password = { env = "PW" }
database = "d"
[sinks.Primary]
type = "opensearch"
url = { env = "OS" }
username = "u"
password = "p"
tls_verify = false
batch_size = 2000
max_bytes = 5
timeout_secs = 1
max_retries = 0
pipeline = "p"
number_of_shards = 2
number_of_replicas = 0
refresh_interval = "-1"
eager_refresh = false
text_analysis = "icu"
auto_subfields = false
[sinks.audit]
type = "stdout"
pretty = true
[[index]]
name = " Users "
schema = "users.schema.yml"
enabled = true
[[index]]
name = "orders"
schema = "orders.schema.yml"
enabled = false
on_error = "stop"
[server]
public_address = "0.0.0.0:9999"
private_address = "[::1]:0"
""",
    )
    assert isinstance(deployment.source.connection_url, ConnectionParts)
    primary = deployment.sinks["primary"]
    assert isinstance(primary, OpenSearchSink)
    assert (primary.batch_size, primary.text_analysis, primary.password) == (2000, "icu", Secret("p"))
    assert [entry.name for entry in deployment.enabled] == ["users"]
    assert deployment.indexes[0].schema_path == tmp_path / "users.schema.yml"
    assert (deployment.on_error_of("users"), deployment.on_error_of("orders")) == ("skip", "stop")
    assert deployment.server.public_address == "0.0.0.0:9999"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "'source' is missing"),
        ("[source]\n", 1, "'source.type' is missing. Add `type = …`."),
        ('[source]\ntype = "mysql"', 2, "'source.type' must be 'postgres'"),
        ("source = 1", 1, "'source'"),
        (SOURCE + 'slto = "x"', 3, "unknown key 'source.slto'. Did you mean 'slot'?"),
        (SOURCE + 'ssl_sni_hostname = "db"', 3, "Write that name as `host`"),
        (SOURCE + "manage_replica_identity = true", 3, 'Write `replica_identity = "auto"`'),
        (SOURCE + 'ssl_mode = "allow"', 3, "'source.ssl_mode' must be 'disable'"),
        (SOURCE + '[sinks.a]\ntype = "stdout"\nbackfill = false', 5, "Remove it: a sink is filled once"),
        (SOURCE + 'slot = "A"', 3, "lower-case letters, digits and _ only"),
        (SOURCE + 'replica_identity = "yes"', 3, "'check', 'auto' or 'ignore'"),
        (SOURCE + 'manage_publication = "no"', 3, "valid boolean"),
        (SOURCE + 'connection_url = "mysql://x"', 3, "must be like postgresql://"),
        (SOURCE + "connection_url = 5", 3, "neither text nor a reference"),
        (SOURCE + 'connection_url = { env = "" }', 3, "at least 1 character"),
        (SOURCE + 'connection_url = { env = "A", x = 1 }', 3, "unknown key 'source.connection_url.x'"),
        (SOURCE + '[source.connection_url]\nhots = "x"\ndatabase = "d"', 4, "Did you mean 'host'?"),
        (SOURCE + '[source.connection_url]\nhost = "x"', 3, "'source.connection_url.database' is missing"),
        (SOURCE + '[source.connection_url]\ndatabase = "x"\nport = 0', 5, "greater than or equal to 1"),
        (SOURCE + "[sinks.a]\n", 3, "'sinks.a' has no type"),
        (SOURCE + '[sinks.a]\ntype = "kafka"', 3, "'sinks.a': unknown type 'kafka'"),
        (SOURCE + '[sinks.a]\ntype = "opensearch"\nbatch_size = 0', 5, "'sinks.a.batch_size'"),
        (SOURCE + '[sinks.a]\ntype = "opensearch"\nbatchsize = 1', 5, "Did you mean 'batch_size'?"),
        (SOURCE + '[sinks.a]\ntype = "opensearch"\nrefresh_interval = "soon"', 5, "a duration like"),
        (SOURCE + '[sinks.A]\ntype = "opensearch"\npretty = true', 5, "unknown key 'sinks.a.pretty'"),
        (SOURCE + '[sinks."a b"]\ntype = "stdout"', 3, "'a b' is no name"),
        (SOURCE + '[sinks.a]\ntype = "stdout"\n[sinks.A]\ntype = "stdout"', 3, "the same name"),
        (SOURCE + '[[index]]\nname = "users"', 3, "'index[1].schema' is missing"),
        (SOURCE + '[[index]]\nname = "9"\nschema = "users.schema.yml"', 4, "is no name"),
        (SOURCE + '[[index]]\nname = "u"\nschema = "users.json"', 5, "a .yml or .yaml file"),
        (SOURCE + '[[index]]\nname = "u"\nschema = "no.yml"', 5, "no.yml of the index 'u' is not there"),
        (SOURCE + f'[[index]]\nname = "u"\nschema = "{"x" * 5000}.yml"', 5, "is not there"),
        (SOURCE + '[[index]]\nname = "_u"\nschema = "users.schema.yml"', 4, "begins with _"),
        (SOURCE + '[[index]]\nname = "u"\nschema = "users.schema.yml"\nenabled = 1', 6, "boolean"),
        ('on_error = "stpo"\n' + SOURCE, 1, "'on_error' must be 'stop', 'skip' or 'quarantine'"),
        ('prefix = "_x"\n' + SOURCE, 1, "must begin with a lower-case letter"),
        (SOURCE + "[server]\npublic_address = '9464'", 4, "must be HOST:PORT"),
        (SOURCE + "[server]\npublic_address = 'x:99999'", 4, "must be HOST:PORT"),
        (SOURCE + "[backfill]\nrows_per_secnd = 1", 4, "Did you mean 'rows_per_second'?"),
        (SOURCE + "[generations]\nkep = 1", 4, "unknown key 'generations.kep'. Did you mean 'keep'?"),
        ("indexes = []\n" + SOURCE, 1, "unknown key 'indexes'. Did you mean 'index'?"),
    ],
)
def test_one_mistake(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(ErrorGroup) as raised:
        load(tmp_path, text)
    [error] = raised.value.errors
    assert f"headrace.toml:{line}: " in str(error)
    assert said in str(error)
    assert "\n" not in str(error)
    assert (error.kind, raised.value.exit_code) == (Kind.CONFIG, 2)


def test_an_index_that_stands_twice(tmp_path: Path) -> None:
    entry = '[[index]]\nname = "{}"\nschema = "users.schema.yml"\n'
    with pytest.raises(
        ErrorGroup, match=r"headrace.toml:7: the index 'users' stands twice \(first in line 4"
    ):
        load(tmp_path, SOURCE + entry.format("users") + entry.format("USERS"))


def test_values_without_a_file_have_no_lines(tmp_path: Path) -> None:
    (tmp_path / "users.schema.yml").touch()
    entry = {"name": "users", "schema": str(tmp_path / "users.schema.yml")}
    with pytest.raises(ErrorGroup) as raised:
        deployment_of({"source": {"type": "postgres"}, "index": [entry, entry]}, {})
    assert "deployment: the index 'users' stands twice. Rename" in str(raised.value)


def test_all_mistakes_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ErrorGroup) as raised:
        load(tmp_path, 'prefx = ""\n[source]\ntype = "postgres"\nslot = "A"\n[sinks.a]\ntype = "x"\n')
    assert [str(error).split("toml:")[1].split(":")[0] for error in raised.value.errors] == ["1", "4", "5"]
    assert len(str(raised.value).splitlines()) == 3
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[source\n", "headrace.toml:1:8: not TOML: "),
        ("a = 1\na = 2\n", "headrace.toml:2:"),
        ("a = 'x", "not TOML"),
        ("a = " + "[" * 5000, "headrace.toml"),
        ("a = " + "9" * 5000, "not TOML"),
    ],
)
def test_no_toml(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(HeadraceError) as raised:
        load(tmp_path, text)
    assert said in str(raised.value)
    assert raised.value.kind is Kind.CONFIG


def test_no_file_and_no_utf8(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="cannot be read: No such file"):
        load_deployment(tmp_path / "absent.toml", {})
    file = tmp_path / "latin.toml"
    file.write_bytes(b"a = 1\nb = '\xe9'\n")
    with pytest.raises(HeadraceError, match=r"latin.toml:2:6: byte 0xe9 is not UTF-8"):
        load_deployment(file, {})


def test_a_password_is_never_in_an_error(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError) as raised:
        load(tmp_path, SOURCE + '[sinks.a]\ntype = "opensearch"\npassword = ["hunter2"]\nurl = 5\n')
    assert "hunter2" not in str(raised.value)
    with pytest.raises(HeadraceError) as raised:
        load(tmp_path, SOURCE + 'connection_url = "mysql://u:hunter2@h"')
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in repr(raised.value.__context__)


_WORDS = st.sampled_from(
    [
        "[source]\n", 'type = "postgres"\n', "[[index]]\n", 'name = "a"\n', 'schema = "b.yml"\n',
        "[sinks.a]\n", 'type = "opensearch"\n', "url = ", '"x"\n', "{ env = ", "}", "[", "]", "= 1\n", "\n",
        "connection_url", '"""', "'''", "#", "prefix", ".", "2024-01-01", "server", "nan", "-inf", "\\u0000",
        "true",
    ]
)  # fmt: skip


def outcome(file: Path) -> Deployment | HeadraceError:
    """What loading gives; any other exception ends the test."""
    try:
        return load_deployment(file, {})
    except HeadraceError as error:
        return error


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.one_of(st.text(), st.lists(_WORDS).map("".join)).map(lambda text: text.encode("utf-8", "replace"))
)
@example(text=b'[source]\ntype = "postgres"\n[sinks]\na = 1')
@example(text=b'[source]\ntype = "postgres"\n[[index]]\nname = "a"\nschema = "\\u0000.yml"')
@example(text=b"sinks = 1\nindex = {}\n[source]\ntype = []")
@example(text=b'[source]\ntype = "postgres"\n[sinks."<env>"]\n"<env>" = 1')
def test_any_text_is_a_deployment_or_our_error(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "any.toml"
    file.write_bytes(text)
    result = outcome(file)
    assert isinstance(result, Deployment) or result.kind is Kind.CONFIG


def test_what_a_backfill_may_take_and_what_is_kept(tmp_path: Path) -> None:
    least = load(tmp_path, SOURCE)
    assert (least.backfill.rows_per_second, least.backfill.connections, least.generations.keep) == (
        None,
        None,
        1,
    )
    more = "[backfill]\nrows_per_second = 500\nconnections = 2\n[generations]\nkeep = 0\n"
    found = load(tmp_path, SOURCE + more)
    assert (found.backfill.rows_per_second, found.backfill.connections, found.generations.keep) == (500, 2, 0)
    for wrong in ("[backfill]\nconnections = 0\n", "[generations]\nkeep = -1\n", "[backfill]\nrows = 1\n"):
        with pytest.raises(ErrorGroup, match=r"headrace.toml"):
            load(tmp_path, SOURCE + wrong)


def test_how_long_a_snapshot_is_held_and_what_a_gap_does(tmp_path: Path) -> None:
    least = load(tmp_path, SOURCE)
    assert (least.backfill.snapshot_minutes, least.source.on_gap) == (10.0, "reseed")
    found = load(tmp_path, SOURCE + 'on_gap = "stop"\n[backfill]\nsnapshot_minutes = 3\n')
    assert (found.backfill.snapshot_minutes, found.source.on_gap) == (3.0, "stop")
    for wrong in ('on_gap = "go on"\n', "[backfill]\nsnapshot_minutes = -1\n"):
        with pytest.raises(ErrorGroup, match=r"headrace.toml"):
            load(tmp_path, SOURCE + wrong)


CONTROL = '[source]\ntype = "postgres"\n[control]\n'
TOKEN = '[[control.tokens]]\nname = "ada"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TOKEN, "needs exactly one of token_file, token_env and token_command"),
        (TOKEN + 'token_env = "A"\ntoken_file = "b"\n', "needs exactly one of"),
        (
            TOKEN + 'token_env = "A"\nscope = "admin"\n',
            "'control.tokens[1].scope' must be 'read' or 'operate'",
        ),
        (TOKEN + 'token = "0123456789abcdef"\n', "unknown key 'control.tokens[1].token'"),
        ('[[control.tokens]]\nname = "a b"\ntoken_env = "A"\n', "'control.tokens[1].name'"),
        ((TOKEN + 'token_env = "A"\n') * 2, "two tokens have the same name"),
        ('certificate_file = "a.pem"\n', "certificate_file and key_file belong together"),
        ('allowed_hosts = ["http://a"]\n', "'control.allowed_hosts[1]'"),
    ],
)
def test_what_is_wrong_about_the_private_address_is_told_in_one_line(
    text: str, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(CONTROL + text)
    with pytest.raises(HeadraceError) as caught:
        load_deployment(file, {})
    assert problem in str(caught.value)
    assert "0123456789abcdef" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
