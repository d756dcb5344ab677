"""Where files are: folders, and prefixes on an object store."""

import pickle
from pathlib import Path

import pytest

from headgate.base.locations import ObjectLocation, parse_location


def test_a_prefix_is_used_like_a_path() -> None:
    root = parse_location("s3://lake/headgate/tables/")
    assert root == ObjectLocation("lake", ("headgate", "tables"))
    assert str(root) == "s3://lake/headgate/tables"
    assert str(root / "changes" / "_delta_log/0.json") == "s3://lake/headgate/tables/changes/_delta_log/0.json"
    assert (str(root.parent), root.name) == ("s3://lake/headgate", "tables")
    assert str(root.with_name("checkpoints")) == "s3://lake/headgate/checkpoints"


def test_what_names_no_scheme_is_a_folder() -> None:
    assert parse_location("a/b") == Path("a/b")
    assert parse_location("/s3:/x") == Path("/s3:/x")


def test_the_options_of_its_store_go_with_it_and_are_never_shown() -> None:
    root = ObjectLocation("lake", ("a",), (("AWS_SECRET_ACCESS_KEY", "hidden"),))
    beneath = pickle.loads(pickle.dumps(root / "b"))
    assert beneath.options == root.options
    assert "hidden" not in f"{beneath} {beneath!r} {[beneath]}"


@pytest.mark.parametrize(
    "text",
    [
        *("s3://", "s3://lake", "s3://lake/", "s3://Lake/a", "s3://key:hidden@lake/a", "s3://hidden_/a"),
        *("s3://lake//a", "s3://lake/a/../hidden", "s3://lake/a b", "s3://lake/a?hidden", "s3://lake/*"),
        *("s3a://lake/a", "https://hidden/a", "", "a\0b", "s3://lake/" + "a" * 600),
    ],
)
def test_what_is_no_location_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="must") as refused:
        parse_location(text)
    assert "hidden" not in str(refused.value)
