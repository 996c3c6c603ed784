"""Whatever is wrong with a command's words, it ends with one sentence, and nothing is written."""

import pytest

from ccs.batch import command_line

GIVEN = {
    "compute": "--texts {texts} --out {out} --k 2 --set world/letters",
    "localize": "--method random --max-images 20",
    "search": "--max-images 20",
    "report": "--out {out}",
}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("compute --model organsim", "organism"),
        ("compute --model {tiny} --k 400", "fewer than --k 400"),
        ("compute --model {tiny} --off L99.H1", "L99"),
        ("compute --model {tiny} --judges gpt", "is not a judge"),
        ("compute --texts NOTICE --labeler compatible:a@http://localhost:9", "of NOTICE have a concept"),
        ("localize --model {tiny} --method guessing", "no method 'guessing'; there are CCS high first"),
        ("localize --model {tiny} --attribute age", "no attribute 'age'; it has gender, skin tone"),
        ("localize --model {tiny} --splits 0", "--splits is 0, but must be at least 1"),
        ("localize --models organism --model=", "no model with something planted"),
        ("search --model {tiny} --max-heads 0", "1 or more heads"),
        ("search --model {tiny} --keep --results /nowhere/at", "/nowhere/at"),
        ("mitigate --out docs", "is already there; name a new folder for --out"),
        ("mitigate --only prayer", "--only 'prayer' is none of projection of group means, LEACE"),
        ("mitigate --budget -1", "--budget is -1.0, but must be at least 0"),
        ("mitigate --attribute age", "no attribute 'age'; it has gender, skin tone"),
        ("mitigate --keep world/faces", "is not a set of images with classes"),
        ("compare", "see clip-ccs compare --help"),
        ("compare organism", "see clip-ccs compare --help"),
        ("report --results {out}/none", "There is no folder"),
        ("report --results hf://datasets/a/b", "could not be loaded"),
    ],
)
def test_a_mistake_is_answered_in_a_sentence(words, says, tiny_folder, texts, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    command, *more = words.split()
    line = f"{GIVEN.get(command, '')} {' '.join(more)}".format(tiny=tiny_folder, texts=texts, out=tmp_path)
    assert command_line.main([command, *line.split()]) == 2
    captured = capsys.readouterr()
    *_, last = captured.err.splitlines()
    assert last.startswith("error: ")
    assert says in last
    assert not list(tmp_path.rglob("*.parquet"))
