"""Taking a model apart in the app: from the button to the grid, the queue, what is kept, and what ends it."""

from __future__ import annotations

import base64
import io
import re
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from ccs import results
from ccs.errors import InputError
from ccs.ui.actions import change
from ccs.ui.app import App
from ccs.ui.page.opening import open_link
from ccs.ui.page.page import act, open_page, regions
from ccs.ui.service import apart
from ccs.ui.service.apart import Request, Run, Workshop
from ccs.ui.service.uploads import InputImage
from ccs.ui.session import Session
from ccs.ui.views import VIEWS
from tests.datasets.test_photographs import cells, parquet
from tests.support import ui_sample
from tests.support.hub_server import Hub
from tests.support.ui_page import check, printed

KEY = "0" * 16


def asked(images: str = "world", count: int = 20, **more: object) -> Request:
    return Request("tiny", "/models/tiny", "f" * 64, images, count, "world", **more)  # type: ignore[arg-type]


def ended(shop: Workshop, key: str) -> Run:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        run = shop.run(key)
        assert run is not None
        if run.ended:
            return run
        time.sleep(0.02)
    pytest.fail("the run did not end")


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Runs that write made-up tables at once; the command lines given."""
    given: list[list[str]] = []

    def compute(run: Run, arguments: list[str], folder: Path) -> None:
        given.append(list(arguments))
        ui_sample.write(folder / arguments[arguments.index("--out") + 1], "tiny", "f" * 64)

    monkeypatch.setattr(apart, "_compute", compute)
    return given


def test_the_same_question_is_computed_once_and_kept(tmp_path: Path, computed: list[list[str]]) -> None:
    shop, request = Workshop(tmp_path), asked()
    assert not ended(shop, shop.ask(request).key).error
    assert shop.results(request.key).model == "tiny"
    again = Workshop(tmp_path)  # after a restart
    assert again.ask(request).ended
    assert len(computed) == 1
    assert asked(count=30).key != request.key != asked("hf://datasets/a/b").key
    with zipfile.ZipFile(io.BytesIO(again.archive(request.key))) as archive:
        archive.extractall(tmp_path / "unpacked")
    assert (
        results.read(tmp_path / "unpacked" / "tiny")
        .table("scores")
        .equals(shop.results(request.key).table("scores"))
    )


def test_what_was_asked_for_longest_ago_goes_first(tmp_path: Path, computed: list[list[str]]) -> None:
    shop = Workshop(tmp_path)
    sizes = []
    for count in (10, 20):
        ended(shop, shop.ask(asked(count=count)).key)
        sizes.append(sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
        time.sleep(0.02)
    assert shop.results(asked(count=10).key)  # asked for again: now the other is the oldest
    small = Workshop(tmp_path, limit=sizes[1] + 100)
    ended(small, small.ask(asked(count=30)).key)
    assert small.results(asked(count=20).key) is None
    assert small.results(asked(count=10).key)
    assert small.results(asked(count=30).key)


def test_uploads_leave_no_file_behind(tmp_path: Path, computed: list[list[str]]) -> None:
    pictures = tuple(InputImage("mine", Image.new("RGB", (9, 9), color)) for color in ("red", "blue"))
    shop, request = Workshop(tmp_path), asked("", 2, pictures=pictures)
    ended(shop, shop.ask(request).key)
    images = computed[0][computed[0].index("--images") + 1]
    assert images == f"uploads/{request.key}"  # what stands in the tables tells nothing of this machine
    assert not list(tmp_path.rglob("*.png"))
    assert request.key != asked("", 2).key


def test_a_queue_that_everyone_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def compute(run: Run, arguments: list[str], folder: Path) -> None:
        while not go.wait(0.01):
            if run.canceled:
                raise InputError("It was canceled.")
        ui_sample.write(folder / arguments[arguments.index("--out") + 1], "tiny", "f" * 64)

    monkeypatch.setattr(apart, "_compute", compute)
    shop = Workshop(tmp_path)
    first = shop.ask(asked(count=10))
    while not first.began:
        time.sleep(0.01)
    waiting = [shop.ask(asked(count=count)) for count in range(11, 11 + apart.QUEUE)]
    assert [shop.ahead(run) for run in (first, *waiting[:2])] == [0, 1, 2]
    with pytest.raises(InputError, match="already waiting to be taken apart"):
        shop.ask(asked(count=99))
    assert shop.ask(asked(count=11)) is waiting[0]  # who asks for the same waits for the same
    shop.leave(waiting[0].key)
    assert not waiting[0].canceled  # somebody still waits for it
    shop.leave(first.key)
    shop.leave(waiting[1].key)
    waiting[2].asked -= 2 * apart.LEFT  # nobody looks any more
    go.set()
    ended(shop, waiting[4].key)
    assert first.canceled
    assert (waiting[0].ended, waiting[1].ended, waiting[2].ended, waiting[3].ended) == (
        True,
        False,
        False,
        True,
    )
    assert shop.results(waiting[3].key)


@pytest.mark.parametrize("key", ["", "../../../etc", "zz" * 8, "0" * 16, "0" * 64])
def test_a_key_that_is_none_selects_nothing(tmp_path: Path, key: str) -> None:
    assert Workshop(tmp_path).results(key) is None


def test_a_run_that_fails_is_told_in_a_sentence(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    request = Request("tiny", str(tmp_path / "nothing"), "f" * 64, "world", 4, "world")
    assert "There is no model" in ended(shop, shop.ask(request).key).error


@pytest.fixture
def tiny_app(tiny_folder: Path, tmp_path: Path, hub: Hub) -> App:
    """The app without any tables, beside a Hub with a set of photographs."""
    hub.put("datasets", "user/photos", {"data/train-0000.parquet": parquet(cells(0, 24))})
    (tmp_path / "none").mkdir()
    return App(results.load(tmp_path / "none"), tmp_path, given=[str(tiny_folder)], first=str(tiny_folder))


def until(app: App, session: Session, done: Callable[[Session], bool]) -> dict[str, str]:
    """Ask as the page does, once in a while, until it is over; the statuses seen are in `seen`."""
    for _ in range(1500):
        *_, (_, shown) = act(app, session, {"do": "poll"})
        if done(session):
            return shown
        time.sleep(0.1)
    pytest.fail("it did not end")


def test_from_the_button_to_the_grid(tiny_app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = open_link(tiny_app, {})
    tiny_app.model_cache.get("tiny")
    fields = {"images": "", "own": "user/photos:train", "count": "20", "texts": "world"}
    *_, (_, shown) = act(tiny_app, session, {"do": "apart", **fields})
    assert "Taking tiny apart" in shown["status"]
    assert "data-cancel" not in shown["status"]
    reloaded = [one for one, _ in open_page(tiny_app, {"model": "tiny", "apart": session.state.apart})][-1]
    assert reloaded.apart == session.apart  # the link finds the run again
    list(act(tiny_app, reloaded, {"do": "apart-stop"}))
    assert tiny_app.workshop.run(session.apart)  # which goes on for the other
    shown = until(tiny_app, session, lambda one: not one.apart)
    assert session.notices == []
    assert re.fullmatch("[0-9a-f]{16}", session.state.apart)
    found = tiny_app.shown(session.state)
    assert len(found.heads) == 16
    assert all(record.k == 5 and record.label for record in found.heads.values())
    assert found.manifest["images"]["count"] == 20
    assert found.manifest["images"]["source"].startswith("hf://datasets/user/photos:train at ")
    assert found.manifest["judges"][0]["name"] == "tags"
    left = session.shown["left"]
    check(left)
    packed = base64.b64decode(re.search(r'data-zip="([^"]+)"', left)[1])
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert "tiny/scores.parquet" in archive.namelist()
        archive.extractall(tmp_path / "unpacked")
    # "Copy as Python" reads these tables from where they were unpacked.
    monkeypatch.chdir(tmp_path / "unpacked")
    head = max(found.heads)
    change(session, head=head, tab="judges")
    assert "unpack it here" in VIEWS["judges"].snippet(tiny_app, session)
    assert "tags 80 texts" in "\n".join(printed(VIEWS["judges"].snippet(tiny_app, session)))
    tables_alone = VIEWS["heads"].snippet(tiny_app, session).partition("import ccs")[0]
    assert found.head(head).texts[0].text in "\n".join(printed(tables_alone))
    # The model has learned from photographs, and there are only drawn images to rank.
    change(session, tab="heads")
    assert "Only drawn images are at hand" in regions(tiny_app, session)["main"]
    # A link to the screen shows the same tables to anyone; closing them, the model is as it was.
    other = open_link(tiny_app, {"model": "tiny", "apart": session.state.apart})
    assert tiny_app.shown(other.state).heads == found.heads
    act_list = list(act(tiny_app, other, {"do": "apart-close"}))
    assert act_list
    assert not tiny_app.shown(other.state).heads
    # Asked for once more, it is there at once.
    *_, (_, shown) = act(tiny_app, other, {"do": "apart", **fields})
    assert other.state.apart == session.state.apart


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"count": "1"}, "1 photographs are asked for"),
        ({"count": "999999"}, "999999 photographs"),
        ({"images": "/etc"}, "There is no set of photographs"),
        ({"own": "/etc/passwd"}, "is no data set of the Hub"),
        ({"images": "uploads"}, "At least 2 images of your own"),
        ({"texts": "/etc/passwd"}, "There is no pool of texts"),
    ],
)
def test_what_cannot_be_asked_for(tiny_app: App, fields: dict[str, str], words: str) -> None:
    session = open_link(tiny_app, {})
    tiny_app.model_cache.get("tiny")
    given = {"images": "drawn scenes", "own": "", "count": "20", "texts": "world"}
    list(act(tiny_app, session, {"do": "apart", **given, **fields}))
    assert words in session.notices[0]
    assert not session.apart


def test_a_machine_without_memory_says_so(tiny_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccs.ui.page import apart as page

    session = open_link(tiny_app, {})
    tiny_app.model_cache.get("tiny")
    monkeypatch.setattr(page, "free_memory", lambda: 10**9)
    list(act(tiny_app, session, {"do": "apart", "images": "drawn scenes", "count": "20", "texts": "world"}))
    assert "needs about 1.1 GB of memory, and this machine has 1.0 GB free" in session.notices[0]
