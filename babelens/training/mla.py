"""Recipes of MLA (a native model acquires languages) and of its baselines, students with a multilingual encoder."""

import json
from collections import defaultdict
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import model_validator
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoProcessor,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DataCollatorForLanguageModeling,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.utils import CONFIG_NAME

from ..configuration.configuration_two_tower import IMAGE_TEXT, TEXT_TEXT, TRIPLET
from ..model_cards.base_models import OTHER, TEXT_TOWER, base_model_facts
from ..model_cards.cards import write_adapter_card
from ..model_folders import atomic_directory
from ..modeling.modeling_mla import MlaModel
from ..modeling.modeling_mla_student import MlaStudentModel
from ..modeling.peft_mla import save_adapter
from ..modeling.tower_loading import chosen_pooling, load_text_encoder
from ..presets import load_preset, merged, preset_facts
from ..processing.processing_dual_encoder import note_cut_texts, overlong
from ..processing.processing_mla import MlaProcessor, MlaStudentProcessor, closing_token_id
from ..processing.text_normalization import NORMALIZATION
from ..trainers.arguments import PrecisionTrainingArguments
from ..trainers.base import BabelensTrainer, FiniteGradients
from ..utils.errors import InputError, RecipeError
from ..utils.files import optional_file
from ..utils.pretrained import explained, load_model, load_processor, located
from .build import ModelBuilder, overrides_checked
from .data import RecipeData
from .results import Reporting
from .run import FINISHED, is_finished
from .schema import (
    TEXT_MODEL,
    DualEncoderRecipe,
    Recipe,
    Section,
    TokenizerSource,
    checked_arguments,
    training_arguments,
)


class MlaRecipe(DualEncoderRecipe):
    """A recipe of MLA. `model.from_pretrained` is a plain dual encoder or an MLA model. `model.overrides` are keys of
    `MlaConfig`; its `languages` are those to acquire. With `model.preset` the native model is new too, and `tokenizer`
    describes its tokenizer. `multilingual_tokenizer` is the acquired languages' vocabulary, unless the model has
    one."""

    multilingual_tokenizer: TokenizerSource | None = None


class MlaData(RecipeData):
    @property
    def native_language(self) -> str:
        return self.recipe.model.overrides.get("native_language", "en")

    @property
    def acquired_languages(self) -> list[str]:
        return self.recipe.model.overrides.get("languages", [])

    @cached_property
    def image_languages(self) -> list[str]:
        """Languages with captioned images in training: the native one, and languages with language exposure."""
        trained = {task for stage in self.recipe.all_stages for task in stage.tasks}
        exposed = [tag for task in (IMAGE_TEXT, TRIPLET) if task in trained for tag in self.languages_of_task(task)]
        return list(dict.fromkeys([self.native_language, *exposed]))

    @property
    def readable_languages(self) -> list[str] | None:
        return [self.native_language, *self.acquired_languages]


ADAPTER = "adapter"


class MlaReporting(Reporting):
    """MLA's reports; if a plain base acquired one language, a PEFT adapter with a card is saved too, in `adapter`."""

    recipe: MlaRecipe

    def write_card(self, trainer: BabelensTrainer, report: dict[str, Any] | None) -> None:
        super().write_card(trainer, report)
        model = trainer.accelerator.unwrap_model(trainer.model)
        if self.recipe.model.from_pretrained and len(model.config.languages) == 1:
            self._write_adapter(model, trainer)

    def _write_adapter(self, model: MlaModel, trainer: BabelensTrainer) -> None:
        [language], source = model.config.languages, str(self.recipe.model.from_pretrained)
        base = str(Path(source).resolve()) if Path(source).is_dir() else source
        with atomic_directory(self.output / ADAPTER) as scratch:
            trainer.processing_class.multilingual_tokenizer.save_pretrained(scratch)
            file = scratch / "tokenizer_config.json"
            settings = json.loads(file.read_text(encoding="utf-8"))
            settings.pop("processor_class", None)  # the processor is not in this folder
            file.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            own = {"base_model": base, "normalization": trainer.processing_class.normalization}
            save_adapter(model, language, scratch, **own)
            write_adapter_card(
                scratch,
                name=self.output.resolve().name,
                language=language,
                native_language=model.config.native_language,
                base_model=base,
                base=base_model_facts(source),
                parameters=sum(each.numel() for each in model.acquirer_parameters([language])),
                trained_embedding=model.config.train_embedding,
                max_text_length=trainer.processing_class.max_text_length,
                pairs=len(self.data.corpora[TEXT_TEXT]) if TEXT_TEXT in self.data.corpora else 0,
                exposed=language in self.data.image_languages,
                command=self.command,
                license=self.recipe.license or OTHER,
            )


class MlaBuilder(ModelBuilder):
    """Builds an MLA model on a trained native model or on a new one."""

    recipe_class: ClassVar[type[Recipe]] = MlaRecipe
    data_class = MlaData
    reporting_class: ClassVar[type[Reporting]] = MlaReporting
    recipe: "MlaRecipe | MlaStudentRecipe"
    data: MlaData

    overrides_start = True

    @cached_property
    def native_parts(self) -> tuple[PreTrainedModel, ProcessorMixin]:
        """The trained model that training continues from, and its processor."""
        model = load_model(AutoModel, self.start, as_stored=True, **self.attention, **self.code)
        return model, load_processor(AutoProcessor, self.start, **self.code)

    def vocabulary(self, processor: ProcessorMixin) -> PreTrainedTokenizerBase:
        return processor.multilingual_tokenizer

    def make_processor(self) -> ProcessorMixin:
        native, acquired = self.data.native_language, self.data.acquired_languages
        languages: dict[str, Any] = {"native_language": native, "languages": acquired}
        if self.recipe.model.preset:
            config = load_preset(self.recipe.model.preset)
            return MlaProcessor(
                self.new_image_processor(),
                self.new_tokenizer("tokenizer", [native], [native]),
                self.multilingual_tokenizer(),
                max_text_length=config.base_config.text_config.max_position_embeddings,
                normalization=NORMALIZATION,
                **languages,
            )
        model, processor = self.native_parts
        if isinstance(model, MlaModel):
            processor.languages = list(dict.fromkeys([*processor.languages, *acquired]))
            return processor
        tokenizer = self.multilingual_tokenizer()
        return MlaProcessor.for_native(model.config, processor, tokenizer, **languages)

    def multilingual_tokenizer(self) -> PreTrainedTokenizerBase:
        return self.new_tokenizer("multilingual_tokenizer", self.data.captions, self.data.captions)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        source, tokenizer = self.recipe.model, processor.multilingual_tokenizer
        options: dict[str, Any] = source.overrides | {"languages": processor.languages}
        vocabulary = {"vocab_size": len(tokenizer), "sep_token_id": closing_token_id(tokenizer)}
        if source.preset is None:
            model = self.native_parts[0]
            if isinstance(model, MlaModel):
                return model.reconfigured(**options)
            return MlaModel.from_native(model, table=self._pretrained_table(tokenizer), **options, **vocabulary)
        native = {"vocab_size": len(processor.tokenizer), "eos_token_id": processor.tokenizer.sep_token_id}
        config = load_preset(source.preset, **merged(options, {"base_config": {"text_config": native}} | vocabulary))
        return AutoModel.from_config(config, **self.attention)

    def _pretrained_table(self, tokenizer: PreTrainedTokenizerBase) -> Tensor | None:
        """The embeddings [pieces, size] of the multilingual tokenizer's model, such as M-BERT's; None without one."""
        stated = self.recipe.multilingual_tokenizer
        if stated is None or (source := stated.from_pretrained) is None:
            return None
        place = located(source, **self.code)
        with explained(source, place):
            file = optional_file(source, CONFIG_NAME, place)
            if file is None or "model_type" not in json.loads(file.read_text(encoding="utf-8")):
                return None
        whole = load_processor(AutoTokenizer, source, **self.code)
        model = load_model(AutoModel, source, part=_embedding, dtype=torch.float32, **self.code)
        table: Tensor = _embedding(model).weight.detach()
        if len(table) < len(whole):
            raise InputError(f"{source}: the model has {len(table)} word pieces, but its tokenizer has {len(whole)}")
        return table if stated.coverage is None else rows_of_pieces(table, tokenizer, whole)


def _embedding(model: PreTrainedModel) -> nn.Module:
    try:
        return model.get_input_embeddings()
    except NotImplementedError as error:
        raise InputError(f"{type(model).__name__} has no single table of word pieces") from error


def rows_of_pieces(table: Tensor, tokenizer: PreTrainedTokenizerBase, whole: PreTrainedTokenizerBase) -> Tensor:
    """The rows [pieces, size] of a table [vocabulary, size] for `tokenizer`, which was trimmed from `whole`."""
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    return table[torch.tensor(whole.convert_tokens_to_ids(pieces))]


# ---- MLA's baselines ----
# A student with a multilingual text encoder learns from a frozen native model.


class TextModelSource(Section):
    """A BERT to train by masked language modelling on the captions and keywords of the model's languages, or an
    existing text encoder with its tokenizer."""

    preset: str | None = None  # with the encoder's `text_config`
    training: dict[str, Any] = {}  # transformers' `TrainingArguments`, without `output_dir`, and `precision`
    from_pretrained: str | None = None  # folder or Hub id of an existing text encoder instead

    @model_validator(mode="after")
    def _one_source(self) -> "TextModelSource":
        if (self.preset is None) == (self.from_pretrained is None):
            raise ValueError("give either preset or from_pretrained")
        return self


class MlaStudentRecipe(Recipe):
    """A recipe of MLA's baselines. `model.from_pretrained` is the native model (a plain dual encoder or an MLA model),
    or a student to continue from. `model.overrides` are keys of `MlaStudentConfig`: `languages` lists all languages
    except the native one, and `text_pooling` is by default what the text encoder's folder states. `text_model` is a
    new student's text encoder before its teacher trains it, and `multilingual_tokenizer` a new encoder's tokenizer."""

    text_model: TextModelSource | None = None
    multilingual_tokenizer: TokenizerSource | None = None


class MlaStudentData(MlaData):
    """The data of a student; native texts may be paired with themselves."""

    pairs_with_itself = True
    co_captions = False

    @property
    def readable_languages(self) -> list[str] | None:
        """None, for any language: the text encoder also reads languages that it was not trained on."""
        return None

    def documents(self) -> list[str]:
        """The captions and keywords of each corpus row, joined per language of the student, without duplicates."""
        languages = {self.native_language, *self.acquired_languages}
        documents: dict[str, None] = {}
        for corpus in self.corpora.values():
            columns = [name for name in ("captions", "keywords") if name in corpus.column_names]
            for row in corpus.select_columns(columns).with_format("arrow")[:].to_pylist():
                texts: defaultdict[str, list[str]] = defaultdict(list)
                for entry in chain.from_iterable(row[column] for column in columns):
                    if entry["language"] in languages:
                        texts[entry["language"]].append(entry["text"])
                documents |= dict.fromkeys(map(", ".join, texts.values()))
        return list(documents)


class MlaStudentBuilder(MlaBuilder):
    recipe_class = MlaStudentRecipe
    data_class = MlaStudentData
    reporting_class = Reporting
    recipe: MlaStudentRecipe
    data: MlaStudentData

    def check(self) -> None:
        if self.recipe.model.preset:
            raise RecipeError("model.from_pretrained: a student requires a trained native model instead of a preset")
        source = self.recipe.text_model
        if source is None:
            return
        checked_arguments(PrecisionTrainingArguments, source.training, "text_model.training")
        if source.training.get("save_strategy", "no") != "no":
            raise RecipeError("text_model.training.save_strategy: the encoder has no checkpoints; leave it out")
        with overrides_checked("text_model.preset"):
            if source.preset and "text_config" not in preset_facts(source.preset)["config"]:
                raise RecipeError(f"text_model.preset: {source.preset!r} has no text_config")

    def base_sources(self) -> dict[str, str | None]:
        text_model = self.recipe.text_model
        return super().base_sources() | {TEXT_TOWER: text_model.from_pretrained if text_model else None}

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
        overrides, source = self.recipe.model.overrides, self._text_source.from_pretrained
        own = load_processor(AutoTokenizer, source, **self.code) if source else self.multilingual_tokenizer()
        options: dict[str, Any] = {"normalization": NORMALIZATION}
        options |= {name: overrides[name] for name in ("text_prompt", "native_texts") if name in overrides}
        return MlaStudentProcessor.for_native(native, processor, own, self.data.native_language, **options)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        model = self.native_parts[0]
        if isinstance(model, MlaStudentModel):
            return model
        native, source = model.unload() if isinstance(model, MlaModel) else model, self._text_source.from_pretrained
        stated = {"text_pooling": chosen_pooling(source, **self.code) if source else "cls"}
        overrides = stated | self.recipe.model.overrides
        text_model = self._text_model(processor.tokenizer, overrides["text_pooling"])
        return MlaStudentModel.from_towers(native, text_model, **overrides)

    def _text_model(self, tokenizer: PreTrainedTokenizerBase, pooling: str) -> PreTrainedModel:
        """Loads or trains the text encoder that the student starts with; a new one is saved with the checkpoints."""
        source = self._text_source
        finished = self.checkpoints / TEXT_MODEL / FINISHED
        if not source.preset or is_finished(finished):
            place = source.from_pretrained or finished
            return load_text_encoder(place, pooling=pooling, **self.attention, **self.code)
        of_student: dict[str, Any] = self.recipe.training | self.recipe.all_stages[0].training
        seed = of_student.get("seed", TrainingArguments.seed)
        arguments = {"seed": seed, "save_strategy": "no"} | source.training
        where, folder = "text_model.training", str(finished.parent)
        args: Any = training_arguments(PrecisionTrainingArguments, arguments, where, output_dir=folder)
        text = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, **self.attention}
        config = load_preset(source.preset, text_config=text).text_config
        trained = train_masked_language(config, tokenizer, self.data.documents(), args)
        if args.process_index == 0:
            with atomic_directory(finished) as scratch:
                trained.save_pretrained(scratch)
                tokenizer.save_pretrained(scratch)
        return trained


# ---- Masked language modelling: trains a multilingual BERT if no pre-trained one is used (Devlin et al. 2019) ----


def train_masked_language(
    config: BertConfig, tokenizer: PreTrainedTokenizerBase, texts: list[str], args: PrecisionTrainingArguments
) -> BertModel:
    """Trains a new text encoder to predict 15 % of the word pieces of each text; returns it without its head."""
    set_seed(args.seed)
    model = BertForMaskedLM(config)
    encoded = tokenizer(texts, truncation=True)
    note_cut_texts(overlong(texts, encoded), f"{tokenizer.model_max_length} tokens")
    examples = [{"input_ids": ids} for ids in encoded["input_ids"]]
    collator = DataCollatorForLanguageModeling(tokenizer, seed=args.seed)
    Trainer(model, args, collator, examples, callbacks=[FiniteGradients()]).train()
    return model.bert
