"""The page as it is served: its files, its addresses and its headers, on files that stand for the built ones."""

import gzip
import re
from pathlib import Path

import pytest

from headgate.web import index_page, page
from tests.unit.web.stage import Answer, Stage

UI = Path(__file__).parents[3] / "ui"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<title>the page</title>")
    (tmp_path / "icon.svg").write_text("<svg/>")
    (tmp_path / "assets" / "index-1a.js").write_text("run();" * 1_000)
    (tmp_path / "assets" / "index-2b.css").write_text("a {}")
    monkeypatch.setattr(page, "ROOT", tmp_path)
    return Stage(is_read_open=False)


def policy(answer: Answer) -> dict[str, str]:
    return dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/map",
        "/apps/-/a.b",
        "/topics/-/a/b",
        "/groups/c1/sg",
        "/health",
        "/apps/-/%2e%2e",
        "/topics/-/\u202e",
        "/map/\r\nb\x00",
    ],
)
async def test_every_address_of_a_view_is_the_page_without_a_token(built: Stage, path: str) -> None:
    answer = await built.call("GET", path)
    assert (answer.status, answer.body) == (200, b"<title>the page</title>")
    assert answer.headers["cache-control"] == "no-cache"


async def test_only_files_of_this_server_are_loaded_and_run(built: Stage) -> None:
    found = policy(await built.call("GET", "/map"))
    assert found["default-src"] == found["frame-ancestors"] == found["base-uri"] == found["form-action"] == "'none'"
    assert found["script-src"] == found["worker-src"] == found["connect-src"] == "'self'"
    assert "unsafe" not in " ".join(found.values())


@pytest.mark.parametrize(
    ("path", "media_type"),
    [("/assets/index-1a.js", "text/javascript"), ("/assets/index-2b.css", "text/css"), ("/icon.svg", "image/svg+xml")],
)
async def test_files_have_their_type_and_are_not_sniffed(built: Stage, path: str, media_type: str) -> None:
    answer = await built.call("GET", path)
    assert answer.status == 200
    assert answer.headers["content-type"].split(";")[0] == media_type
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert ("immutable" in answer.headers["cache-control"]) == path.startswith("/assets/")


@pytest.mark.parametrize(
    "path",
    [
        "/assets/",
        "/assets/../index.html",
        "/assets/..%2findex.html",
        "/assets/none.js",
        "/map.js",
        "/nothing",
        "/index.html",
    ],
)
async def test_other_paths_are_404(built: Stage, path: str) -> None:
    assert (await built.call("GET", path)).status == 404


LARGE = "/assets/index-1a.js"


@pytest.mark.parametrize("accepted", ["gzip", "deflate, gzip;q=0.5", "br, GZIP", "*"])
async def test_a_large_file_is_compressed_for_those_who_accept_it(built: Stage, accepted: str) -> None:
    plain = await built.call("GET", LARGE)
    packed = await built.call("GET", LARGE, headers={"accept-encoding": accepted})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) == int(packed.headers["content-length"]) < len(plain.body) / 10
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert {**packed.headers, "content-type": ""}.keys() - plain.headers.keys() == {"content-encoding"}


@pytest.mark.parametrize(
    "accepted", ["", "br", "gzip;q=0", "identity, gzip; q=0.000", "*;q=0", "gzip;q=0, *", "gzip;q=x"]
)
async def test_others_get_the_file_as_it_is(built: Stage, accepted: str) -> None:
    answer = await built.call("GET", LARGE, headers={"accept-encoding": accepted})
    assert "content-encoding" not in answer.headers
    assert answer.body == b"run();" * 1_000


async def test_what_is_small_is_not_compressed(built: Stage) -> None:
    for path in ("/", "/icon.svg", "/assets/index-2b.css"):
        answer = await built.call("GET", path, headers={"accept-encoding": "gzip"})
        assert "content-encoding" not in answer.headers
        assert "vary" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/map", "/icon.svg", LARGE])
@pytest.mark.parametrize("accepted", ["", "gzip"])
async def test_a_file_that_the_browser_has_is_not_sent_again(built: Stage, path: str, accepted: str) -> None:
    first = await built.call("GET", path, headers={"accept-encoding": accepted})
    etag = first.headers["etag"]
    again = await built.call("GET", path, headers={"accept-encoding": accepted, "if-none-match": f'"old", W/{etag}'})
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", etag)
    assert again.headers["cache-control"] == first.headers["cache-control"]
    assert again.headers.get("vary") == first.headers.get("vary")
    assert (await built.call("GET", path, headers={"if-none-match": '"old"'})).status == 200


async def test_the_forms_of_a_file_have_different_etags(built: Stage) -> None:
    plain = await built.call("GET", LARGE)
    packed = await built.call("GET", LARGE, headers={"accept-encoding": "gzip"})
    assert plain.headers["etag"] != packed.headers["etag"]
    crossed = {"accept-encoding": "gzip", "if-none-match": plain.headers["etag"]}
    assert (await built.call("GET", LARGE, headers=crossed)).status == 200


async def test_the_page_cannot_be_changed(built: Stage) -> None:
    assert (await built.call("POST", "/map")).status == 405


async def test_without_built_files_the_index_of_the_rest_interface_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "ROOT", tmp_path)
    answer = await Stage().call("GET", "/")
    assert (answer.status, answer.body.decode()) == (200, index_page.HTML)
    assert (await Stage().call("GET", "/map")).status == 404


def test_the_server_knows_the_views_of_the_page() -> None:
    source = (UI / "src" / "model" / "route.ts").read_text("utf-8")
    listed = re.search(r"export const VIEWS[^=]*= \[([^\]]*)\]", source)
    assert listed is not None
    assert set(re.findall(r'"(\w+)"', listed[1])) == {"now", *page.VIEWS}


def test_the_lock_file_names_no_registry() -> None:
    assert "resolved" not in (UI / "package-lock.json").read_text("utf-8")
