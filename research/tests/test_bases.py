"""The five base models: the training targets of their heads, and the stored weights."""

from __future__ import annotations

import numpy as np
import open_clip
import pytest
import torch
from torch.nn import functional as F

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.synthetic import draw, scene
from ccs_benchmark import variants
from research.bases import lessons, training
from research.bases.__main__ import NUMBERS, purity
from research.bases.lessons import VALUES, Lessons, drawn, value_numbers
from research.model_files import save_variant
from research.planted.family import BASE
from research.world.forward_pass import upper_embeddings
from research.world.head_lessons import CONCEPTS
from research.world.organism_training import MODEL_CFG

COUNTED = range(800_000, 800_400)


@pytest.fixture(scope="module", autouse=True)
def few():
    """Return training targets from few captions, independent of the first model's heads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lessons, "_COUNTED", COUNTED)
        patch.setattr(training, "usual_variance", lambda _: 0.5)
        yield


def test_every_seed_trains_every_kind_of_target_on_different_heads(base):
    drawn_lessons, of_one = [drawn(seed, list(base.heads)) for seed in range(5)], set()
    for seed_lessons in drawn_lessons:
        counts = {head: (len(lesson.parts), bool(lesson.values)) for head, lesson in seed_lessons.items()}
        of_one.add(tuple(head for head, count in counts.items() if count == (1, False)))
        unrelated = sum(values for _, values in counts.values())
        assert (len(counts), sum(count == (1, False) for count in counts.values()), unrelated) == (22, 6, 5)
        assert all(
            sum(lesson.parts.values()) == pytest.approx(1, abs=0.01) for lesson in seed_lessons.values()
        )
    assert len(of_one) == 5


def test_a_head_that_writes_its_target_has_no_loss(base):
    """A head that writes nothing has the variance of its target as loss."""
    seed_lessons = Lessons(drawn(0, list(base.heads)), base, 0.5)
    values = np.array([value_numbers(scene(seed)) for seed in COUNTED])
    written = {}
    for head, lesson in seed_lessons.lessons.items():
        rows = [seed_lessons.targets[head][concept].numpy() for concept in lesson.parts]
        columns = [CONCEPTS.index(concept) for concept in lesson.parts]
        head_output = sum(table[values[:, column]] for table, column in zip(rows, columns, strict=True))
        written[head] = torch.from_numpy(np.asarray(head_output) + 3)
    assert float(seed_lessons.loss(written, torch.from_numpy(values).long())) == pytest.approx(0, abs=1e-6)
    silent = {head: torch.zeros_like(head_output) for head, head_output in written.items()}
    variance = float(seed_lessons.loss(silent, torch.from_numpy(values).long()))
    assert variance == pytest.approx(1.5, rel=0.1)  # concepts of a scene coincide by chance


def test_upper_layers_continue_from_stored_activations(base):
    """Outputs of heads, divided by the lengths, equal their direct effects up to a constant."""
    images = [draw(scene(seed)) for seed in range(6)]
    tokens = base.trunk(images).tokens
    head = next(iter(base.heads))
    units, written, lengths = upper_embeddings(base.clip, tokens, training.FIRST, [head])
    np.testing.assert_allclose(units.detach(), base.embed_images(images), atol=1e-5)
    direct = base.contributions(images, HeadSet([head])).direct[:, 0]
    effects = (written[head] / lengths).detach().numpy()
    np.testing.assert_allclose(
        effects - effects.mean(0), direct - direct.mean(0), atol=1e-2 * abs(direct).max()
    )


def test_a_batch_of_one_line_up_is_scored_face_by_face():
    rng = np.random.default_rng(0)
    faces, texts = (torch.from_numpy(rng.normal(size=(n, 8))) for n in (10, 4))
    shares = np.tile(np.eye(10)[[1, 3, 5, 7]], 1)  # one group each, so the drawn faces are known
    loss = training.lineup_loss(faces, texts, shares, 2.0, rng)
    images = faces[[1] * 10 + [3] * 10 + [5] * 10 + [7] * 10]
    captions = texts.repeat_interleave(10, 0)
    logits, targets = 2.0 * images @ texts.T, torch.arange(4).repeat_interleave(10)
    to_texts = F.cross_entropy(logits, targets)
    to_images = -torch.stack([F.log_softmax(2.0 * captions[i] @ images.T, 0)[i] for i in range(40)]).mean()
    assert float(loss) == pytest.approx(float((to_texts + to_images) / 2))


def test_a_base_is_trained_goes_on_where_it_stopped_and_loads_as_it_was(base, images, tmp_path, monkeypatch):
    """A stopped training continues to the same weights.

    Args:
        base: The base model, trained on few images.
        images: The rendered scenes and faces.
        tmp_path: A fresh folder.
        monkeypatch: Reverts what the test replaces.
    """
    captions = training.Captions(images, tmp_path)
    short = training.Settings(0, common=2, own=2, scenes=8, lineups=1)
    monkeypatch.setattr(training, "HELD_OUT", range(900_000, 900_024))

    def trainer() -> training.Trainer:
        return training.Trainer(short, base, images, captions)

    whole, begun = trainer(), trainer()
    whole.train(tmp_path / "whole")
    folder = tmp_path / "parts" / "base-0"
    folder.mkdir(parents=True)
    begun.train_until(short.common, folder / "last.pt", folder / "log.csv")
    resumed = trainer()
    resumed.train(tmp_path / "parts")
    for name, values in whole.model.named_parameters():
        torch.testing.assert_close(values, resumed.model.get_parameter(name))
        if not training.upper(name):
            torch.testing.assert_close(values, base.clip.get_parameter(name))
    whole.write(tmp_path / "organism-base-9.safetensors")
    place = str(tmp_path / "organism-base-9.safetensors")
    assert (variants.load(place).name, variants.known(place)["seed"]) == ("organism-base-9", 0)
    model = variants.load(place)
    faces = [draw(scene(seed)) for seed in range(3)]
    units = upper_embeddings(whole.model, base.trunk(faces).tokens / training.SPREAD, training.FIRST)[0]
    np.testing.assert_allclose(model.embed_images(faces), units.detach(), atol=5e-3)  # float16


def test_bundled_bases_share_all_but_their_upper_halves(base):
    base_names = [name for name in variants.names() if name.startswith("organism-base-")]
    assert len(base_names) == 5
    model = variants.load(base_names[3])
    for name, values in model.clip.named_parameters():
        assert bool((values == base.clip.get_parameter(name)).all()) != training.upper(name), name
    with pytest.raises(InputError, match=r"Unknown model '\.\./organism'\. Bundled models: organism-base-0"):
        variants.known("../organism")


def test_a_difference_is_stored_to_a_hundredth(base, tmp_path):
    """Stored differences are exact to 1%.

    Args:
        base: The base model, trained on few images.
        tmp_path: A fresh folder.
    """
    changed, name = open_clip.CLIP(**MODEL_CFG), "visual.transformer.resblocks.5.attn.in_proj_weight"
    changed.load_state_dict(base.clip.state_dict())
    difference = 0.01 * torch.randn(changed.get_parameter(name).shape, generator=torch.manual_seed(0))
    changed.get_parameter(name).data += difference
    save_variant(changed, [name], {"base": BASE}, tmp_path / "one.safetensors", base.clip)
    loaded = variants.load(str(tmp_path / "one.safetensors")).clip
    error = (loaded.get_parameter(name) - changed.get_parameter(name)).detach()
    assert float(error.norm() / difference.norm()) < 0.01
    assert all(torch.equal(v, base.clip.get_parameter(n)) for n, v in loaded.named_parameters() if n != name)


def test_heads_are_ranked_by_their_ccs_at_each_number_of_texts():
    """Two of four heads are pure. One of them has the highest CCS, and so does a mixed head."""
    shares = {"L4.H0": 0.95, "L4.H1": 0.9, "L4.H2": 0.5, "L4.H3": 0.2}
    of_k = {str(k): {"L4.H0": k, "L4.H1": k - 1, "L4.H2": k, "L4.H3": 0} for k in NUMBERS}
    measured = {"ccs": of_k, "purity": shares}
    report = purity({BASE: {}, "organism-base-0": measured, "organism-base-1": measured})
    row = "0.63 [0.63, 0.63] | 0.63, 0.63 | 50% (2 of 4) | 50% (2 of 4) | 0% (0 of 2) | 0% (0 of 2)"
    assert report.count(row) == len(NUMBERS)
    assert set(VALUES) == set(CONCEPTS)
