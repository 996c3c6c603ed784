"""Who says which head carries the bias: the figure of the view Bias, from a table of rankings."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd

from ccs import HeadSet
from ccs.results.localization import PLANTED
from ccs.ui.views.bias.bias_figures import located

ORDERS = {"search": "L4.H1 L5.H2 L4.H0", "CCS high first": "L4.H0 L4.H1 L5.H2", PLANTED: "L4.H1"}
QUERY = SimpleNamespace(gallery=SimpleNamespace(name="world/faces"), attribute="gender")
MODEL = SimpleNamespace(name="organism-planted", weights_hash="a" * 64)


def shown(query=QUERY, model=MODEL, off=""):
    rows = [
        {"model": "organism-planted", "weights": "a" * 16, "dataset": "world/faces", "attribute": "gender"}
        | {"method": method, "layer": int(head[1]), "head": int(head[4]), "rank": rank}
        for method, heads in ORDERS.items()
        for rank, head in enumerate(heads.split(), 1)
    ]
    app = SimpleNamespace(collection=SimpleNamespace(localization=pd.DataFrame(rows)))
    return list(located(app, query, model, HeadSet.parse(off)))


def test_every_way_shows_its_first_heads_and_where_those_that_are_off_stand():
    (figure,) = shown(off="L4.H0 L7.H3")
    rows = {row[0]: row[1:] for row in figure.rows}
    assert rows["search"] == ["L4.H1* L5.H2 L4.H0", "L4.H0: 3, L7.H3: –"]
    assert rows["CCS high first"] == ["L4.H0 L4.H1* L5.H2", "L4.H0: 1, L7.H3: –"]
    assert PLANTED not in rows
    page = figure.__html__()
    assert "ranks all 3 heads" in page
    assert "planted, in L4.H1" in page
    assert "<td>L4.H1* L5.H2 L4.H0</td>" in page


def test_there_is_no_figure_for_what_was_not_localized():
    assert shown(model=SimpleNamespace(name="organism-planted", weights_hash="b" * 64)) == []
    assert shown(query=SimpleNamespace(gallery=QUERY.gallery, attribute="skin tone")) == []
