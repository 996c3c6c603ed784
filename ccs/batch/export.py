"""Save a model with ablated heads: `clip-ccs export --model M --ablate "L8.H1 L9.H2" --out DIR`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import ccs
from ccs.batch.checkpoint import Destination
from ccs.cli import options
from ccs.cli.command_line import Command
from ccs.errors import InputError
from ccs.heads import TEXT, Intervention, effect_word
from ccs.model.export import WeightChange


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Save a model with ablated heads as an open_clip or transformers folder with a model card.

    The folder has the format of the model's own. You can load it without clip-ccs.
    """

    model: options.ModelName = "organism"
    ablate: Annotated[str, options.MODEL] = ""
    """Heads of the image encoder to ablate or scale, such as "L8.H1 L9.H2=0.3\""""
    out: options.ModelFolder = None
    repo: options.ModelRepository = None
    public: options.Public = False


def export_model(settings: ExportOptions) -> None:
    """Write the folder, and push it to the Hub."""
    destination = Destination(settings.out, settings.repo, settings.public)
    ablation = Intervention.parse(settings.ablate)
    if text_heads := ablation.of_encoder(TEXT):
        raise InputError(f"Heads of the text encoder can't be saved ablated; leave {text_heads} out.")
    model = ccs.load(settings.model)
    title = f"{model.name} with {ablation or 'no head'} {effect_word(ablation)}"
    difference = destination.save(model, WeightChange(ablation), settings.model, title)
    print(f"{title}: its embeddings, computed without clip-ccs, differ by at most {difference:.1e}.")


main = Command(
    ExportOptions,
    export_model,
    (
        'clip-ccs export --model ViT-B-32/openai --ablate "L8.H11 L9.H2" --out my_clip',
        "clip-ccs export --model DIR --ablate L11.H3 --repo USER/NAME",
    ),
)

if __name__ == "__main__":
    sys.exit(main())
