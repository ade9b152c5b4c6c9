"""A recipe, run: from data to a model folder that holds the model, its processor, its evaluation and its card."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers import (
    AutoModel,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    ProcessorMixin,
    set_seed,
)
from transformers.image_processing_utils import BaseImageProcessor

from ..configuration.errors import RecipeError
from ..configuration.languages import normalize_languages
from ..configuration.presets import load_preset
from ..configuration.pretrained import load_model, load_processor, refuse_kernels
from ..evaluation.emoji import EmojiBenchmark
from ..inference.embedder import Embedder
from ..model_cards.cards import write_card
from ..model_cards.emoji import emoji_results, emoji_sources
from ..model_cards.facts import DataSource as CardSource, ModelCardFacts, training_run
from ..model_cards.licenses import OTHER
from ..processing.tokenizer_training import WORDPIECE_PREFIX, train_wordpiece, unknown_rate
from ..registry import METHODS
from ..trainers.arguments import ContrastiveTrainingArguments
from ..trainers.checkpoints import has_checkpoint, newest_checkpoint
from ..trainers.contrastive import ContrastiveTrainer
from ..trainers.saving import atomic_directory, finish_saving, prepare_saving
from .argument_checks import made_arguments
from .data import RecipeData
from .recipe import EMOJI, WEAK_EMOJI, ImageSizes, Recipe, Stage, TokenizerSource
from .recipe_checks import check_arguments_fit, check_data, check_recipe, check_start, overrides_checked
from .recipe_file import did_you_mean
from .resuming import CHECKPOINTS as CHECKPOINTS, record_start, resumed_processor

FINISHED = "finished"
EVALUATION = "evaluation"


def recipe_run(recipe: Recipe, output: Path, command: str, *, trust_remote_code: bool = False) -> "RecipeRun":
    """The run of a recipe, as its method runs them.

    Raises:
        RecipeError: for an unknown method, and for the fine-tuning of a method that has none.
    """
    if recipe.method not in METHODS:
        hint = did_you_mean(recipe.method, METHODS)
        raise RecipeError(f"method: there is no {recipe.method!r}{hint}; there are {', '.join(METHODS)}")
    method = METHODS[recipe.method]
    run = method.run if recipe.task is None else method.task_run
    if run is None:
        raise RecipeError(f"task: {recipe.method} is not fine-tuned on tasks")
    module, name = run.split(":")
    return getattr(import_module(module), name)(recipe, output, command, trust_remote_code)


def is_finished(stage: Path) -> bool:
    """Whether the folder holds what a stage ended with, rather than a part of it."""
    return (stage / "config.json").is_file()


@dataclass
class RecipeRun(RecipeData):
    """One run of a recipe into `output`."""

    def check(self) -> None:
        """Whatever can be known of the recipe before data is read; also what is only needed at the end.

        Raises:
            RecipeError: for a recipe that does not fit its method.
        """
        self._check_tasks()
        check_recipe(self)
        if not self.trust_remote_code:
            refuse_kernels(asdict(self.recipe.model), "model")
        self._check_overrides()

    def train(self, *, resume: bool = False) -> ContrastiveTrainer:
        """Trains and saves model and processor; `resume` goes on from the newest checkpoint where there is one.

        Raises:
            RecipeError: for a recipe that does not fit its method, its data or the trainer's arguments.
            ChangedRunError: when data or settings are not those that the run to resume began with.
            FileExistsError: when `output` holds a run already and `resume` was not asked for.
            SaveError: when nothing can be saved to `output`.
        """
        has_stages = any((self.output / CHECKPOINTS).glob(f"*/{FINISHED}"))
        has_run = has_stages or has_checkpoint(self.output / CHECKPOINTS / self.stages[0].name)
        if has_run and not resume:
            raise FileExistsError(f"{self.output} holds a run already: resume it, or choose another folder")
        self.check()
        arguments = [self._arguments(stage) for stage in self.stages]  # all, before the first is trained
        check_arguments_fit(self, arguments)
        check_start(self)
        with arguments[0].main_process_first(local=False, desc="the output folder"):
            if arguments[0].process_index == 0:
                self._prepare_output()
        check_data(self, arguments)
        set_seed(arguments[0].seed)
        processor = (resumed_processor(self) if has_run else None) or self.make_processor()
        model = self.make_model(processor)
        if not has_run and arguments[0].process_index == 0:
            record_start(self, processor)
        *earlier, last = self.stages
        for stage in earlier:
            finished = self.output / CHECKPOINTS / stage.name / FINISHED
            if not is_finished(finished):
                trainer = self._train_stage(stage, model, processor)
                if trainer.is_world_process_zero():
                    with atomic_directory(finished) as scratch:
                        model.save_pretrained(scratch)
                trainer.accelerator.wait_for_everyone()
            attention = self.recipe.model.attn_implementation
            model = self.next_model(load_model(type(model), finished, attn_implementation=attention))
        trainer = self._train_stage(last, model, processor)
        if trainer.is_world_process_zero():
            with atomic_directory(self.output) as scratch:
                model.save_pretrained(scratch)
                processor.save_pretrained(scratch)
            self._write_json("tokenizer.json", self.unknown_rates(self.vocabulary(processor)))
        trainer.accelerator.wait_for_everyone()
        return trainer

    def _prepare_output(self) -> None:
        for finished in (self.output / CHECKPOINTS).glob(f"*/{FINISHED}"):
            finish_saving(finished)
        prepare_saving(self.output)

    def _train_stage(self, stage: Stage, model: PreTrainedModel, processor: ProcessorMixin) -> ContrastiveTrainer:
        """Trains a stage, or goes on with it where a run broke off."""
        trainer = self.stage_trainer(stage, model, processor)
        newest = newest_checkpoint(trainer.args.output_dir)
        trainer.train(resume_from_checkpoint=str(newest) if newest else None)
        return trainer

    def stage_trainer(self, stage: Stage, model: PreTrainedModel, processor: ProcessorMixin) -> ContrastiveTrainer:
        """What trains a stage."""
        return self._trainer_class(
            model=model,
            args=self._arguments(stage),
            processing_class=processor,
            train_dataset=self.stage_data(stage),
            eval_dataset=self.validation_data(),
            **self.trainer_options(),
        )

    def stage_data(self, stage: Stage) -> Any:
        """What the trainer learns from in a stage."""
        return {task: self._task_data(task, stage) for task in stage.tasks}

    def validation_data(self) -> Any:
        """What the trainer evaluates."""
        return self.recipe.validation.load() if self.recipe.validation else None

    def trainer_options(self) -> dict[str, Any]:
        """What a method's trainer takes beside what all take."""
        return {}

    def vocabulary(self, processor: ProcessorMixin) -> PreTrainedTokenizerBase:
        """The tokenizer that reads all languages of the corpora."""
        return processor.tokenizer

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
        with atomic_directory(self.output / EVALUATION) as scratch:
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
            license=self.recipe.license or (OTHER if is_unknown else None),
            license_name=self.recipe.license_name,
            parameters=sum(trainer.model.parameter_parts().values()),
            base_model=self.recipe.model.from_pretrained,
            results=emoji_results(report, command=self.command) if report else [],
            in_pipelines=self.in_pipelines,
            stages=[stage.name for stage in self.recipe.stages] if len(self.recipe.stages) > 1 else [],
            run=training_run(trainer.args, trainer.state.log_history, command=self.command),
        )
        return write_card(self.output, facts)

    # ---- Parts ----

    @cached_property
    def _trainer_class(self) -> type[ContrastiveTrainer]:
        module, name = METHODS[self.recipe.method].trainer.split(":")
        return getattr(import_module(module), name)

    def _arguments(self, stage: Stage) -> ContrastiveTrainingArguments:
        where = f"stage {stage.name!r}: training" if stage.name else "training"
        folder = str(self.output / CHECKPOINTS / stage.name)
        given = self.recipe.training | stage.training
        return made_arguments(self._trainer_class.arguments_class, given, where, output_dir=folder)

    @property
    def _known_tasks(self) -> list[str]:
        return list(self._trainer_class.task_weights)

    def _check_tasks(self) -> None:
        for task in self.recipe.train:
            if task not in self._known_tasks:
                tasks = ", ".join(self._known_tasks)
                raise RecipeError(f"train.{task}: {self.recipe.method} has no such task; it has {tasks}")

    def _check_overrides(self) -> None:
        """Whether the preset can be had with the recipe's overrides."""
        source = self.recipe.model
        if source.preset:
            with overrides_checked():
                load_preset(source.preset, **source.overrides)

    def make_processor(self) -> ProcessorMixin:
        """The processor of the model to train: that of the model it goes on from, or a new one."""
        if self.recipe.model.from_pretrained:
            return load_processor(AutoProcessor, self.start, **self.code)
        method = METHODS[self.recipe.method]
        languages = [*self.image_languages, *self.pair_languages]
        # A language that the model never saw must at least be spelled.
        return method.processor(self.new_image_processor(), self.new_tokenizer("tokenizer", languages, self.captions))

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        """The model to train, before training."""
        source = self.recipe.model
        attention: dict[str, Any] = {"attn_implementation": source.attn_implementation}
        if source.preset is None:
            return load_model(AutoModel, self.start, **attention, **self.code)
        vocabulary = {"vocab_size": len(processor.tokenizer)}
        overrides = {**source.overrides, "text_config": {**source.overrides.get("text_config", {}), **vocabulary}}
        return AutoModel.from_config(load_preset(source.preset, **overrides), **attention)

    def next_model(self, model: PreTrainedModel) -> PreTrainedModel:
        """What the next stage trains, after one that ended with `model`."""
        return model

    def new_image_processor(self) -> BaseImageProcessor:
        sizes = self.recipe.image or ImageSizes()
        resize, crop = ({"height": side, "width": side} for side in (sizes.resize, sizes.crop))
        return METHODS[self.recipe.method].image_processor(size=resize, crop_size=crop)

    def train_vocabulary(
        self, source: TokenizerSource, texts: list[str], vocab_size: int, alphabet: list[str]
    ) -> PreTrainedTokenizerFast:
        """Word pieces as the method reads them."""
        given = source.continuing_subword_prefix
        return train_wordpiece(
            texts,
            vocab_size,
            alphabet=alphabet,
            lowercase=source.lowercase,
            continuing_subword_prefix=WORDPIECE_PREFIX if given is None else given,
        )

    def new_tokenizer(self, key: str, languages: Iterable[str], spelled: Iterable[str]) -> PreTrainedTokenizerBase:
        """The tokenizer that the recipe's `key` asks for, trained on captions in `languages` unless it says otherwise,
        with all characters of the languages `spelled`.

        Raises:
            RecipeError: when the recipe does not say.
        """
        source: TokenizerSource | None = getattr(self.recipe, key)
        if source is None:
            raise RecipeError(f"{key}: a model trained from scratch needs one")
        if source.vocab_size is None:
            assert source.from_pretrained is not None  # a recipe gives one or the other
            return load_processor(AutoTokenizer, source.from_pretrained, **self.code)
        if self.streams:
            raise RecipeError(
                f"{key}.vocab_size: word pieces are trained on captions at hand, and train.{self.streams[0]} is a "
                f"stream: give {key}.from_pretrained"
            )
        texts = self._texts_in(normalize_languages(source.languages) if source.languages else languages)
        try:
            return self.train_vocabulary(source, texts, source.vocab_size, self._texts_in(spelled))
        except RecipeError:
            raise
        except ValueError as error:  # too few for the characters
            raise RecipeError(f"{key}.vocab_size: {error}") from error

    def _texts_in(self, languages: Iterable[str]) -> list[str]:
        return [text for language in languages for text in self.captions.get(language, [])]

    def _card_sources(self) -> list[CardSource]:
        sources = []
        for task, source in self.recipe.train.items():
            translations = task in self.translation_tasks
            if source.source in (EMOJI, WEAK_EMOJI):
                sources += emoji_sources([] if translations else sorted(set(self.corpora[task]["vendor"])))
            else:
                role = "translations" if translations else "images and captions"
                sources.append(
                    CardSource(name=source.source, license=source.license, role=role, attribution=source.attribution)
                )
        return list(dict.fromkeys(sources))
