"""Results from strangers: what cannot be read is left out in one sentence, and what is read stays bounded."""

import shutil
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ccs
from ccs import InputError, files, results
from ccs.app.services import model_cache, records
from ccs.app.session import App
from ccs.results import searches
from tests.support.corruptions import delete_file, replace_file, set_json
from tests.support.results_sample import write_sample_results

MANIFEST = "manifest.json"
manifest = partial(set_json, MANIFEST)


def table_is(name, change):
    """Another table, with the hash that belongs to its file."""

    def spoil(folder):
        path = folder / f"{name}.parquet"
        change(path, pq.read_table(path))
        manifest(**{f"tables__{name}__sha256": files.sha256(path)})(folder)

    return spoil


def spans_are(change):
    return table_is("spans", lambda path, table: pq.write_table(change(table), path))


def column_is(name, value):
    """This value in all rows."""

    def change(table):
        index, values = table.column_names.index(name), pa.array([value] * len(table))
        return table.set_column(index, table.schema.field(name).with_type(values.type), values)

    return spans_are(change)


def schema_is(**metadata):
    return spans_are(lambda table: table.replace_schema_metadata(metadata))


def a_cell_in_each_row(path, table):
    """A cell of a megabyte in each of 10,000 rows, which a dictionary holds once."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), ["x" * 2**20])
    columns = {name: table[name].take([0] * 10_000) for name in table.column_names}
    columns = pa.table(columns | {"text": texts})
    with pq.ParquetWriter(path, columns.schema.remove_metadata(), store_schema=False) as writer:
        writer.write_table(columns)
        writer.add_key_value_metadata(table.schema.metadata)


SPOILT = {
    "no manifest": (delete_file(MANIFEST), "holds no manifest.json"),
    "a deep manifest": (replace_file(MANIFEST, b"[" * 1_000_000), "not readable JSON"),
    "a manifest of nine megabytes": (replace_file(MANIFEST, b" " * 9 * 2**20), "too large for a manifest"),
    "another schema": (manifest(schema_version=99), "schema version 99"),
    "no seeds": (manifest(seeds=None), "'seeds': Field required"),
    "a path": (manifest(model__name="/etc"), "not the name of a model"),
    "a name with a direction mark": (manifest(model__name="a\u202eb"), "not the name of a model"),
    "a judge with a list for a name": (manifest(judges=[{"name": ["x"]}]), "'judges.0.name'"),
    "a chance of NaN": (manifest(chance_ccs=[float("nan")]), "'chance_ccs.0'"),
    "a table outside": (manifest(tables={"../../etc/passwd": {}}), "'tables.../../etc/passwd"),
    "another hash": (manifest(tables__spans__sha256="0" * 64), "not the file that its manifest describes"),
    "a table that is not there": (delete_file("spans.parquet"), "is not there"),
    "no parquet": (table_is("spans", lambda path, _: path.write_bytes(b"PAR1" * 9)), "cannot be read"),
    "another table": (schema_is(ccs_table="labels", ccs_schema="0"), "not a table of results under the name"),
    "no schema of ours": (schema_is(), "not a table of results"),
    "an older table": (schema_is(ccs_table="spans", ccs_schema="0"), "version 0 and this"),
    "a column too many": (spans_are(lambda t: t.append_column("x", t["text"])), "has unknown columns: x"),
    "a column too few": (spans_are(lambda t: t.drop_columns("concept")), "lacks the columns concept"),
    "texts that are numbers": (column_is("text", 1), "other types"),
    "a layer of 10^12": (column_is("layer", 10**12), "column layer"),
    "two million rows": (spans_are(lambda t: t.take([0] * 2_000_000)), "is too large: 2,000,000 rows"),
    "NaN where no cell is empty": (column_is("share", float("nan")), "empty cells in column share"),
    "rows of another model": (column_is("model", "other"), "other rows, models, or weights"),
    "rows of other weights": (column_is("weights", "f" * 16), "other rows, models, or weights"),
    "another number of rows": (manifest(tables__spans__rows=7), "other rows, models, or weights"),
    "equal rows": (spans_are(lambda t: t.take([0, 0])), "two rows for"),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_spoilt_results_are_left_out_in_a_sentence(tmp_path, kind):
    spoil, message = SPOILT[kind]
    folder = tmp_path / "collection"
    write_sample_results(folder, "good", only=("labels",))
    spoil(write_sample_results(folder, "spoilt", only=("spans",)))
    collection = results.load(folder)
    assert set(collection.models) == {"good"}
    (notice,) = collection.notices
    assert message in notice
    assert str(tmp_path) not in notice
    assert len(notice) < 500


def test_a_copy_of_a_models_folder_is_named(tmp_path):
    write_sample_results(tmp_path, "good", only=("labels",))
    shutil.copytree(tmp_path / "good", tmp_path / "good copy")
    collection = results.load(tmp_path)
    assert collection.models["good"].folder.name == "good"
    assert collection.notices == ("good copy is left out: good holds good, too.",)


def test_a_search_for_heads_that_are_not_there_is_left_out(tmp_path):
    shutil.copytree(results.PRECOMPUTED / "organism", tmp_path / "organism")
    shutil.copy(results.PRECOMPUTED / "organism.search.json", tmp_path)
    collection = results.read_results(tmp_path / "organism")
    searches_of_model = records.ModelRecords(**vars(collection)).searches
    assert len(searches_of_model) == 2
    searches.keep(tmp_path, replace(searches_of_model[0], heads=ccs.HeadSet.parse("L4.H0 L99.H0")))
    assert records.ModelRecords(**vars(collection)).searches == searches_of_model[1:]


def test_a_large_cell_in_each_row_is_not_written_out(tmp_path):
    folder = write_sample_results(tmp_path, "spoilt", only=("spans",))
    table_is("spans", a_cell_in_each_row)(folder)
    assert (folder / "spans.parquet").stat().st_size < 3 * 2**20
    collection = results.load(tmp_path)
    assert not collection.models
    assert "cannot be read within 1,024 MB of memory" in collection.notices[0]


@pytest.mark.parametrize("place", ["/etc", "hf-hub:user/model", "{}"])
def test_results_do_not_say_where_weights_are(tiny_folder, tmp_path, place):
    """Not by their files for this machine either, which a stranger's folder may hold too."""
    write_sample_results(tmp_path, "theirs", only=("spans",))
    noted = tmp_path / results.STAGES / "theirs" / "place.txt"
    noted.parent.mkdir(parents=True)
    noted.write_text(place.format(tiny_folder))
    with pytest.raises(InputError, match="weights of theirs are not loaded here"):
        App(results.load(tmp_path)).model_cache.get("theirs")


@pytest.mark.parametrize("name", ["tiny", "no/such", "hf-hub:user/tiny", "organism ", "ViT-B-32/nobody", "."])
def test_a_table_selects_no_folder_and_no_repository(tiny_folder, monkeypatch, name):
    """A folder of that name lies where the app runs; a table that names it does not load it."""
    monkeypatch.chdir(tiny_folder.parent)
    monkeypatch.setattr(ccs, "load", lambda place: pytest.fail(f"{place} was loaded"))
    with pytest.raises(InputError) as caught:
        model_cache.ModelCache({}, lambda name: ()).get(name)
    assert str(tiny_folder.parent) not in str(caught.value)
