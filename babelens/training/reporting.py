"""Reporting on a trained model: its answers to the benchmark, its retrieval on the validation data, and its card."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image
from transformers import ProcessorMixin

from ..data.corpus.corpus import languages_of
from ..evaluation.emoji import EmojiBenchmark, LabelledImage
from ..evaluation.query_ranks import QueryRanks, of_captions, ranks_file, write_ranks
from ..evaluation.retrieval import evaluate_retrieval
from ..inference.embedder import Embedder, default_device
from ..inference.loading import load_encoder, stated_truncation
from ..model_cards.base_models import IMAGE_TOWER, TEXT_TOWER, UNKNOWN, WHOLE_MODEL, BaseModel, base_model_facts
from ..model_cards.card_text import public_name
from ..model_cards.cards import write_card
from ..model_cards.facts import (
    DataSource as CardSource,
    Example,
    ModelCardFacts,
    Result,
    emoji_results,
    emoji_sources,
    example,
    retrieval_results,
    training_run,
)
from ..model_cards.licenses import OTHER
from ..modeling.encoding import evaluation_mode
from ..registry import METHODS
from ..trainers.base import BabelensTrainer
from ..trainers.checkpoints import atomic_directory
from ..utils.files import atomic_file, wait_for_lock
from ..utils.identity import folder_identity, holds_weights
from .data import RecipeData
from .recipe import EMOJI, WEAK_EMOJI, Recipe

logger = logging.getLogger(__name__)

EVALUATION = "evaluation"
MODELS = "models.json"
_WATCHED = "The model was evaluated on these data during its training as well."


def write_evaluation(
    output: Path,
    name: str,
    content: Any,
    ranks: Mapping[str, QueryRanks] | None = None,
) -> None:
    """Writes results of the model in `output` as JSON to `output/evaluation/<name>.json`, and beside them the ranks of
    their queries, where there are any. `output/evaluation/models.json` keeps the identity of the model that each file
    is of."""
    with atomic_directory(output / EVALUATION) as scratch:
        results = scratch / f"{name}.json"
        results.write_text(json.dumps(content, indent=1), encoding="utf-8")
        if (identity := folder_identity(output)) is not None:
            models = evaluated_models(output) | {results.name: identity}
            (scratch / MODELS).write_text(json.dumps(models, indent=1), encoding="utf-8")
        if ranks:
            write_ranks(ranks_file(results), ranks)


def evaluated_models(run: Path) -> dict[str, str]:
    """The identity of the model that each file of results in a run's folder is of; those of earlier versions are not
    among them."""
    try:
        models = json.loads((run / EVALUATION / MODELS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return models if isinstance(models, dict) else {}


def note_model(results: Path, model: str) -> None:
    """Keeps beside a file of results that was written into a run's folder of which model it is: of one in a folder;
    of a repository on the Hub nothing is kept."""
    folder = results.resolve().parent
    if folder.name != EVALUATION or not holds_weights(folder.parent):
        return
    identity = folder_identity(model) if Path(model).is_dir() else None
    with wait_for_lock(folder / MODELS):  # others may be evaluating for the same run
        before = evaluated_models(folder.parent)
        models = {name: each for name, each in before.items() if name != results.name}
        models |= {} if identity is None else {results.name: identity}
        if models != before:
            with atomic_file(folder / MODELS) as path:
                path.write_text(json.dumps(models, indent=1), encoding="utf-8")


def outdated_results(run: Path) -> list[str]:
    """The names of the files of results in a run's folder that are of another model than the one in it."""
    models, identity = evaluated_models(run), folder_identity(run)
    return [] if identity is None else [name for name, other in models.items() if other != identity]


def _example(embedder: Embedder, shown: LabelledImage) -> Example:
    """What the model answers about an image with labels in a language, which its own processor reads."""

    def classify(image: Image.Image, candidate_labels: list[str], hypothesis_template: str) -> list[dict[str, Any]]:
        inputs = embedder.processor(
            images=image, text=candidate_labels, language=shown.language, return_tensors="pt"
        ).to(embedder.model.device)
        with evaluation_mode(embedder.model), torch.no_grad():
            scores = embedder.model(**inputs).logits_per_image[0].softmax(-1).tolist()
        ranking = sorted(zip(candidate_labels, scores, strict=True), key=lambda answer: -answer[1])
        return [{"label": label, "score": score} for label, score in ranking]

    title = f"{shown.labels[0]} ({shown.language})"
    made = example(classify, shown.image, shown.labels, title)
    digest = hashlib.sha256(title.encode()).hexdigest()[:8]  # many titles have no letters that a file name may have
    return replace(made, language=shown.language, file_name=f"examples/{shown.language}-{digest}.png")


class Reporting:
    """Reports on the model that a recipe trained, from the folder in which it was saved.

    Args:
        recipe: the recipe.
        data: its data.
        output: the model's folder; results lie in `output/evaluation`.
        command: the command that was typed, for the card.
        trust_remote_code: whether code that comes with the models that the recipe names may run.
    """

    # The values that the recipe's `report` may have.
    reports: ClassVar[tuple[str, ...]] = (EMOJI,)
    # Whether the model classifies images in transformers' pipelines and in an endpoint.
    in_pipelines: ClassVar[bool] = True

    def __init__(
        self, recipe: Recipe, data: RecipeData, output: Path, command: str, *, trust_remote_code: bool = False
    ) -> None:
        self.recipe = recipe
        self.data = data
        self.output, self.command, self.trust_remote_code = output, command, trust_remote_code
        self.examples: list[Example] = []  # the model's own answers about images that may be published

    # ---- Parts that a method may define ----

    def report(self) -> dict[str, Any] | None:
        """The results that the recipe asks for with `report`: the answers to the emoji benchmark's four questions;
        also in `evaluation/emoji.json`."""
        if self.recipe.report is None:
            return None
        embedder = self._saved_model()
        benchmark = EmojiBenchmark(
            embedder,
            image_languages=self.data.image_languages,
            pair_languages=self.data.pair_languages,
            unseen_languages=self.recipe.unseen_languages,
        )
        report = benchmark.report()
        write_evaluation(self.output, EMOJI, report, benchmark.ranks())
        self.examples = [_example(embedder, shown) for shown in benchmark.labelled_images()]
        return report

    def _saved_model(self, batch_size: int = 64) -> Embedder:
        """The saved model. Its card, which will state its languages, is not written yet: it warns of none."""
        model, processor = load_encoder(self.output)
        width = stated_truncation(self.output, model.config)
        return Embedder(model, processor, batch_size=batch_size, device=default_device(), truncate_dim=width)

    def report_results(self, report: dict[str, Any]) -> list[Result]:
        """A report as the card shows it."""
        return list(emoji_results(report, command=self.command))

    def validation_results(self, trainer: BabelensTrainer) -> list[Result]:
        """The retrieval recall of the saved model on the recipe's `validation` data, in each language that the model
        reads; also in `evaluation/validation.json`, with the ranks of all queries beside it. Empty for a recipe
        without such data."""
        if self.recipe.validation is None:
            return []
        embedder = self._saved_model(batch_size=trainer.args.per_device_eval_batch_size)
        languages = trainer.args.eval_languages or self._readable(trainer.processing_class)
        if not languages:
            return []
        ranks: dict[str, QueryRanks] = {}
        recalls = evaluate_retrieval(embedder, self.data.validation, languages, ranks=ranks)
        write_evaluation(self.output, "validation", recalls, of_captions(ranks))
        described = [public_name(self.recipe.validation.source), *self.recipe.validation.changes]
        dataset = f"Validation data ({', '.join(described)})"
        return list(
            retrieval_results(recalls, dataset=dataset, command=self.command, note=self.validation_note(trainer))
        )

    def validation_note(self, trainer: BabelensTrainer) -> str:
        """What stands below the results on validation data: how much of them was trained on, and whether the model was
        evaluated on them during training, too."""
        overlaps = [f"{overlap}." for overlap in self.data.overlaps]
        return " ".join([*overlaps, *([] if trainer.args.eval_strategy == "no" else [_WATCHED])])

    def card_sources(self) -> list[CardSource]:
        """The sources of the training data."""
        sources: list[CardSource] = []
        for task, source in self.recipe.train.items():
            translations = task in self.data.translation_tasks
            if source.source in (EMOJI, WEAK_EMOJI):
                sources += emoji_sources([] if translations else sorted(set(self.data.corpora[task]["vendor"])))
            else:
                role = ", ".join(["translations" if translations else "images and captions", *source.changes])
                if source.translations is not None:
                    role = f"{role}, with translations of {public_name(self.recipe.train[source.translations].source)}"
                sources.append(
                    CardSource(
                        name=public_name(source.source),
                        license=source.license,
                        role=role,
                        attribution=source.attribution,
                    )
                )
        return list(dict.fromkeys(sources))

    def base_sources(self) -> dict[str, str | None]:
        """The folder or Hub id of each model whose weights the trained model started from, by what it became."""
        model = self.recipe.model
        return {
            WHOLE_MODEL: model.from_pretrained,
            IMAGE_TOWER: model.image,
            TEXT_TOWER: model.text,
        }

    @cached_property
    def base_models(self) -> list[BaseModel]:
        """The models whose weights the trained model started from, with their licenses."""
        return [base_model_facts(source, role) for role, source in self.base_sources().items() if source]

    def card_facts(self, trainer: BabelensTrainer, report: dict[str, Any] | None) -> ModelCardFacts:
        """The facts of the card."""
        stages = [stage.name for stage in self.recipe.stages]
        return ModelCardFacts(
            **self.common_facts(trainer),
            pair_languages=self.data.pair_languages,
            unseen_languages=self.recipe.unseen_languages if report else [],
            parameters=sum(trainer.model.parameter_parts().values()),
            results=[*(self.report_results(report) if report else []), *self.validation_results(trainer)],
            in_pipelines=self.in_pipelines,
            stages=stages if len(stages) > 1 else [],
            examples=self.examples,
        )

    # ---- The card ----

    def write_card(self, trainer: BabelensTrainer, report: dict[str, Any] | None) -> Path:
        """Writes the model card, with this run's facts and results alone; returns its path.

        Args:
            trainer: the trainer of the last stage.
            report: the result of `report`.
        """
        files = METHODS[self.recipe.method].files
        texts = None if files is None else files / "model_cards"
        facts = self.card_facts(trainer, report)
        return write_card(self.output, facts, texts=texts)

    def common_facts(self, trainer: BabelensTrainer) -> dict[str, Any]:
        """The facts that the cards of dual encoders and of task models share."""
        sources = self.card_sources()
        licenses = [each.license for each in sources] + [base.license for base in self.base_models]
        is_unknown = any(license in (UNKNOWN, OTHER) for license in licenses)
        return {
            "model_name": self.output.resolve().name,
            "method": self.recipe.method,
            "image_languages": self.data.image_languages,
            "training_data": sources,
            "base_models": self.base_models,
            "license": self.recipe.license or (OTHER if is_unknown else None),
            "license_name": self.recipe.license_name,
            "validation_overlap": [str(overlap) for overlap in self.data.overlaps],
            "run": training_run(trainer.args, trainer.state.log_history, command=self.command),
        }

    def _readable(self, processor: ProcessorMixin) -> list[str]:
        """The languages of the validation data that the model reads."""
        present = list(languages_of(self.data.validation))
        if self.data.readable_languages is None:
            return present
        known = [*self.data.readable_languages, *getattr(processor, "languages", [])]
        if unread := [tag for tag in present if tag not in known]:
            logger.warning("validation: the model does not read %s, which is not evaluated", ", ".join(unread))
        return [tag for tag in present if tag in known]
