"""The model that `babelens acquire` trains: the base with room for one more language."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin, set_seed

from ..configuration.defaults import M_BERT as M_BERT
from ..configuration.errors import ModelFolderError, TrainingSetupError, VocabularyError
from ..configuration.pretrained import load_processor
from ..configuration.text_towers import text_tower
from ..data.corpus.corpus import captions_of
from ..inference.loading import load_dual_encoder
from ..modeling.modeling_mla import MlaModel
from ..modeling.native_tower import tower_parts
from ..processing.processing_mla import MlaProcessor
from ..processing.tokenizer_training import train_wordpiece
from .acquisition_choices import AcquisitionChoices
from .building import native_with_vocabulary, pretrained_table

_FIRST_LANGUAGE_CHOICES = (
    *("native_language", "vocabulary", "new_vocabulary", "acquirer", "acquirer_size"),
    "text_tower",
)


def load_learner(choices: AcquisitionChoices, translations: Dataset) -> tuple[MlaModel, MlaProcessor]:
    """Loads the base and adds the language to it; sets the seed, on which the new weights depend.

    Args:
        choices: the choices.
        translations: the corpus on which a new vocabulary is trained.

    Returns:
        The model with room for the language, and its processor.

    Raises:
        ModelKindError: for a base model whose text tower is neither known nor declared.
        TrainingSetupError: for a language that the base has already, for the training of an embedding on which other
            languages depend, and for a choice that only the first language has.
        VocabularyError: for a vocabulary that cannot serve.
    """
    model, processor = load_dual_encoder(choices.base, as_stored=True, **choices.code)
    set_seed(choices.seed)
    if isinstance(model, MlaModel):
        _refuse_settled_choices(choices)
    else:
        model, processor = _wrapped(choices, model, processor, translations)
    if choices.language in model.config.known_languages:
        known = ", ".join(model.config.known_languages)
        raise TrainingSetupError(
            f"{choices.base} has the language {choices.language!r} already; its languages are {known}"
        )
    if choices.train_embedding and model.config.languages:
        raise TrainingSetupError(
            f"{', '.join(model.config.languages)} depend on the embedding of {choices.base}: training it for "
            f"{choices.language!r} would change what they read. Recipes train several languages together"
        )
    model.config.train_embedding = choices.train_embedding is not False and not model.config.languages
    model.add_language(choices.language)
    processor.languages = list(model.config.languages)
    return model, processor


def _refuse_settled_choices(choices: AcquisitionChoices) -> None:
    if given := choices.given(_FIRST_LANGUAGE_CHOICES):
        raise TrainingSetupError(
            f"{choices.as_given(given)}: {choices.base} has acquired languages already, and with the first of them "
            "settled its vocabulary and its acquirers; leave these options out"
        )


def _wrapped(
    choices: AcquisitionChoices, native: PreTrainedModel, processor: ProcessorMixin, translations: Dataset
) -> tuple[MlaModel, MlaProcessor]:
    """A plain dual encoder as an MLA model without languages yet, and its processor."""
    # It refuses what is not known, before anything else is fetched.
    parts = tower_parts(native, text_tower(native.config, choices.text_tower))
    tokenizer = _tokenizer(choices, translations)
    native_language = choices.native_language or "en"
    tower: dict[str, Any] = {"text_tower": choices.text_tower}
    wrapped = MlaProcessor.for_native(native.config, processor, tokenizer, native_language=native_language, **tower)
    model = native_with_vocabulary(
        native,
        tokenizer,
        _table(choices, tokenizer, parts.width),
        native_language=native_language,
        acquirer=choices.acquirer or "mlp",
        acquirer_size=choices.acquirer_size or 256,
        **tower,
    )
    return model, wrapped


def _tokenizer(choices: AcquisitionChoices, translations: Dataset) -> PreTrainedTokenizerBase:
    """The tokenizer of the acquired languages."""
    if choices.new_vocabulary is None:
        with _explained_default(choices):
            return load_processor(AutoTokenizer, choices.vocabulary or M_BERT, **choices.code)
    texts = captions_of(translations).combine_chunks().flatten().field("text").to_pylist()
    try:
        return train_wordpiece(texts, choices.new_vocabulary)
    except ValueError as error:
        raise VocabularyError(f"no vocabulary can be trained on {choices.translations}: {error}") from error


def _table(choices: AcquisitionChoices, tokenizer: PreTrainedTokenizerBase, width: int) -> torch.Tensor:
    """The first values of the tokenizer's embeddings, [vocabulary, embedding size]: those of its model, or random
    ones."""
    table = None
    if choices.new_vocabulary is None:
        with _explained_default(choices):
            table = pretrained_table(choices.vocabulary or M_BERT, tokenizer, **choices.code)
    if table is not None:
        return table
    generator = torch.Generator().manual_seed(choices.seed)
    return torch.empty(len(tokenizer), width).normal_(std=0.02, generator=generator)


@contextmanager
def _explained_default(choices: AcquisitionChoices) -> Iterator[None]:
    """Adds to an error about the default vocabulary what it is for, and what can be chosen instead."""
    try:
        yield
    except ModelFolderError as error:
        if choices.vocabulary is not None:
            raise
        raise ModelFolderError(
            f"the vocabulary of acquired languages is by default that of {M_BERT}, which cannot be loaded: "
            f"{error}. Name another one (--set vocabulary=…), or train one (--set new_vocabulary=…)"
        ) from error
