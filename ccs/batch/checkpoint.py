"""Save a changed model to a folder, the Hub, or both, with a model card that the Hub links by."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import EvalResult, ModelCard
from huggingface_hub.errors import HfHubHTTPError

from ccs.cli import options
from ccs.model.export import WeightChange, export
from ccs.model.loading import sources
from ccs.model.model import Model
from ccs.results.hub_repository import Repository, folder_files

LICENSE = "mit"
"""License of the bundled models."""


@dataclass(frozen=True, kw_only=True)
class SaveOptions:
    """Options of the commands that save a model."""

    model: options.ModelName = "organism"
    out: options.ModelFolder = None
    repo: options.ModelRepository = None
    public: options.Public = False

    def save(
        self,
        model: Model,
        change: WeightChange,
        title: str,
        datasets: Sequence[str] = (),
        results: Sequence[EvalResult] = (),
    ) -> float:
        """Save the model and print where.

        Args:
            model: The unchanged model.
            change: The change of its weights.
            title: The commit message, and the model's name in its results.
            datasets: Hub ids of the datasets that the change was fitted on.
            results: Results of the changed model, for its card.

        Returns:
            The largest difference between the folder's embeddings and ours; see `ccs.model.export.export`.

        Raises:
            InputError: If the weights can't hold the change, or a place can't be written to.
        """
        repository = Repository(self.repo, "model") if self.repo else None
        with TemporaryDirectory() as scratch:
            folder = self.out or Path(scratch) / "model"
            difference = export(model, change, folder)
            card = ModelCard.load(folder / "README.md")
            base_model, license_name = origin(self.model)
            entries = {"base_model": base_model, "license": license_name, "datasets": [*datasets]}
            for name, value in entries.items():
                if value:
                    card.data[name] = value
            if results:
                card.data.model_name, card.data.eval_results = title, [*results]
            card.save(folder / "README.md")
            if self.out:
                print(f"Written to {folder}.")
            if repository:
                commit = repository.push(folder_files(folder), title, public=self.public)
                print(f"Published as {self.repo}, commit {commit}.")
        return difference


def origin(source: str) -> tuple[str | None, str | None]:
    """Return the Hub id and the license of a base model, or None if its card doesn't state them."""
    if source in sources.embedded():
        return None, LICENSE
    known = sources.find_model(source)
    place = known.place
    repository = known.repository or (place.repository if place else "")
    card = place.folder / "README.md" if place and place.folder else repository
    with suppress(OSError, ValueError, HfHubHTTPError):  # no card, or no connection
        data = ModelCard.load(card, ignore_metadata_errors=True).data
        return repository or data.get("base_model"), data.get("license")
    return repository or None, None
