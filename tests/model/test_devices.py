"""What a GPU computes is what the CPU computes; where there is none, one is pretended (support/pretended)."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

import ccs
from benchmarks.families import FAMILIES
from ccs import HeadSet, InputError
from ccs.batch.compute.embed import largest_errors
from ccs.batch.compute.stages import start
from ccs.model.encoder import Encoder
from ccs.model.encoders.decomposition import without_tf32
from ccs.model.loading.sources import usable_device
from ccs.results import read_results
from tests.support import mock_gpu, small_architectures
from tests.support.compute_sample import assert_same_tables, compute_arguments, run_compute
from tests.support.reference_encoder import TOLERANCE, random_pixels

ARCHITECTURES = [family.measured for family in FAMILIES.values()] + ["vit_relpos_medium_patch16_cls_224"]
OFF = [HeadSet(), HeadSet.parse("L3.H1 L5.H2"), HeadSet.parse("L5.H0")]


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.gpu) for kind in ("pretended", "real")])
def cuda(request, monkeypatch):
    """The name of a GPU: a real one where there is one, else a pretended one."""
    is_real = torch.cuda.is_available()
    if is_real != (request.param == "real"):
        pytest.skip("needs a GPU" if request.param == "real" else "there is a real one")
    with nullcontext() if is_real else mock_gpu.use_mock_gpu(monkeypatch):
        yield "cuda"


def test_every_method_gives_what_it_gives_on_the_cpu(cuda, tiny_model, tiny_folder, random_images):
    there, x, images = ccs.load(str(tiny_folder), device=cuda), random_pixels(tiny_model, 5), random_images(6)
    assert (there.encoder.device.type, there.weights_hash) == ("cuda", tiny_model.weights_hash)

    def results(model):
        start, moments = model.trunk(x, batch_size=2), ccs.collect_moments(model, [x, images])
        looked = model.encoder.ablated(OFF[1]).attention(start, 5).cpu().numpy()
        texts = [f"text {number}" for number in range(12)]
        spans = ccs.textspan(moments, texts, model.embed_texts(texts), k=3)
        return {
            "images": model.embed_images(images),
            "plans": model.embed_images(x, OFF),
            "of a trunk": model.embed_images(start[np.array([3, 0])], OFF),
            "texts": model.embed_texts(texts),
            "contributions": np.hstack([effects.reshape(5, -1) for effects in model.contributions(x)]),
            "of some heads": model.embed_with_contributions(start, OFF, model.heads)[1].direct,
            "attention": looked,
            "variance": moments.variance(),
            "picks": np.array([[span.index for span in picked] for picked in spans.values()]),
            "errors": np.array(list(largest_errors(model, images).values())),
        }

    expected = results(tiny_model)
    for name, values in results(there).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-4, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_family_of_encoders_gives_what_it_gives_on_the_cpu(cuda, name):
    here = Encoder(small_architectures.build_image_encoder(name))
    there = Encoder(small_architectures.build_image_encoder(name).to(usable_device(cuda)))
    x = torch.randn(2, 3, *here.image_size, generator=torch.Generator().manual_seed(0))
    plans, last = [HeadSet(), HeadSet(list(here.heads)[::3])], here.n_layers - 1

    def results(encoder):
        readout = encoder.embed_and_read(x)[1]
        coordinates = [encoder.coordinates(readout, head) @ encoder.basis(head) for head in encoder.heads]
        parts = [*encoder.contributions(readout), *coordinates, encoder.attention(x, last)]
        return [encoder.embed(x, plans), encoder.embed(encoder.trunk(x), plans), *parts]

    for ours, theirs in zip(results(there), results(here), strict=True):
        assert ours.device.type == "cuda"
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("precision", "allowed"), [("bf16", 2e-2), ("fp16", 2e-3)])
def test_half_precision_is_for_embeddings_of_images_alone(cuda, precision, allowed, tiny_model, tiny_folder):
    there, x = ccs.load(str(tiny_folder), device=cuda, precision=precision), random_pixels(tiny_model, 4)
    off = np.abs(there.embed_images(x, OFF[:2]) - tiny_model.embed_images(x, OFF[:2])).max()
    assert TOLERANCE < off < allowed
    ours, theirs = there.contributions(x), tiny_model.contributions(x)
    np.testing.assert_allclose(ours.direct, theirs.direct, atol=TOLERANCE)
    np.testing.assert_allclose(there.embed_texts(["a"]), tiny_model.embed_texts(["a"]), atol=TOLERANCE)


def test_a_run_writes_the_tables_that_it_writes_on_the_cpu(cuda, small_run, tiny_folder, texts, tmp_path):
    assert (
        run_compute(compute_arguments(tiny_folder, texts, tmp_path, "--workers", "0", "--device", cuda)) == 0
    )
    assert_same_tables(small_run / "tiny", tmp_path / "tiny", ignore=["heads"])
    assert read_results(tmp_path / "tiny").manifest["measured"]["device"] == "cuda:0"


def test_one_setting_chooses_the_device(monkeypatch):
    monkeypatch.delenv("CCS_DEVICE", raising=False)
    monkeypatch.delenv("SPACES_ZERO_GPU", raising=False)
    with mock_gpu.use_mock_gpu(monkeypatch):
        assert str(usable_device("auto")) == start().device == "cuda:0"
        monkeypatch.setenv("SPACES_ZERO_GPU", "true")  # a GPU that is there for a moment only
        assert (str(usable_device("auto")), str(usable_device("cuda"))) == ("cpu", "cuda:0")
        monkeypatch.setenv("CCS_DEVICE", "cpu")
        assert str(usable_device("auto")) == start().device == "cpu"
        monkeypatch.setenv("CCS_DEVICE", "abacus")
        with pytest.raises(InputError, match="The device 'abacus' can't be used here"):
            usable_device("auto")


def test_tf32_is_off_where_it_would_be_on_and_as_before_afterwards():
    assert torch.backends.cudnn.allow_tf32
    with without_tf32(), without_tf32():
        assert not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.allow_tf32
