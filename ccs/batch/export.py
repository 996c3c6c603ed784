"""Save a model with ablated heads: `clip-ccs export --model M --ablate "L8.H1 L9.H2" --out DIR`."""

from dataclasses import dataclass
from typing import Annotated

import ccs
from ccs.batch.checkpoint import SaveOptions
from ccs.cli import options
from ccs.cli.command_line import Command
from ccs.errors import InputError
from ccs.heads import TEXT, Intervention, effect_word
from ccs.model.export import WeightChange


@dataclass(frozen=True, kw_only=True)
class ExportOptions(SaveOptions):
    """Save a model with ablated heads as an open_clip or transformers folder with a model card.

    The folder has the format of the model's own. You can load it without clip-ccs.

    Examples:
        clip-ccs export --model ViT-B-32/openai --ablate "L8.H11 L9.H2" --out my_clip
        clip-ccs export --model DIR --ablate L11.H3 --repo USER/NAME
    """

    ablate: Annotated[str, options.MODEL] = ""
    """Heads of the image encoder to ablate or scale, such as "L8.H1 L9.H2=0.3\""""


def export_model(settings: ExportOptions) -> None:
    """Write the folder, and push it to the Hub."""
    ablation = Intervention.parse(settings.ablate)
    if text_heads := ablation.of_encoder(TEXT):
        raise InputError(f"Heads of the text encoder can't be saved ablated; leave {text_heads} out.")
    if not settings.out and not settings.repo:
        raise InputError("No place to save the model; give --out DIR, --repo USER/NAME, or both.")
    model = ccs.load(settings.model)
    title = f"{model.name} with {ablation or 'no head'} {effect_word(ablation)}"
    difference = settings.save(model, WeightChange(ablation), title)
    print(f"{title}: its embeddings, computed without clip-ccs, differ by at most {difference:.1e}.")


main = Command(ExportOptions, export_model)
