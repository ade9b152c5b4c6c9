"""A recipe, run: from data to a model folder that holds the model, its processor, its evaluation and its card."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from datasets import Dataset
from rich.console import Console
from transformers import (
    AutoModel,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    set_seed,
)

from .configuration.configuration_mural import IMAGE_TEXT, TEXT_TEXT
from .configuration.presets import load_preset
from .data.corpus import captions_of, languages_of
from .data.views import image_text_pairs, translation_pairs, triplets
from .evaluation.embedder import Embedder
from .evaluation.emoji import EmojiBenchmark, print_report
from .methods import METHODS
from .model_cards.cards import write_card
from .model_cards.emoji import emoji_results, emoji_sources
from .model_cards.facts import DataSource as CardSource
from .model_cards.facts import ModelCardFacts, training_run
from .processing.tokenizer_training import train_wordpiece, unknown_rate
from .recipe import EMOJI, DataSource, Recipe, RecipeError
from .trainers.arguments import ContrastiveTrainingArguments
from .trainers.checkpoints import newest_checkpoint, written_whole
from .trainers.contrastive import ContrastiveTrainer

CHECKPOINTS = "checkpoints"
EVALUATION = "evaluation"

_VIEWS: dict[str, Callable[..., Any]] = {
    IMAGE_TEXT: image_text_pairs,
    TEXT_TEXT: translation_pairs,
    "triplets": triplets,
}


@dataclass
class RecipeRun:
    """One run of a recipe into `output`.

    Args:
        recipe: what to do.
        output: the model folder; checkpoints lie in `output/checkpoints`, reports in `output/evaluation`.
        command: what was typed, for the card.
    """

    recipe: Recipe
    output: Path
    command: str

    @cached_property
    def corpora(self) -> dict[str, Dataset]:
        """The corpus of each task."""
        return {task: source.load(translations=task == TEXT_TEXT) for task, source in self.recipe.train.items()}

    @cached_property
    def captions(self) -> dict[str, list[str]]:
        """The captions of all tasks' corpora by language; what several rows say counts once."""
        found: dict[str, dict[str, None]] = {}
        for corpus in self.corpora.values():
            for caption in captions_of(corpus).combine_chunks().flatten().to_pylist():
                found.setdefault(caption["language"], {}).setdefault(caption["text"])
        return {language: list(found[language]) for language in sorted(found)}

    @cached_property
    def image_languages(self) -> list[str]:
        """Languages with captioned pictures in training."""
        return next(self._languages(task) for task in self.recipe.train if task != TEXT_TEXT)

    @cached_property
    def pair_languages(self) -> list[str]:
        """Languages with translations only."""
        paired = [tag for task in self.recipe.train for tag in self._languages(task)]
        return [tag for tag in dict.fromkeys(paired) if tag not in self.image_languages]

    def _languages(self, task: str) -> list[str]:
        source = self.recipe.train[task]
        if source.language_pairs:
            return list(dict.fromkeys(tag for pair in source.language_pairs for tag in pair))
        return source.languages or list(languages_of(self.corpora[task]))

    def train(self, *, resume: bool = False) -> ContrastiveTrainer:
        """Trains and saves model and processor; `resume` goes on from the newest checkpoint where there is one.

        Raises:
            RecipeError: for a recipe that does not fit its method, its data or the trainer's arguments.
            FileExistsError: when `output` holds a run already and `resume` was not asked for.
        """
        newest = newest_checkpoint(self.output / CHECKPOINTS)
        if newest and not resume:
            raise FileExistsError(
                f"{self.output} holds a run already ({newest.name}): resume it, or choose another folder"
            )
        arguments = self._arguments()
        set_seed(arguments.seed)
        processor = self._processor()
        model = self._model(processor)
        module, name = METHODS[self.recipe.method].trainer.split(":")
        trainer_class = getattr(import_module(module), name)
        trainer: ContrastiveTrainer = trainer_class(
            model=model,
            args=arguments,
            processing_class=processor,
            train_dataset={task: self._view(task, source) for task, source in self.recipe.train.items()},
            eval_dataset=self.recipe.validation.load() if self.recipe.validation else None,
        )
        trainer.train(resume_from_checkpoint=str(newest) if newest else None)
        if trainer.is_world_process_zero():
            with written_whole(self.output) as scratch:
                model.save_pretrained(scratch)
                processor.save_pretrained(scratch)
            self._write_json("tokenizer.json", self.unknown_rates(processor.tokenizer))
        trainer.accelerator.wait_for_everyone()
        return trainer

    def unknown_rates(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, float]:
        """How many of 100 tokens are [UNK], in each language of the corpora; in `evaluation/tokenizer.json`."""
        return {language: round(unknown_rate(tokenizer, texts), 3) for language, texts in self.captions.items()}

    def report(self) -> dict[str, Any] | None:
        """Answers the recipe's questions with the saved model; writes `evaluation/emoji.json` and
        `evaluation/gallery.png`."""
        if self.recipe.report is None:
            return None
        benchmark = EmojiBenchmark(
            Embedder.from_pretrained(self.output),
            image_languages=self.image_languages,
            pair_languages=self.pair_languages,
            unseen_languages=self.recipe.unseen_languages,
        )
        report = benchmark.report()
        self._write_json("emoji.json", report)
        benchmark.gallery().save(self.output / EVALUATION / "gallery.png")
        return report

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        with written_whole(self.output / EVALUATION) as scratch:
            (scratch / name).write_text(json.dumps(content, indent=1), encoding="utf-8")

    def write_card(self, trainer: ContrastiveTrainer, report: dict[str, Any] | None) -> Path:
        """Writes the model card, from this run's facts alone."""
        sources = self._card_sources()
        is_unknown = any(source.license == "unknown" for source in sources)
        facts = ModelCardFacts(
            model_name=self.output.resolve().name,
            method=self.recipe.method,
            image_languages=self.image_languages,
            pair_languages=self.pair_languages,
            unseen_languages=self.recipe.unseen_languages if report else [],
            training_data=sources,
            license=self.recipe.license or ("other" if is_unknown else None),
            parameters=sum(trainer.model.parameter_parts().values()),
            base_model=self.recipe.model.from_pretrained,
            results=emoji_results(report, command=self.command) if report else [],
            run=training_run(trainer.args, trainer.state.log_history, command=self.command),
        )
        return write_card(self.output, facts)

    def print_summary(self, report: dict[str, Any] | None, console: Console) -> None:
        """The report as a table, what the vocabulary cannot spell, and where everything lies."""
        if report:
            print_report(report, console)
            console.print(f"Gallery of queries: {self.output / EVALUATION / 'gallery.png'}")
        unknown = json.loads((self.output / EVALUATION / "tokenizer.json").read_text(encoding="utf-8"))
        language, rate = max(unknown.items(), key=lambda item: item[1])
        console.print(f"[UNK] in {len(unknown)} languages: at most {rate} % of the tokens ({language})", markup=False)
        console.print(f"Model and card: {self.output}")

    # ---- Parts ----

    def _arguments(self) -> ContrastiveTrainingArguments:
        try:
            return ContrastiveTrainingArguments(output_dir=str(self.output / CHECKPOINTS), **self.recipe.training)
        except (TypeError, ValueError) as error:
            raise RecipeError(f"training: {error}") from error

    def _view(self, task: str, source: DataSource) -> Any:
        if task not in _VIEWS:
            raise RecipeError(f"train.{task}: there is no such task; there are {', '.join(_VIEWS)}")
        selection = source.languages if task == IMAGE_TEXT else source.language_pairs
        return _VIEWS[task](self.corpora[task], selection)

    def _processor(self) -> ProcessorMixin:
        if self.recipe.model.from_pretrained:
            return AutoProcessor.from_pretrained(self.recipe.model.from_pretrained)
        source, sizes = self.recipe.tokenizer, self.recipe.image
        if source is None:
            raise RecipeError("tokenizer: a model trained from scratch needs one")
        if source.vocab_size is None:
            tokenizer = AutoTokenizer.from_pretrained(source.from_pretrained)
        else:
            tokenizer = train_wordpiece(
                self._texts_in(source.languages or [*self.image_languages, *self.pair_languages]),
                source.vocab_size,
                # A language that the model never saw must at least be spelled.
                alphabet=self._texts_in(self.captions),
                lowercase=source.lowercase,
            )
        method = METHODS[self.recipe.method]
        resize, crop = ({"height": side, "width": side} for side in (sizes.resize, sizes.crop))
        return method.processor(method.image_processor(size=resize, crop_size=crop), tokenizer)

    def _texts_in(self, languages: Iterable[str]) -> list[str]:
        return [text for language in languages for text in self.captions.get(language, [])]

    def _model(self, processor: ProcessorMixin) -> PreTrainedModel:
        source = self.recipe.model
        attention = {"attn_implementation": source.attn_implementation}
        if source.preset is None:
            return AutoModel.from_pretrained(source.from_pretrained, **attention)
        vocabulary = {"vocab_size": len(processor.tokenizer)}
        overrides = {**source.overrides, "text_config": {**source.overrides.get("text_config", {}), **vocabulary}}
        return AutoModel.from_config(load_preset(source.preset, **overrides), **attention)

    def _card_sources(self) -> list[CardSource]:
        sources = []
        for task, source in self.recipe.train.items():
            if source.source == EMOJI:
                sources += emoji_sources([] if task == TEXT_TEXT else sorted(set(self.corpora[task]["vendor"])))
            else:
                role = "translations" if task == TEXT_TEXT else "pictures and captions"
                sources.append(
                    CardSource(name=source.source, license=source.license, role=role, attribution=source.attribution)
                )
        return list(dict.fromkeys(sources))
