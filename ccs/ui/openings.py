"""The opening screens, the same for everyone: computed once after a start, and kept on the disk.

Whoever opens one gets it at once, after a restart before PyTorch is imported. They are named by all that
they are made of, so what has changed since is not shown.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ccs.errors import InputError
from ccs.files import write_text

if TYPE_CHECKING:
    from ccs.results import Collection
    from ccs.ui.session import App

log = logging.getLogger(__name__)

BARE = "start"  # the view that the bare address opens
TABS = ("bias", BARE, "heads")
"""The views that are opened ahead, in this order: what Bias looks at takes longest, and Start has it too."""
_PARTS = (".py", ".html", ".txt", ".json")


class Openings:
    """The opening screens of an app: its tables, the models offered and the first of them."""

    def __init__(self, found: Collection, given: Sequence[str], first: str) -> None:
        from huggingface_hub import constants

        about: list[object] = [found.source, found.notices, given, first, constants.HF_HOME]
        about += [[name, results.manifest] for name, results in sorted(found.models.items())]
        digest = hashlib.sha256(json.dumps(about, default=str).encode())
        for path in sorted(Path(__file__).parents[1].rglob("*")):
            if path.suffix in _PARTS:
                digest.update(path.read_bytes())
        self._file = Path(constants.HF_HOME) / "clip-ccs" / "openings" / f"{digest.hexdigest()[:16]}.json"
        self._kept = not any(
            Path(place).exists() for place in (*given, first)
        )  # a folder's weights may change

    def find(self, query: Mapping[str, str]) -> dict[str, str] | None:
        """The regions of the screen that an address opens, where they are kept."""
        asked = {name: value for name, value in query.items() if not name.startswith("__")}
        tab = asked.pop("tab", BARE)
        try:
            kept: dict[str, dict[str, str]] = json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return None if asked else kept.get(tab)

    def make(self, app: App) -> None:
        """Compute the screens ahead of the first visitor, and keep them for the next start."""
        from ccs.ui.clicks import open_page
        from ccs.ui.links import open_link
        from ccs.ui.service.galleries import world
        from ccs.ui.views.start import claim_of

        try:
            for _ in app.model_cache.loading(app.first, seconds=3600):
                pass
            found: dict[str, dict[str, str]] = {tab: {} for tab in TABS}
            for tab in TABS:
                for _, html in open_page(app, {} if tab == BARE else {"tab": tab}):
                    found[tab] |= html
            own, model = world(app.first), app.model_cache.get(app.first)
            if self._kept and app.galleries.has(own.people) and app.galleries.has(own.pictures):
                write_text(self._file, json.dumps(found))
            # The button of Start has one answer for everyone too.
            claim = claim_of(open_link(app, {}))
            for _ in app.galleries.pruned(model, own.people, claim.off):
                pass
        except InputError as error:
            log.warning("the opening screens are not kept: %s", error)
