"""Reports on a trained model: its benchmark results, its retrieval on the validation data, and its card."""

import hashlib
import logging
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import ProcessorMixin

from ..data.batching.views import Images, RetrievalSets
from ..data.corpus.corpus import languages_of
from ..data.emoji.build import read_sources
from ..evaluation.emoji import TITLES, EmojiBenchmark
from ..evaluation.ranking import QueryRanks
from ..evaluation.results import RESULTS, Results
from ..evaluation.retrieval import evaluate_retrieval
from ..inference.embedder import Embedder, evaluation_mode
from ..model_cards.base_models import OTHER, UNKNOWN, BaseModel, base_model_facts
from ..model_cards.card_text import public_name, publishable
from ..model_cards.cards import write_card
from ..model_cards.facts import DataSource as CardSource, Example, ModelCardFacts, Result, training_run
from ..registry import METHODS, dual_encoder_of
from ..trainers.base import BabelensTrainer
from .data import RecipeData
from .schema import EMOJI, WEAK_EMOJI, Recipe

logger = logging.getLogger(__name__)

_WATCHED = "The model was evaluated on these data during its training as well."
_LABELS = 4  # of each example


def labelled_images(benchmark: EmojiBenchmark, count: int = 3) -> Iterator[tuple[Image.Image, str, list[str]]]:
    """Yields images of unseen concepts, each with one of the training languages, its name in it and three other names.
    They are selected by a hash of the emoji, independently of the model's answers, without flags."""
    languages = [*benchmark.groups.get("image", []), *benchmark.groups.get("pair", [])]
    corpus = benchmark.corpora["unseen_concepts"]
    sets, images, is_flag = RetrievalSets(corpus), Images(corpus), np.array(corpus["category"]) == "Flags"
    for index in range(count):
        language = languages[index % len(languages)]
        queries = sets.of(language)
        order = sorted(
            (text for text, right in enumerate(queries.text_to_images) if not is_flag[right[0]]),
            key=lambda text: hashlib.sha256(queries.text_image_ids[text].encode()).digest(),
        )
        chosen = [order[(_LABELS * index + step) % len(order)] for step in range(_LABELS)]
        labels = [queries.texts[text].replace(",", "") for text in chosen]  # the Hub splits labels at commas
        yield images[queries.text_to_images[chosen[0]][0]], language, list(dict.fromkeys(labels))


def _example(embedder: Embedder, image: Any, language: str, labels: list[str]) -> Example:
    """The model's answers for an image; the first label is correct."""
    inputs = embedder.processor(images=image, text=labels, language=language, return_tensors="pt")
    with evaluation_mode(embedder.model), torch.no_grad():
        output = embedder.model(**inputs.to(embedder.model.device))
    scores = output.logits_per_image[0].softmax(-1).tolist()
    title = f"{labels[0]} ({language})"
    digest = hashlib.sha256(title.encode()).hexdigest()[:8]  # many titles have no letters that are safe in a file name
    return Example(
        title=title,
        image=image.convert("RGB"),
        ranking=sorted(zip(labels, scores, strict=True), key=lambda answer: -answer[1]),
        file_name=f"examples/{language}-{digest}.png",
        language=language,
    )


# ---- The emoji benchmark on cards ----

_NAMES = ("names", "derived_names")


def emoji_sources(vendors: Collection[str]) -> list[CardSource]:
    """The sources of a model trained on the names of emoji and the images by `vendors` (`"twemoji"`, …)."""
    sources = [
        CardSource(
            name=source["title"],
            license=source["license"],
            role="captions and translations" if key in _NAMES else "images",
            attribution=source["attribution"],
            url=source["url"],
        )
        for key, source in read_sources().items()
        if key in _NAMES or key in vendors
    ]
    return list(dict.fromkeys(sources))  # one package of names after another, both from one source


def emoji_results(report: Mapping[str, Any], *, command: str) -> list[Result]:
    """The answers to the benchmark's four questions, from `EmojiBenchmark.report`."""
    found = []
    for question, answers in report.items():
        dataset = f"Emoji, {TITLES[question].lower()} ({answers['vendor']}, {answers['split']} split)"
        note = f"A random ranking has text→image R@10 of {answers['chance']['t2i_r10']:.1f}."
        groups = answers["groups"].values()
        scores = {language: numbers for group in groups for language, numbers in group["languages"].items()}
        found.append(Result(dataset=dataset, scores=scores, command=command, note=note))
    return found


class Reporting:
    """Reports on the model that a recipe trained and saved, on its card and in `results.json`."""

    # Methods with other keys or data declare their classes.
    recipe: Recipe
    data: RecipeData

    def __init__(self, builder: Any, output: Path, command: str) -> None:
        self.builder, self.recipe, self.data = builder, builder.recipe, builder.data
        self.output, self.command = output, str(publishable(command))
        self.examples: list[Example] = []  # the model's answers for images that may be published
        self.results = Results(str(output), self.command)  # for `results.json`
        self.validated: dict[str, dict[str, float]] = {}  # recall on validation data, by language
        self.unknown_rates: dict[str, float] = {}  # of tokens, by language

    # ---- Parts that a method may define ----

    def report(self) -> dict[str, Any] | None:
        """Evaluates the saved model as the recipe's `report` asks: on the four tasks of the emoji benchmark."""
        if self.recipe.report is None:
            return None
        embedder = Embedder.from_pretrained(self.output)
        benchmark = EmojiBenchmark(
            embedder,
            image_languages=self.data.image_languages,
            pair_languages=self.data.pair_languages,
            unseen_languages=self.recipe.unseen_languages,
        )
        ranks: dict[str, QueryRanks] = {}
        report = benchmark.report(ranks)
        self.results.add_emoji(report, ranks)
        self.examples = [_example(embedder, *shown) for shown in labelled_images(benchmark)]
        return report

    def validation_results(self, trainer: BabelensTrainer) -> list[Result]:
        """Measures the recall on the recipe's `validation` data, if any, in each language that the model reads."""
        if self.recipe.validation is None or dual_encoder_of(self.recipe.method) is None:
            return []
        embedder = Embedder.from_pretrained(self.output, batch_size=trainer.args.per_device_eval_batch_size)
        languages = trainer.args.eval_languages or self._readable(trainer.processing_class)
        if not languages:
            return []
        ranks: dict[str, QueryRanks] = {}
        recalls = evaluate_retrieval(embedder, self.data.validation, languages, ranks=ranks)
        self.validated = recalls
        name, split = public_name(self.recipe.validation.source), str(self.recipe.validation.options.get("split", ""))
        self.results.add(recalls, ranks, dataset=name, split=split)
        rules = self.recipe.validation.text_filter
        dataset = f"Validation data ({name if rules is None else f'{name}, {rules}'})"
        return [Result(dataset=dataset, scores=recalls, command=self.command, note=self.validation_note(trainer))]

    def validation_note(self, trainer: BabelensTrainer) -> str:
        """The overlap with the training data, and whether the model was also evaluated on the data during training."""
        overlaps = [f"{overlap}." for overlap in self.data.overlaps]
        return " ".join([*overlaps, *([] if trainer.args.eval_strategy == "no" else [_WATCHED])])

    def card_sources(self) -> list[CardSource]:
        sources: list[CardSource] = []
        for task, source in self.recipe.train.items():
            translations = task in self.data.translation_tasks
            if source.source in (EMOJI, WEAK_EMOJI):
                sources += emoji_sources([] if translations else sorted(set(self.data.corpora[task]["vendor"])))
            else:
                role = "translations" if translations else "images and captions"
                if source.text_filter is not None:
                    role = f"{role}, {source.text_filter}"
                if source.translations is not None:
                    role = f"{role}, with translations of {public_name(self.recipe.train[source.translations].source)}"
                given = {"license": source.license, "attribution": source.attribution}
                sources.append(CardSource(name=public_name(source.source), role=role, **given))
        return list(dict.fromkeys(sources))

    @cached_property
    def base_models(self) -> list[BaseModel]:
        return [base_model_facts(source, role) for role, source in self.builder.base_sources().items() if source]

    def card_facts(self, trainer: BabelensTrainer, report: dict[str, Any] | None) -> ModelCardFacts:
        stages = [stage.name for stage in self.recipe.stages]
        return ModelCardFacts(
            **self.common_facts(trainer),
            pair_languages=self.data.pair_languages,
            unseen_languages=self.recipe.unseen_languages if report else [],
            parameters=sum(trainer.model.parameter_parts().values()),
            results=[*emoji_results(report or {}, command=self.command), *self.validation_results(trainer)],
            in_pipelines=self.builder.in_pipelines,
            stages=stages if len(stages) > 1 else [],
            examples=self.examples,
        )

    # ---- The card ----

    def write_card(self, trainer: BabelensTrainer, report: dict[str, Any] | None) -> None:
        files = METHODS[self.recipe.method].files
        texts = None if files is None else files / "model_cards"
        write_card(self.output, self.card_facts(trainer, report), texts=texts)

    def write_results(self) -> None:
        """Writes `results.json`. It comes last, because it marks a finished run."""
        self.results.add({tag: {"unknown": rate} for tag, rate in self.unknown_rates.items()}, dataset="vocabulary")
        self.results.save(self.output / RESULTS)

    def common_facts(self, trainer: BabelensTrainer) -> dict[str, Any]:
        """Gathers the facts that the cards of dual encoders and of task models share."""
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
            "run": training_run(trainer.args, trainer.state.log_history, command=self.command),
        }

    def _readable(self, processor: ProcessorMixin) -> list[str]:
        present = list(languages_of(self.data.validation))
        if self.data.readable_languages is None:
            return present
        known = [*self.data.readable_languages, *getattr(processor, "languages", [])]
        if unread := [tag for tag in present if tag not in known]:
            logger.warning("validation: the model does not read %s, which is not evaluated", ", ".join(unread))
        return [tag for tag in present if tag in known]
