"""Invalid arguments of the analyses are rejected with an error that names the cause."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from PIL import Image

import ccs
from ccs import Head, HeadSet, InputError
from ccs.analysis import ablation_sets
from ccs.analysis.compare import pair_heads
from ccs.analysis.inputs import cross_groups
from ccs.analysis.search import Limits
from ccs.analysis.task import Task, halves
from ccs.texts.score import HeadScore

SCORES = {Head(5, head): HeadScore(5, "Colors") for head in range(2)}
CONTROLS = {"controls": np.ones((4, 4)), "labels": np.array([0, 1] * 2), "class_weights": np.eye(2, 4)}
TASK = Task(people=np.ones((8, 4)), groups=np.array(["a", "b"] * 4), prompts=np.eye(4), k=2, **CONTROLS)


def score_nan(evidence):
    return dict.fromkeys(evidence.model.heads, np.nan)


INVALID_ARGUMENTS = [
    (ccs.bias, {"attribute": "age"}, "has no attribute 'age'; it has gender, race"),
    *((ccs.bias, {"seed": seed}, f"from 0, not {seed!r}") for seed in (-1, True, 1.5, "3", None)),
    *((ccs.bias, {"top": top}, f"K is {top!r}, but") for top in (float("nan"), float("inf"), "x")),
    (ccs.bias, {"occupations": ["kind", "mean"]}, "'mean' is the name of the row of means"),
    (ccs.bias, {"occupations": {"judge", "nurse"}}, "list of strings, not set"),
    (ccs.bias, {"occupations": {"judge": "nurse"}}, "list of strings, not dict"),
    (ccs.bias, {"gallery": np.zeros((2, 2))}, "name or path, or an opened dataset, not ndarray"),
    (ccs.localize, {"method": lambda _: {Head(5, 0): 1.0}, "max_images": 12}, "a finite score for each"),
    (ccs.localize, {"method": score_nan, "max_images": 12}, "a finite score for each"),
    (ccs.bias, {"occupations": ["judge", " "]}, "The occupation at place 1 is empty"),
    (ccs.bias, {"occupations": []}, "At least one occupation"),
    (ccs.bias, {"top": 0}, "K is 0"),
    (ccs.bias, {"top": 31}, "K is 31, but a ranking of 60 images needs a K of 1 to 30"),
    (ccs.bias, {"template": "a photo"}, "Expected one {}, for the occupation"),
    (ccs.bias, {"gallery": "world/faces", "max_images": 20}, "Synthetic people and"),
    (ccs.bias, {"gallery": "fairface-1.25", "max_images": 0}, "At least one image is needed"),
    (ccs.bias, {"as_published": True}, "affects FairFace by race"),
    (ccs.edit_heads, {"heads": "L5.H2=0.5"}, "without a change"),
    (ccs.edit_heads, {"strength": 1.5}, "from 0"),
    (ccs.edit_heads, {"attribute": "age"}, "no attribute 'age'"),
]


@pytest.mark.parametrize(("function", "arguments", "message"), INVALID_ARGUMENTS)
def test_invalid_arguments_are_rejected(function, arguments, message, tiny_model, gallery):
    with pytest.raises(InputError, match=message):
        function(tiny_model, **{"gallery": gallery, **arguments})


def test_other_invalid_arguments_are_rejected(tiny_model, gallery, random_images):
    classify, sets = partial(ccs.classify, tiny_model), ablation_sets.make_ablation_sets
    for call, message in (
        (lambda: classify(random_images(3), ["cat", ""]), "place 1 is empty"),
        (lambda: classify([], "cat"), "no images"),
        (lambda: classify([Image.new("RGB", (0, 5))], "cat"), "Image 0 can't be used: it has no pixels"),
        (lambda: ccs.open_images(3), "name or path, or an opened dataset, not int"),
        (lambda: cross_groups(gallery, "gender,gender"), "different attributes"),
        (lambda: cross_groups(gallery, "gender,race", smallest=500), "Fewer than two groups"),
        (lambda: Limits(min_reduction=np.nan), "got 0.02 and nan"),
        (lambda: Limits(max_heads=np.nan), "1 or more heads"),
        (lambda: halves(replace(TASK, k=1), 0), "a K of 2 or more, not 1"),
        (lambda: halves(replace(TASK, prompts=np.ones((1, 4))), 0), "2 or more prompts that differ to the"),
        (lambda: pair_heads(tiny_model, tiny_model, random_images(2), ["a"]), "Two or more images and texts"),
        (lambda: sets(SCORES, 5, HeadSet(SCORES), 0, 1, kinds=["hihg"]), "'hihg'"),
        (lambda: sets(SCORES, 5, HeadSet([Head(5, 1)]), 0, 1), r"L5\.H0 cannot be ablated"),
    ):
        with pytest.raises(InputError, match=message):
            call()
