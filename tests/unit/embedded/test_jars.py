"""The list of jars, what Ivy is told, and what its failures mean."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from headrace.config.cache import cache_folder
from headrace.embedded.jars import (
    OPENSEARCH_3,
    Jar,
    Release,
    cached_jars,
    download_error,
    ivy_xml,
    java_options,
    parse_line,
    pinned_jars,
    settings_xml,
    verify,
)
from headrace.errors import HeadraceError, Kind
from support.releases import ELASTICSEARCH_7, OPENSEARCH_2


@pytest.mark.parametrize(
    ("release", "count"), [(OPENSEARCH_3, 120), (OPENSEARCH_2, 97), (ELASTICSEARCH_7, 84)]
)
def test_a_list_pins_different_files(release: Release, count: int) -> None:
    jars = pinned_jars(release)
    assert len({jar.file for jar in jars}) == len(jars) == count
    assert all(len(jar.sha256) == 64 for jar in jars)


def test_a_classifier_is_part_of_the_file_name() -> None:
    assert parse_line("ab org.x:y:1.2:linux").file == "y-1.2-linux.jar"
    assert parse_line("ab org.x:y:1.2").file == "y-1.2.jar"


def test_ivy_is_asked_for_every_jar_once_and_for_nothing_else() -> None:
    jars = [Jar("g", "a", "1", "", ""), Jar("g", "a", "1", "mac", ""), Jar("h", "a", "2", "", "")]
    tree = ET.fromstring(ivy_xml(jars))
    dependencies = tree.findall("dependencies/dependency")
    assert [d.get("org") for d in dependencies] == ["g", "h"]
    assert {d.get("transitive") for d in dependencies} == {"false"}
    assert [len(d.findall("artifact")) for d in dependencies] == [2, 1]


def test_a_mirror_takes_the_place_of_ivys_own_repository() -> None:
    assert "root=" not in settings_xml("")
    resolver = ET.fromstring(settings_xml("file:///mirror?a=1&b")).find("resolvers/ibiblio")
    assert resolver is not None
    assert resolver.get("root") == "file:///mirror?a=1&b"


def test_another_file_in_the_place_of_a_jar_is_refused(tmp_path: Path) -> None:
    jar = Jar("g", "a", "1", "", hashlib.sha256(b"right").hexdigest())
    (tmp_path / jar.file).write_bytes(b"right")
    verify(tmp_path, [jar])
    (tmp_path / jar.file).write_bytes(b"wrong")
    with pytest.raises(HeadraceError, match=r"a-1\.jar") as other:
        verify(tmp_path, [jar])
    assert other.value.kind is Kind.DOWNLOAD


def test_what_a_killed_download_has_left_goes_with_the_next_one(tmp_path: Path) -> None:
    ivy = tmp_path / "java"
    ivy.write_text("#!/bin/sh\nexit 1\n")
    ivy.chmod(0o755)
    cache = cache_folder({"XDG_CACHE_HOME": str(tmp_path)})
    left, present = cache / "jars-1.a.download", cache / "jars-2.b.download"
    for folder in (left, present):
        (folder / "lib").mkdir(parents=True)
    os.utime(left, (0, 0))
    with pytest.raises(HeadraceError) as caught:
        cached_jars("jars-2", [Jar("g", "a", "1", "", "")], ivy, {"XDG_CACHE_HOME": str(tmp_path)})
    assert caught.value.kind is Kind.DOWNLOAD
    assert [*cache.iterdir()] == [present]


def test_proxies_are_handed_on() -> None:
    options = java_options({"HTTPS_PROXY": "http://proxy.local:3128", "http_proxy": "proxy.local"})
    assert {"-Dhttps.proxyHost=proxy.local", "-Dhttps.proxyPort=3128"} <= set(options)
    assert {"-Dhttp.proxyHost=proxy.local", "-Dhttp.proxyPort=80"} <= set(options)


def test_what_is_reached_without_a_proxy_is_handed_on_and_a_wrong_port_is_told() -> None:
    assert "-Dhttp.nonProxyHosts=localhost|*.corp" in java_options({"no_proxy": "localhost, .corp"})
    with pytest.raises(HeadraceError) as caught:
        java_options({"https_proxy": "http://proxy.local:port"})
    assert caught.value.kind is Kind.CONFIG


def test_a_certificate_of_the_own_network_has_its_own_remedy() -> None:
    assert "trustStore" in download_error("Server access error: PKIX path building failed").remedy
    assert "HTTPS_PROXY" in download_error("Server access error: UnknownHostException").remedy
