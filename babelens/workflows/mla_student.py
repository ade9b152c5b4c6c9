"""Recipes of MLA's baselines: a student with a multilingual text encoder learns from a frozen native model."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin, TrainingArguments

from ..configuration.configuration_mla_student import MlaStudentConfig
from ..configuration.errors import RecipeError, TrainingSetupError
from ..configuration.presets import load_preset, preset_facts
from ..configuration.pretrained import load_processor
from ..model_cards.base_models import TEXT_TOWER
from ..modeling.modeling_mla import MlaModel
from ..modeling.modeling_mla_student import MlaStudentModel
from ..modeling.tower_loading import chosen_pooling, load_text_encoder
from ..processing.processing_mla_student import MlaStudentProcessor
from ..trainers.checkpoints import atomic_directory
from ..trainers.masked_language import train_masked_language
from ..trainers.precision import PrecisionTrainingArguments
from ..trainers.tower_training import check_student_tower, checked_training, named
from .argument_checks import check_arguments, made_arguments, overrides_checked
from .loading import Workflow
from .mla import MlaBuilder, MlaData
from .recipe import TEXT_MODEL, Recipe, TokenizerSource
from .reporting import Reporting
from .training import FINISHED, is_finished


@dataclass(frozen=True)
class TextModelSource:
    """A BERT to train by masked language modelling on the captions and keywords of the model's languages, or an
    existing text encoder (a folder or a Hub id, with its tokenizer).

    Args:
        preset: whose `text_config` the encoder has.
        training: transformers' `TrainingArguments`, without `output_dir`, and `precision`.
        from_pretrained: a folder or Hub id instead.
    """

    preset: str | None = None
    training: dict[str, Any] = field(default_factory=dict)
    from_pretrained: str | None = None

    def __post_init__(self) -> None:
        if (self.preset is None) == (self.from_pretrained is None):
            raise RecipeError("give either a preset or from_pretrained")


@dataclass(frozen=True)
class MlaStudentRecipe(Recipe):
    """A recipe of MLA's baselines.

    `model.from_pretrained` is the native model, a plain dual encoder or an MLA model, or a student to go on from;
    `model.overrides` are `MlaStudentConfig`'s keys, of which `languages` are those beside the native one, and
    `text_pooling` is by default what the folder of the text encoder states.

    Args:
        text_model: the text encoder of a new student, before it is trained by its teacher.
        multilingual_tokenizer: the tokenizer of a new text encoder.
    """

    text_model: TextModelSource | None = None
    multilingual_tokenizer: TokenizerSource | None = None


class MlaStudentData(MlaData):
    """The data of a student, which may read native texts as their own translations."""

    pairs_with_itself = True

    @property
    def readable_languages(self) -> list[str] | None:
        """Any: the text encoder reads languages that it was not trained on as well, with what it knows of them."""
        return None

    def documents(self) -> list[str]:
        """The texts of each row of the corpora, joined, in each language of the student; captions and keywords, each
        text once."""
        languages = {self.native_language, *self.acquired_languages}
        documents: dict[str, None] = {}
        for corpus in self.corpora.values():
            columns = [name for name in ("captions", "keywords") if name in corpus.column_names]
            for row in corpus.select_columns(columns).with_format("arrow")[:].to_pylist():
                texts: dict[str, list[str]] = {}
                for entry in (entry for column in columns for entry in row[column] if entry["language"] in languages):
                    texts.setdefault(entry["language"], []).append(entry["text"])
                documents |= dict.fromkeys(map(", ".join, texts.values()))
        return list(documents)


class MlaStudentBuilder(MlaBuilder):
    """Builds a student: a multilingual text encoder beside a frozen native model."""

    def check(self) -> None:
        if self.recipe.model.preset:
            raise RecipeError("model.from_pretrained: a student learns from a trained native model, and has no preset")
        source = self.recipe.text_model
        if source is not None:
            check_arguments(PrecisionTrainingArguments, source.training, "text_model.training")
            if source.training.get("save_strategy", "no") != "no":
                raise RecipeError(
                    "text_model.training.save_strategy: the encoder is saved when it is trained; it has no checkpoints"
                )
        if source is not None and source.preset:
            with overrides_checked("text_model.preset"):
                if "text_config" not in preset_facts(source.preset)["config"]:
                    raise RecipeError(f"text_model.preset: {source.preset!r} has no text_config")
        self._check_towers()

    def _check_towers(self) -> None:
        """Checks the settings of towers as far as the recipe shows them to be wrong, before a text encoder is trained
        or a model is loaded."""
        strategy = self.recipe.model.overrides.get("strategy", MlaStudentConfig().strategy)
        source = self.recipe.text_model
        layers = load_preset(source.preset).text_config.num_hidden_layers if source and source.preset else math.inf
        for stage in self.recipe.all_stages if source else ():
            with overrides_checked(stage.training_key):
                settings = checked_training((self.recipe.training | stage.training).get("towers"))
                for name, setting in settings.items():
                    with named(name):
                        check_student_tower(name, strategy)
                        if (setting.layers or 0) > layers:
                            raise TrainingSetupError(
                                f"layers={setting.layers} is more than {source.preset} has: {layers}"
                            )

    def vocabulary(self, processor: ProcessorMixin) -> PreTrainedTokenizerBase:
        return processor.tokenizer

    @cached_property
    def _text_source(self) -> TextModelSource:
        if self.recipe.text_model is None:
            raise RecipeError("text_model: a new student needs one")
        return self.recipe.text_model

    def make_processor(self) -> ProcessorMixin:
        model, processor = self.native_parts
        if isinstance(model, MlaStudentModel):
            return processor
        native = model.config.base_config if isinstance(model, MlaModel) else model.config
        overrides = self.recipe.model.overrides
        options = {name: overrides[name] for name in ("text_prompt", "native_texts") if name in overrides}
        return MlaStudentProcessor.for_native(
            native, processor, self._tokenizer(), self.data.native_language, **options
        )

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        if self._text_source.from_pretrained:
            return load_processor(AutoTokenizer, self._text_source.from_pretrained, **self.code)
        return self.multilingual_tokenizer()

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        model = self.native_parts[0]
        if isinstance(model, MlaStudentModel):
            return model
        native = model.unload() if isinstance(model, MlaModel) else model
        overrides = {"text_pooling": self._pooling()} | self.recipe.model.overrides
        text_model = self._text_model(processor.tokenizer, overrides["text_pooling"])
        return MlaStudentModel.from_models(native, text_model, **overrides)

    def _pooling(self) -> str:
        """The pooling that the text encoder's folder states, else the state at [CLS]."""
        source = self._text_source.from_pretrained
        return chosen_pooling(source, **self.code) if source else "cls"

    @property
    def _seed(self) -> int:
        """The seed of the student's training, which its text encoder's has by default."""
        training: dict[str, Any] = self.recipe.training | self.recipe.all_stages[0].training
        return training.get("seed", TrainingArguments.seed)

    def _text_model(self, tokenizer: PreTrainedTokenizerBase, pooling: str) -> PreTrainedModel:
        """The text encoder before the student is trained; one that is trained here lies among the checkpoints."""
        source, attention = self._text_source, self.recipe.model.attn_implementation
        finished = self.checkpoints / TEXT_MODEL / FINISHED
        if source.preset and not is_finished(finished):
            own = {"seed": self._seed, "save_strategy": "no"}
            arguments = own | source.training
            where = "text_model.training"
            args = made_arguments(PrecisionTrainingArguments, arguments, where, output_dir=str(finished.parent))
            text = {
                "vocab_size": len(tokenizer),
                "pad_token_id": tokenizer.pad_token_id,
                "attn_implementation": attention,
            }
            config = load_preset(source.preset, text_config=text).text_config
            trained = train_masked_language(config, tokenizer, self.data.documents(), args)
            if args.process_index == 0:
                with atomic_directory(finished) as scratch:
                    trained.save_pretrained(scratch)
                    tokenizer.save_pretrained(scratch)
            return trained
        return load_text_encoder(
            source.from_pretrained or finished, pooling=pooling, attn_implementation=attention, **self.code
        )


class MlaStudentReporting(Reporting):
    """The reports of a recipe of MLA's baselines."""

    def base_sources(self) -> dict[str, str | None]:
        """The text encoder among them, with which a new student begins."""
        text_model: TextModelSource | None = self.recipe.text_model
        return super().base_sources() | {TEXT_TOWER: text_model.from_pretrained if text_model else None}


WORKFLOW = Workflow(
    recipe=MlaStudentRecipe, data=MlaStudentData, builder=MlaStudentBuilder, reporting=MlaStudentReporting
)
