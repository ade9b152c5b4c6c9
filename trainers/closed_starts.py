"""Where the training of a language begins: weights that can be solved for, instead of random ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from ..data.emoji.benchmark import Pairs
from ..modeling.encoding import evaluation_mode
from ..modeling.modeling_mla import MlaModel
from ..modeling.modeling_mla_student import MlaStudentModel
from ..modeling.native_tower import table_of
from ..processing.processing_mla import MlaProcessor
from ..processing.processing_mla_student import MlaStudentProcessor
from .frozen_features import EncoderFeatures
from .glossary_learning import PLACE, align
from .ridge_inputs import NativeTeacher, native_targets
from .ridge_solving import in_random_order, solve_linear

_MOST = 20_000  # sentences


@torch.no_grad()
def solve_projection(
    model: MlaStudentModel,
    processor: MlaStudentProcessor,
    translations: Mapping[str, Pairs],
    *,
    batch_size: int = 64,
    precision: str = "float32",
    cache_dir: str | None = None,
) -> None:
    """Sets the projection of a student, a linear layer, to the one that leads the features of its text encoder best to
    where the native model puts the translations, with the length that its features have. Training goes on from there.

    Args:
        model: the student, whose projection has no hidden layer.
        processor: its processor.
        translations: by language, texts and the native translation of each. Of many, some are taken.
        batch_size, precision, cache_dir: as those of `learn`.
    """
    each = max(_MOST // len(translations), 1)
    chosen: dict[str, Pairs] = {}
    for language, sides in translations.items():
        rows = in_random_order(len(sides[0]))[:each]
        chosen[language] = [sides[0][row] for row in rows], [sides[1][row] for row in rows]
    natives = [native for _, natives in chosen.values() for native in natives]
    # Training goes on towards features, whose length is not 1.
    teacher = NativeTeacher(model, processor, batch_size, normalize=False)
    targets, position = native_targets(teacher, natives, cache_dir)
    features = EncoderFeatures(
        model.text_model,
        processor.tokenizer,
        lambda ids, mask: model.tower_features.get_text_features(ids, mask).pooler_output,
        model.config.text_pooling,
        processor.text_prompt,
        processor.max_text_length,
        batch_size,
        precision,
        cache_dir,
    ).of({language: texts for language, (texts, _) in chosen.items()})
    with evaluation_mode(model):  # without dropout
        known = model.text_head_input(torch.cat(list(features.values())))
    weight, bias = solve_linear(known, targets[[position[native] for native in natives]])
    assert isinstance(model.projection, nn.Linear)
    model.projection.load_state_dict({"weight": weight, "bias": bias})


@torch.no_grad()
def solve_embedding(
    model: MlaModel, processor: MlaProcessor, language: str, pairs: Pairs, names: Sequence[Pairs] = ()
) -> None:
    """Sets the embedding of a language's word pieces to those of the native pieces that they stand for, and its
    acquirers to the identity: the native model then reads a text piece by piece, as if each were translated. Training
    goes on from there. Pieces that occur in no sentence keep their values.

    Args:
        model: the model, whose first acquired language this is.
        processor: its processor.
        language: the language.
        pairs: its texts, and the native translation of each.
        names: names of things with their native translations, which have no order of words.
    """
    own, native = processor.multilingual_tokenizer, processor.tokenizer
    texts, natives = (
        [tokenizer.tokenize(text, verbose=False) for group in (pairs, *names) for text in group[side]]
        for side, tokenizer in enumerate((own, native))
    )
    place = [PLACE] * len(pairs[0]) + [0.0] * (len(texts) - len(pairs[0]))
    found = {piece: other for piece, other in align(texts, natives, place).items() if other}
    # A token "a" of a tokenizer that begins texts with none is a piece like others.
    ends = [(mine, its) for mine, its in zip(_ends(own), _ends(native), strict=True) if mine in own.all_special_ids]
    rows = [*own.convert_tokens_to_ids(list(found)), *(mine for mine, _ in ends)]
    standing_for = [*native.convert_tokens_to_ids(list(found.values())), *(its for _, its in ends)]
    embedding, table = model.embedding.mla_embedding, table_of(model.embedding.base_layer)
    nn.init.orthogonal_(embedding.projection.weight)
    nn.init.zeros_(embedding.projection.bias)
    # By an orthogonal projection, so that its transpose leads back.
    embedding.table.weight[rows] = table.weight[standing_for].to(embedding.table.weight) @ embedding.projection.weight
    for block in model.blocks:
        acquirers: Any = block.mla_acquirers
        acquirers[language].reset_to_identity()


def _ends(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """The ids of the tokens with which a text begins and ends."""
    ids = tokenizer("a")["input_ids"]
    return ids[0], ids[-1]
