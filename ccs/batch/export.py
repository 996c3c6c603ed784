"""Save a model with heads off: `clip-ccs export --model M --ablate "L8.H1 L9.H2" --out DIR`."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import ccs
from ccs.batch.command_line import command, option, to_folder
from ccs.errors import InputError
from ccs.heads import TEXT, Intervention, verb
from ccs.model.export import export
from ccs.model.onnx_export import export_onnx
from ccs.results.hub_repository import Repository


@dataclass(frozen=True)
class Settings:
    """Save a model with heads off as an ordinary open_clip folder with a model card (of transformers, where
    the model is a folder of transformers), or with --remove as ONNX; --repo publishes it on the Hub.
    """

    model: str = option("organism", "embedded name, open_clip NAME/TAG or a folder")
    ablate: str = option("", 'heads of the image tower to switch off or scale, such as "L8.H1 L9.H2=0.3"')
    remove: bool = option(False, "leave the heads' weights out, as ONNX: image.onnx and text.onnx")
    out: Path | None = option(None, "a new folder", read=to_folder)
    repo: str | None = option(None, "a model repository on the Hub, USER/NAME")
    public: bool = option(False, "visible to everyone; otherwise a new repository is private")


def _export(arguments: Settings) -> None:
    if not arguments.out and not arguments.repo:
        raise InputError("Say where to export to: --out DIR, --repo USER/NAME, or both.")
    repository = Repository(arguments.repo, "model") if arguments.repo else None
    off = Intervention.parse(arguments.ablate)
    if read := off.of_tower(TEXT):
        raise InputError(f"Heads of the text encoder cannot be saved ablated: leave {read} out.")
    model = ccs.load(arguments.model)
    title = f"{model.name} with {off or 'no head'} {verb(off)}"
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.out or Path(scratch) / "model"
        if arguments.remove:
            error = export_onnx(model, off, folder)
        else:
            error = export(model, off, folder, arguments.model)
        print(f"{title}: the embeddings computed from the folder without this program differ by {error:.1e}.")
        if arguments.out:
            print(f"Written to {folder}.")
        if repository:
            commit = repository.push(folder, title, public=arguments.public)
            print(f"Published as {arguments.repo}, commit {commit}.")


main = command(Settings, _export)

if __name__ == "__main__":
    sys.exit(main())
