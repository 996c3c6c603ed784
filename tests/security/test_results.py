"""Untrusted results: unreadable ones are skipped with a notice, within bounded memory."""

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
set_manifest = partial(set_json, MANIFEST)


def change_table(name, change):
    """Change the file of a table, and its hash in the manifest."""

    def corrupt(folder):
        path = folder / f"{name}.parquet"
        change(path, pq.read_table(path))
        set_manifest(**{f"tables__{name}__sha256": files.sha256(path)})(folder)

    return corrupt


def change_spans(change):
    return change_table("spans", lambda path, table: pq.write_table(change(table), path))


def set_column(name, value):
    """Set a column to one value."""

    def change(table):
        index, values = table.column_names.index(name), pa.array([value] * len(table))
        return table.set_column(index, table.schema.field(name).with_type(values.type), values)

    return change_spans(change)


def set_schema(**metadata):
    return change_spans(lambda table: table.replace_schema_metadata(metadata))


def write_dictionary_bomb(path, table):
    """Write 10,000 rows whose cell of a megabyte is stored once, in a dictionary."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), ["x" * 2**20])
    columns = {name: table[name].take([0] * 10_000) for name in table.column_names}
    columns = pa.table(columns | {"text": texts})
    with pq.ParquetWriter(path, columns.schema.remove_metadata(), store_schema=False) as writer:
        writer.write_table(columns)
        writer.add_key_value_metadata(table.schema.metadata)


CORRUPTIONS = {
    "no manifest": (delete_file(MANIFEST), "holds no manifest.json"),
    "deeply nested manifest": (replace_file(MANIFEST, b"[" * 1_000_000), "not readable JSON"),
    "a manifest of nine megabytes": (replace_file(MANIFEST, b" " * 9 * 2**20), "too large for a manifest"),
    "another schema": (set_manifest(schema_version=99), "schema version 99"),
    "no seeds": (set_manifest(seeds=None), "'seeds': Field required"),
    "path as a model name": (set_manifest(model__name="/etc"), "not the name of a model"),
    "a name with a direction mark": (set_manifest(model__name="a\u202eb"), "not the name of a model"),
    "a judge with a list for a name": (set_manifest(judges=[{"name": ["x"]}]), "'judges.0.name'"),
    "NaN in chance_ccs": (set_manifest(chance_ccs=[float("nan")]), "'chance_ccs.0'"),
    "table outside the folder": (set_manifest(tables={"../../etc/passwd": {}}), "'tables.../../etc/passwd"),
    "wrong hash": (set_manifest(tables__spans__sha256="0" * 64), "not the file that its manifest describes"),
    "missing table": (delete_file("spans.parquet"), "is not there"),
    "not Parquet": (change_table("spans", lambda path, _: path.write_bytes(b"PAR1" * 9)), "cannot be read"),
    "table with another name": (
        set_schema(ccs_table="labels", ccs_schema="0"),
        "not a table of results under the name",
    ),
    "no schema": (set_schema(), "not a table of results"),
    "an older table": (set_schema(ccs_table="spans", ccs_schema="0"), "version 0 and this"),
    "extra column": (change_spans(lambda t: t.append_column("x", t["text"])), "has unknown columns: x"),
    "missing column": (change_spans(lambda t: t.drop_columns("concept")), "lacks the columns concept"),
    "numbers in place of texts": (set_column("text", 1), "other types"),
    "layer 10^12": (set_column("layer", 10**12), "column layer"),
    "two million rows": (change_spans(lambda t: t.take([0] * 2_000_000)), "is too large: 2,000,000 rows"),
    "NaN in a required column": (set_column("share", float("nan")), "empty cells in column share"),
    "rows of another model": (set_column("model", "other"), "other rows, models, or weights"),
    "rows of other weights": (set_column("weights", "f" * 16), "other rows, models, or weights"),
    "wrong number of rows": (set_manifest(tables__spans__rows=7), "other rows, models, or weights"),
    "duplicate rows": (change_spans(lambda t: t.take([0, 0])), "two rows for"),
}


@pytest.mark.parametrize("case", CORRUPTIONS)
def test_corrupt_results_are_skipped_with_notice(tmp_path, case):
    corrupt, message = CORRUPTIONS[case]
    folder = tmp_path / "collection"
    write_sample_results(folder, "good", only=("labels",))
    corrupt(write_sample_results(folder, "corrupt", only=("spans",)))
    collection = results.load(folder)
    assert set(collection.models) == {"good"}
    (notice,) = collection.notices
    assert message in notice
    assert str(tmp_path) not in notice
    assert len(notice) < 500


def test_duplicate_results_folder_is_skipped(tmp_path):
    write_sample_results(tmp_path, "good", only=("labels",))
    shutil.copytree(tmp_path / "good", tmp_path / "good copy")
    collection = results.load(tmp_path)
    assert collection.models["good"].folder.name == "good"
    assert collection.notices == ("good copy is left out: good holds good, too.",)


def test_search_with_unknown_heads_is_skipped(tmp_path):
    shutil.copytree(results.PRECOMPUTED / "organism", tmp_path / "organism")
    shutil.copy(results.PRECOMPUTED / "organism.search.json", tmp_path)
    collection = results.read_results(tmp_path / "organism")
    searches_of_model = records.ModelRecords(**vars(collection)).searches
    assert len(searches_of_model) == 2
    searches.keep(tmp_path, replace(searches_of_model[0], heads=ccs.HeadSet.parse("L4.H0 L99.H0")))
    assert records.ModelRecords(**vars(collection)).searches == searches_of_model[1:]


def test_dictionary_bomb_is_rejected(tmp_path):
    folder = write_sample_results(tmp_path, "corrupt", only=("spans",))
    change_table("spans", write_dictionary_bomb)(folder)
    assert (folder / "spans.parquet").stat().st_size < 3 * 2**20
    collection = results.load(tmp_path)
    assert not collection.models
    assert "cannot be read within 1,024 MB of memory" in collection.notices[0]


@pytest.mark.parametrize("place", ["/etc", "hf-hub:user/model", "{}"])
def test_results_cannot_choose_weights(tiny_folder, tmp_path, place):
    """An untrusted folder may also hold a run's local file with the path of the weights."""
    write_sample_results(tmp_path, "untrusted", only=("spans",))
    place_file = tmp_path / results.STAGES / "untrusted" / "place.txt"
    place_file.parent.mkdir(parents=True)
    place_file.write_text(place.format(tiny_folder))
    with pytest.raises(InputError, match="weights of untrusted are not loaded here"):
        App(results.load(tmp_path)).model_cache.get("untrusted")


@pytest.mark.parametrize("name", ["tiny", "no/such", "hf-hub:user/tiny", "organism ", "ViT-B-32/nobody", "."])
def test_table_name_loads_no_folder_or_repository(tiny_folder, monkeypatch, name):
    """A folder with the name exists in the working directory, but isn't loaded."""
    monkeypatch.chdir(tiny_folder.parent)
    monkeypatch.setattr(ccs, "load", lambda place: pytest.fail(f"{place} was loaded"))
    with pytest.raises(InputError) as caught:
        model_cache.ModelCache({}, lambda name: ()).get(name)
    assert str(tiny_folder.parent) not in str(caught.value)
