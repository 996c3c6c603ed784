"""Save a model with ablated heads: `clip-ccs export --model M --ablate "L8.H1 L9.H2" --out DIR`."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import ccs
from ccs.cli.command_line import Command
from ccs.cli.options import MODEL, OUTPUT, ModelName, Public, read, to_folder
from ccs.errors import InputError
from ccs.heads import TEXT, Intervention, effect_word
from ccs.model.export import export
from ccs.results.hub_repository import Repository


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Save a model with ablated heads as an open_clip or transformers folder with a model card.

    The folder has the format of the model's own; no code of this package is needed to load it.
    """

    model: ModelName = "organism"
    ablate: Annotated[str, MODEL] = ""
    """Heads of the image encoder to ablate or scale, such as "L8.H1 L9.H2=0.3\""""
    out: Annotated[Path | None, OUTPUT, read(to_folder)] = None
    """New folder for the model"""
    repo: Annotated[str | None, OUTPUT] = None
    """Model repository on the Hub, USER/NAME"""
    public: Public = False


def export_model(settings: Settings) -> None:
    """Write the folder, and push it to the Hub."""
    if not settings.out and not settings.repo:
        raise InputError("No place to export to; give --out DIR, --repo USER/NAME, or both.")
    repository = Repository(settings.repo, "model") if settings.repo else None
    off = Intervention.parse(settings.ablate)
    if text_heads := off.of_encoder(TEXT):
        raise InputError(f"Heads of the text encoder cannot be saved ablated: leave {text_heads} out.")
    model = ccs.load(settings.model)
    title = f"{model.name} with {off or 'no head'} {effect_word(off)}"
    with tempfile.TemporaryDirectory() as scratch:
        folder = settings.out or Path(scratch) / "model"
        error = export(model, off, folder, settings.model)
        print(f"{title}: the embeddings computed from the folder without this program differ by {error:.1e}.")
        if settings.out:
            print(f"Written to {folder}.")
        if repository:
            commit = repository.push(folder, title, public=settings.public)
            print(f"Published as {settings.repo}, commit {commit}.")


main = Command(
    Settings,
    export_model,
    (
        'clip-ccs export --model ViT-B-32/openai --ablate "L8.H11 L9.H2" --out my_clip',
        "clip-ccs export --model DIR --ablate L11.H3 --repo USER/NAME",
    ),
)

if __name__ == "__main__":
    sys.exit(main())
