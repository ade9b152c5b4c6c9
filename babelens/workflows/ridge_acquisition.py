"""Teaching a model languages in closed form (`trainers/ridge.py`): the way that `babelens acquire` takes by default.

The result is a whole model. Images, texts in the native language, and languages that the base has learned in this way
before stay bitwise what they were.
"""

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from datasets import Dataset
from transformers import AutoTokenizer

from ..configuration.configuration_two_tower import declared_pooling
from ..configuration.errors import (
    CorpusError,
    MissingExtraError,
    ModelKindError,
    SourceUnavailableError,
    TrainingSetupError,
    did_you_mean,
)
from ..configuration.identity import holds_weights
from ..configuration.languages import normalize_language
from ..configuration.pretrained import explained, load_processor, located
from ..data.batching.views import translation_pairs
from ..data.corpus.corpus import languages_of
from ..data.corpus.sampling import evenly_spread
from ..data.emoji.translations import NameTranslations, load_emoji_names
from ..data.readers.bitext import read_translations
from ..inference.loading import load_dual_encoder
from ..model_cards.base_models import TEXT_TOWER, BaseModel, base_model_facts
from ..model_cards.licenses import check_weights_license
from ..model_cards.ridge_cards import RidgeCardFacts, write_ridge_card
from ..modeling.modeling_mla_base import MlaPreTrainedModel
from ..modeling.modeling_ridge import RidgeModel
from ..modeling.tower_loading import load_text_encoder
from ..processing.processing_ridge import RidgeProcessor
from ..trainers.checkpoints import atomic_directory, prepare_saving
from ..trainers.precision import fastest_precision
from ..trainers.ridge import LanguageResult, Pairs, learn
from .acquisition_choices import ONLY_OF_ADAPTERS, AcquisitionChoices, Way
from .emoji_names import names_for

logger = logging.getLogger(__name__)

ALL = "all"
_OF_TRAINING = ("captions", "freeze_encoder", "train_layers", "native_texts", "steps", "exposure_steps")


@dataclass
class RidgeAcquisition(AcquisitionChoices):
    """One acquisition in closed form: `load` the models, `run`, `save` the whole model.

    `language` may be `all`: every language of the translations beside the native one.

    Raises:
        TrainingSetupError: for a choice that only the other ways have.
    """

    way: ClassVar[Way] = "ridge"

    def __post_init__(self) -> None:
        if self.language == ALL:
            native = normalize_language(self.native_language or "en")
            self.language = ",".join(tag for tag in languages_of(self.corpus) if tag != native)
        super().__post_init__()
        if given := self.given(ONLY_OF_ADAPTERS):
            raise TrainingSetupError(f"{self.as_given(given)}: only an adapter has such a choice (--way adapter)")
        if given := self.given(_OF_TRAINING):
            raise TrainingSetupError(
                f"{self.as_given(given)}: this way solves, and trains nothing; --way student and --way adapter train"
            )

    @cached_property
    def corpus(self) -> Dataset:
        """The translations, in whatever languages."""
        return read_translations(self.translations, on_incomplete="skip")

    @cached_property
    def pairs(self) -> dict[str, Pairs]:
        """By language, its texts with their native translations.

        Raises:
            CorpusError: when a language has no text, or no translation of one.
        """
        native, present = self._native, languages_of(self.corpus)
        pairs = {}
        for tag in (native, *self.languages):
            if tag not in present:
                hint = did_you_mean(tag, present)
                raise CorpusError(f"{self.translations} has no text in {tag!r}{hint}, only in {', '.join(present)}")
        for tag in self.languages:
            view = translation_pairs(self.corpus, [(tag, native)])
            if not len(view):
                raise CorpusError(f"{self.translations} has no text in {tag!r} with a translation into {native!r}")
            examples = view.__getitems__(list(range(len(view))))
            pairs[tag] = ([each["text_a"] for each in examples], [each["text_b"] for each in examples])
        return pairs

    @cached_property
    def emoji_names(self) -> dict[str, NameTranslations]:
        """Names of things to learn from beside the sentences, by language; empty where they cannot be fetched."""
        if not self.names:
            return {}
        try:
            names = load_emoji_names()
        except (SourceUnavailableError, MissingExtraError) as error:
            logger.warning("The languages are learned without CLDR's names of emoji: %s", error)
            return {}
        return names_for({tag: texts for tag, (texts, _) in self.pairs.items()}, self._native, names)

    def samples(self, language: str, count: int = 3) -> list[tuple[str, str]]:
        """Pairs to show, (text, native text), which tell a reader whether the columns are swapped."""
        texts, natives = self.pairs[language]
        return [(texts[row], natives[row]) for row in evenly_spread(len(texts), count)]

    @property
    def _native(self) -> str:
        return normalize_language(self.native_language or "en")

    def load(self) -> None:
        """Loads the base and the text encoder.

        Raises:
            ModelFolderError: for a folder that holds no such model, or a damaged one.
            ModelKindError: for a base that is no dual encoder, and for a text encoder of the wrong kind.
            PublishError: when `license` is freer than the license of the base or of the text encoder.
            TrainingSetupError: for a base that has learned languages in another way, or has the language.
        """
        native, native_processor = load_dual_encoder(self.base, dtype=torch.float32, **self.code)
        check_weights_license(self.license, self.base_facts)
        if isinstance(native, RidgeModel):
            self._check_further(native)
            self.model, self.processor = native, native_processor
            return
        if isinstance(native, MlaPreTrainedModel):
            raise TrainingSetupError(
                f"{self.base} has acquired {', '.join(native.config.languages) or 'languages'} by training: take the "
                "plain model as the base, or add an adapter (--way adapter)"
            )
        if not (hasattr(native, "get_text_features") and hasattr(native, "get_image_features")):
            raise ModelKindError(f"{self.base} is a {native.config.model_type!r} model, and no dual encoder")
        if self._native in self.languages:
            raise TrainingSetupError(f"{self.base} has the language {self._native!r} already")
        encoder = tokenizer = None
        options: dict[str, Any] = {"native_language": self._native}
        if self.text_encoder is not None:
            # The mean says most of a text where nothing is trained; CLS states of plain encoders say little.
            pooling = self.text_pooling or self._declared_pooling() or "mean"
            encoder = load_text_encoder(self.text_encoder, pooling=pooling, **self.code)
            tokenizer = load_processor(AutoTokenizer, self.text_encoder, **self.code)
            options |= {"text_pooling": pooling, "text_prompt": self.text_prompt or ""}
        self.model = RidgeModel.from_models(native, encoder, **options)
        prompt = {"text_prompt": self.model.config.text_prompt}
        self.processor = RidgeProcessor.for_native(native.config, native_processor, tokenizer, self._native, **prompt)

    def _declared_pooling(self) -> Any:
        with explained(str(self.text_encoder), self.code):
            return declared_pooling(str(self.text_encoder), **located(str(self.text_encoder), **self.code))

    def _check_further(self, model: RidgeModel) -> None:
        given = self.given(("native_language", "text_encoder", "text_pooling", "text_prompt"))
        if given:
            raise TrainingSetupError(f"{self.as_given(given)}: already settled by {self.base}, which has languages")
        for language in self.languages:
            if language in (model.config.native_language, *model.config.languages):
                raise TrainingSetupError(f"{self.base} has the language {language!r} already")

    def run(self) -> dict[str, LanguageResult]:
        """Solves for the languages; returns how well each is learned.

        Raises:
            FileExistsError: when `output` holds a model already.
            CorpusError: for too few translations.
        """
        prepare_saving(self.output)
        if holds_weights(self.output):
            raise FileExistsError(f"{self.output} holds a model already: choose another folder")
        self.results = learn(self.model, self.processor, self.pairs, names=self.emoji_names, **self.computation)
        return self.results

    @property
    def computation(self) -> dict[str, Any]:
        """How `learn` computes: `batch_size` and `precision`."""
        precision = self.training.get("precision") or "auto"
        if precision == "auto":
            precision = fastest_precision(self.model.device.type).name
        return {"batch_size": self.training.get("per_device_train_batch_size", 64), "precision": precision}

    @cached_property
    def base_facts(self) -> list[BaseModel]:
        """The base and the text encoder, with their licenses."""
        bases = [base_model_facts(self.base)]
        return bases if self.text_encoder is None else [*bases, base_model_facts(self.text_encoder, TEXT_TOWER)]

    def save(self, command: str) -> None:
        """Writes the model with its processor and its card."""
        config = self.model.config
        with atomic_directory(self.output) as scratch:
            self.model.save_pretrained(scratch)
            self.processor.save_pretrained(scratch)
            facts = RidgeCardFacts(
                name=self.output.resolve().name,
                languages=config.languages,
                native_language=config.native_language,
                base_models=self.base_facts,
                has_encoder=config.text_config is not None,
                results=self.results,
                names=sorted({each.language for each in self.emoji_names.values()}),
                command=command,
                license=self.license,
            )
            write_ridge_card(scratch, facts)
