import numpy as np

from ccs.synthetic import draw, scene
from ccs_benchmark import variants
from research.editing.siglip import start_model, upper_units
from research.planted.family import BASE


def test_the_siglip_toy_starts_with_the_first_models_layers(images):
    """Training and embedding pass the same activations through the same pool."""
    toy = start_model(variants.load(BASE))
    pixels = images.base.preprocess([draw(scene(seed)) for seed in range(4)])
    np.testing.assert_array_equal(toy.trunk(pixels).tokens, images.base.trunk(pixels).tokens)
    units = upper_units(toy.clip.visual, toy.trunk(pixels).tokens).detach().numpy()
    np.testing.assert_allclose(toy.embed_images(pixels), units, atol=1e-6)
