"""Save a changed model to a folder, the Hub, or both, with a model card that the Hub links by."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import EvalResult, ModelCard
from huggingface_hub.errors import HfHubHTTPError

from ccs.errors import InputError
from ccs.model.export import WeightChange, export
from ccs.model.loading import sources
from ccs.model.model import Model
from ccs.results.hub_repository import Repository

LICENSE = "mit"
"""License of the bundled models."""


@dataclass(frozen=True)
class Destination:
    """Where to save a model.

    Attributes:
        folder: New folder, or None.
        repository: Model repository on the Hub, USER/NAME, or None.
        public: Make a new repository public.
    """

    folder: Path | None
    repository: str | None
    public: bool = False

    def __post_init__(self) -> None:
        if not self.folder and not self.repository:
            raise InputError("No place to save the model; give --out DIR, --repo USER/NAME, or both.")
        if self.folder and self.folder.exists():
            raise InputError(f"{self.folder} already exists; give a new folder for --out.")

    def save(
        self,
        model: Model,
        change: WeightChange,
        source: str,
        title: str,
        datasets: Sequence[str] = (),
        results: Sequence[EvalResult] = (),
    ) -> float:
        """Save the model and print where.

        Args:
            model: The unchanged model.
            change: The change of its weights.
            source: The name or folder that the model was loaded from.
            title: The commit message.
            datasets: Hub ids of the datasets that the change was fitted on.
            results: Results of the changed model, for its card.

        Returns:
            The largest difference between the folder's embeddings and ours; see `ccs.model.export.export`.

        Raises:
            InputError: If the weights can't hold the change, or a place can't be written to.
        """
        repository = Repository(self.repository, "model") if self.repository else None
        with TemporaryDirectory() as scratch:
            folder = self.folder or Path(scratch) / "model"
            difference = export(model, change, folder, source)
            complete_card(folder / "README.md", title, source, datasets, results)
            if self.folder:
                print(f"Written to {folder}.")
            if repository:
                commit = repository.push(folder, title, public=self.public)
                print(f"Published as {self.repository}, commit {commit}.")
        return difference


def complete_card(
    path: Path, title: str, source: str, datasets: Sequence[str], results: Sequence[EvalResult]
) -> None:
    """Add base model, license, datasets, and results to the front matter of a model card.

    Args:
        path: The card.
        title: The model's name in its results.
        source: The name or folder of the base model.
        datasets: Hub ids.
        results: Results of the model.
    """
    card = ModelCard.load(path)
    base_model, license_name = origin(source)
    for name, value in (("base_model", base_model), ("license", license_name), ("datasets", [*datasets])):
        if value:
            card.data[name] = value
    if results:
        card.data.model_name, card.data.eval_results = title, [*results]
    card.save(path)


def origin(source: str) -> tuple[str | None, str | None]:
    """Return the Hub id and the license of a base model, or None where its card doesn't state them."""
    if source in sources.embedded():
        return None, LICENSE
    known = sources.find_model(source)
    place = known.place
    repository = known.repository or (place.repository if place else "")
    folder = place.folder if place else None
    with suppress(OSError, ValueError, HfHubHTTPError):  # no card, or no connection
        data = ModelCard.load(
            folder / "README.md" if folder else repository, ignore_metadata_errors=True
        ).data
        return repository or data.get("base_model"), data.get("license")
    return repository or None, None
