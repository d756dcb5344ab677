"""A folder is ours, new, or refused; and a start that was cut short is begun anew."""

import json
import os
from pathlib import Path

import pytest

from headgate.base.errors import PlatformError, UsageError
from headgate.base.ids import ClusterId, NodeId
from headgate.embedded import data_dir

ID = ClusterId("4L6g3nShT-eMCtK--X86sw")


def claim(path: Path, brokers: int = 1) -> data_dir.ClaimedFolder:
    return data_dir.claim(path, brokers=brokers, new_id=ID)


def formatted(path: Path, brokers: int = 1, cluster_id: str = ID) -> Path:
    """A folder as a run that ended leaves it."""
    folder = claim(path, brokers)
    for node in range(brokers):
        home = folder.node_dir(NodeId(node))
        home.mkdir()
        (home / "meta.properties").write_text(f"#\n#Sun Nov 15\nnode.id={node}\nversion=1\ncluster.id={cluster_id}\n")
    folder.mark_formatted()
    folder.release()
    return path


def test_a_new_folder_is_made_and_not_yet_formatted(tmp_path: Path) -> None:
    folder = claim(tmp_path / "a" / "b")
    assert (folder.identity.cluster_id, folder.identity.formatted) == (ID, False)
    folder.release()


def test_a_formatted_folder_keeps_its_id(tmp_path: Path) -> None:
    formatted(tmp_path)
    folder = data_dir.claim(tmp_path, brokers=1, new_id=ClusterId("another"))
    assert (folder.identity.cluster_id, folder.identity.formatted) == (ID, True)
    folder.release()


def test_a_format_that_was_cut_short_is_begun_anew(tmp_path: Path) -> None:
    folder = claim(tmp_path, brokers=3)
    (folder.node_dir(NodeId(0)) / "x").mkdir(parents=True)
    folder.release()
    folder = claim(tmp_path, brokers=1)
    assert not folder.node_dir(NodeId(0)).exists()
    assert (folder.identity.brokers, folder.identity.formatted) == (1, False)
    folder.release()


def test_only_one_owner_at_a_time(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    with pytest.raises(UsageError, match=f"in use by process {os.getpid()}"):
        claim(tmp_path)
    folder.release()
    claim(tmp_path).release()


def test_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a cluster of 3 brokers and cannot be started with 1"):
        claim(formatted(tmp_path, brokers=3), brokers=1)


def test_a_node_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"belongs to node 0 of Kafka cluster other, and .* is cluster {ID}"):
        claim(formatted(tmp_path, cluster_id="other"))


def test_a_node_whose_files_are_gone_is_refused(tmp_path: Path) -> None:
    formatted(tmp_path, brokers=2)
    (tmp_path / "node-1" / "meta.properties").unlink()
    with pytest.raises(UsageError, match="node 1 is not whole"):
        claim(tmp_path, brokers=2)


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(UsageError, match="it holds letters"):
        claim(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "letters"]


def test_a_log_folder_of_kafka_itself_is_refused_by_its_cluster(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("cluster.id=theirs\n")
    with pytest.raises(UsageError, match="data of Kafka cluster theirs, which Headgate did not make"):
        claim(tmp_path)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match="is not a directory"):
        claim(file)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"cluster_id": "a", "brokers": 1, "formatted": true, "new": 1}'])
def test_a_damaged_identity_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(UsageError, match="damaged or of another version"):
        claim(tmp_path)


def test_a_folder_that_cannot_be_made_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PlatformError, match="cannot be used: Not a directory"):
        claim(tmp_path / "file" / "below")


def test_what_a_node_is_told_is_for_its_owner_only(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    file = folder.write_config(NodeId(0), "a=b\n")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("a=b\n", 0o600)
    assert json.loads((tmp_path / "cluster.json").read_text())["formatted"] is False
    folder.release()
