"""Which Java and which jars are used, and the errors when they are missing."""

import os
from pathlib import Path

import pytest

from headgate.base.errors import PlatformError
from headgate.base.ids import NodeId
from headgate.embedded.java import KafkaJvm, archive_of, archive_options, class_path, find_java, jars_folder
from headgate.embedded.spec import ClusterSpec


def runtime(home: Path, *, release: str | None = None, says: str = "") -> Path:
    """A folder that looks like a Java runtime."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\n")
    java.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return java


def test_java_home_counts_before_path(tmp_path: Path) -> None:
    java = runtime(tmp_path / "home", release='IMPLEMENTOR="x"\nJAVA_VERSION="21.0.2"\n')
    other = runtime(tmp_path / "other", release='JAVA_VERSION="17.0.1"\n')
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)})
    assert (found.command, found.version) == (java, 21)
    assert find_java({"PATH": str(other.parent)}).version == 17


def test_a_runtime_without_a_release_file_is_asked(tmp_path: Path) -> None:
    runtime(tmp_path, says='openjdk version "17.0.15" 2025-04-15')
    assert find_java({"JAVA_HOME": str(tmp_path)}).version == 17


@pytest.mark.parametrize(
    ("release", "says", "text"),
    [
        ('JAVA_VERSION="11.0.2"\n', "", "is Java 11, and Kafka needs 17"),
        (None, 'java version "1.8.0_392"', "is Java 8, and Kafka needs 17"),
        (None, "hello", "does not print its version"),
    ],
)
def test_an_old_or_unknown_java_is_rejected(tmp_path: Path, release: str | None, says: str, text: str) -> None:
    runtime(tmp_path, release=release, says=says)
    with pytest.raises(PlatformError, match=text):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="install Java 17 or newer"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(PlatformError, match=f"JAVA_HOME is {tmp_path}"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_our_own_jars_come_first_and_the_rest_in_order(tmp_path: Path) -> None:
    for name in ("headgate-oracle.jar", "clients/b.jar", "clients/a.jar", "clients/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = ["headgate-oracle.jar", "clients/a.jar", "clients/b.jar"]
    assert class_path("clients", "oracle", jars=tmp_path) == os.pathsep.join(str(tmp_path / name) for name in names)


def test_a_broker_starts_from_the_class_archive_if_there_is_one(tmp_path: Path) -> None:
    archive = archive_of("broker", tmp_path)
    jvm = KafkaJvm(java=Path("java"), jars="a.jar", archive=archive, spec=ClusterSpec(data_dir=tmp_path, port=20_000))
    assert archive_options(archive) == []
    assert not any("SharedArchiveFile" in str(one) for one in jvm.command(NodeId(0), "kafka.Kafka"))
    archive.touch()
    assert f"-XX:SharedArchiveFile={tmp_path}/broker.jsa" in jvm.command(NodeId(0), "kafka.Kafka")


def test_jars_come_from_headgate_jars_or_from_the_source_checkout(tmp_path: Path) -> None:
    assert jars_folder({"HEADGATE_JARS": "/jars"}, tmp_path) == Path("/jars")
    with pytest.raises(PlatformError, match="set HEADGATE_JARS to a folder with broker/, clients/ and spark/"):
        jars_folder({}, tmp_path)  # an installed wheel
    (tmp_path / "pyproject.toml").touch()
    assert jars_folder({}, tmp_path) == tmp_path / "java" / "lib"


def test_missing_jars_are_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADGATE_JARS", raising=False)
    with pytest.raises(PlatformError, match=r"broker is missing.*: run `make setup` in"):
        class_path("broker", jars=tmp_path)
    monkeypatch.setenv("HEADGATE_JARS", str(tmp_path))
    with pytest.raises(PlatformError, match="broker does not exist: set HEADGATE_JARS"):
        class_path("broker")
