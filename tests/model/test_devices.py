"""GPU and CPU results match; without a GPU, a mock one is used (support/mock_gpu)."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

import ccs
from benchmarks.families import FAMILIES
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
ABLATIONS = [ccs.HeadSet(), ccs.HeadSet.parse("L3.H1 L5.H2"), ccs.HeadSet.parse("L5.H0")]


@pytest.fixture(params=[pytest.param(gpu, marks=pytest.mark.gpu) for gpu in ("mock", "real")])
def cuda(request, monkeypatch):
    is_real = torch.cuda.is_available()
    if is_real != (request.param == "real"):
        pytest.skip("needs a GPU" if request.param == "real" else "there is a real one")
    with nullcontext() if is_real else mock_gpu.use_mock_gpu(monkeypatch):
        yield "cuda"


def test_model_methods_match_cpu(cuda, tiny_model, tiny_folder, random_images):
    gpu_model = ccs.load(str(tiny_folder), device=cuda)
    x, images = random_pixels(tiny_model, 5), random_images(6)
    assert (gpu_model.encoder.device.type, gpu_model.weights_hash) == ("cuda", tiny_model.weights_hash)

    def results(model):
        trunk, moments = model.trunk(x, batch_size=2), ccs.collect_moments(model, [x, images])
        attention = model.encoder.ablated(ABLATIONS[1]).attention(trunk, 5).cpu().numpy()
        texts = [f"text {number}" for number in range(12)]
        spans = ccs.textspan(moments, texts, model.embed_texts(texts), k=3)
        return {
            "images": model.embed_images(images),
            "ablations": model.embed_images(x, ABLATIONS),
            "trunk": model.embed_images(trunk[np.array([3, 0])], ABLATIONS),
            "texts": model.embed_texts(texts),
            "contributions": np.hstack([effects.reshape(5, -1) for effects in model.contributions(x)]),
            "heads of a trunk": model.embed_with_contributions(trunk, ABLATIONS, model.heads)[1].direct,
            "attention": attention,
            "variance": moments.variance(),
            "picks": np.array([[span.index for span in picked] for picked in spans.values()]),
            "errors": np.array(list(largest_errors(model, images).values())),
        }

    expected = results(tiny_model)
    for name, values in results(gpu_model).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-4, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_encoder_families_match_cpu(cuda, name):
    cpu_encoder = Encoder(small_architectures.build_image_encoder(name))
    gpu_encoder = Encoder(small_architectures.build_image_encoder(name).to(usable_device(cuda)))
    x = torch.randn(2, 3, *cpu_encoder.image_size, generator=torch.Generator().manual_seed(0))
    ablations, last = [ccs.HeadSet(), ccs.HeadSet(list(cpu_encoder.heads)[::3])], cpu_encoder.n_layers - 1

    def results(encoder):
        readout = encoder.embed_and_read(x)[1]
        coordinates = [encoder.coordinates(readout, head) @ encoder.basis(head) for head in encoder.heads]
        parts = [*encoder.contributions(readout), *coordinates, encoder.attention(x, last)]
        return [encoder.embed(x, ablations), encoder.embed(encoder.trunk(x), ablations), *parts]

    for on_gpu, on_cpu in zip(results(gpu_encoder), results(cpu_encoder), strict=True):
        assert on_gpu.device.type == "cuda"
        torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 2e-2), ("fp16", 2e-3)])
def test_half_precision_affects_only_image_embeddings(cuda, precision, tolerance, tiny_model, tiny_folder):
    half_model, x = ccs.load(str(tiny_folder), device=cuda, precision=precision), random_pixels(tiny_model, 4)
    images, expected = (model.embed_images(x, ABLATIONS[:2]) for model in (half_model, tiny_model))
    assert TOLERANCE < np.abs(images - expected).max() < tolerance
    direct, expected = (model.contributions(x).direct for model in (half_model, tiny_model))
    np.testing.assert_allclose(direct, expected, atol=TOLERANCE)
    np.testing.assert_allclose(half_model.embed_texts(["a"]), tiny_model.embed_texts(["a"]), atol=TOLERANCE)


def test_run_writes_same_tables_as_cpu(cuda, tiny_folder, texts, tmp_path):
    sizes = ("--max-images", "20", "--eval-images", "10", "--random-sets", "1", "--workers", "0")
    for device in ("cpu", cuda):
        options = (*sizes, "--device", device)
        assert run_compute(compute_arguments(tiny_folder, texts, tmp_path / device, *options)) == 0
    assert_same_tables(tmp_path / "cpu" / "tiny", tmp_path / cuda / "tiny", ignore=["heads"])
    assert read_results(tmp_path / cuda / "tiny").manifest["measured"]["device"] == "cuda:0"


def test_environment_variables_choose_device(monkeypatch):
    monkeypatch.delenv("CCS_DEVICE", raising=False)
    monkeypatch.delenv("SPACES_ZERO_GPU", raising=False)
    with mock_gpu.use_mock_gpu(monkeypatch):
        assert str(usable_device("auto")) == start().device == "cuda:0"
        monkeypatch.setenv("SPACES_ZERO_GPU", "true")  # where a GPU is available only during a call
        assert (str(usable_device("auto")), str(usable_device("cuda"))) == ("cpu", "cuda:0")
        monkeypatch.setenv("CCS_DEVICE", "cpu")
        assert str(usable_device("auto")) == start().device == "cpu"
        monkeypatch.setenv("CCS_DEVICE", "abacus")
        with pytest.raises(ccs.InputError, match="The device 'abacus' can't be used here"):
            usable_device("auto")


def test_without_tf32_restores_setting():
    assert torch.backends.cudnn.allow_tf32
    with without_tf32(), without_tf32():
        assert not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.allow_tf32
