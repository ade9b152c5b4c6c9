"""LIWE: language-invariant word embeddings (Wehrmann et al. 2019, "Language-Agnostic Visual-Semantic Embeddings").

    word    u = LeakyReLU(BN(W_n … [c_1; …; c_C]))     of its character embeddings, alike in every language
    text    (→GRU(u_1 … u_T) + ←GRU(u_1 … u_T)) / 2    the mean of the last states of both directions
    image   W features + b
    L = (1 − k) Σ_n v_n + k max_n v_n,   v_n = max(0, m + d(a, p) − d(a, n))

of each anchor a and positive p, with a hardness k that grows in training, as in the authors' code. Left out are the
weight normalization of the convolutions, whose scale the batch normalization removes, and the attention over regions,
because an image has one feature vector here. The batch normalization ignores padded words.
"""

from itertools import combinations, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_liwe import PADDING_ID, LiweConfig
from .modeling_common import initialized_by_itself, is_exporting
from .modeling_word_dual_encoder import WordDualEncoderModel, gru_states


class WordEncoder(nn.Module):
    """Embeds words by their characters, [n, C] -> [n, word size]."""

    def __init__(self, config: LiweConfig) -> None:
        super().__init__()
        self.characters = nn.Embedding(config.vocab_size, config.character_size)
        sizes = [config.word_length * config.character_size, *config.word_hidden_sizes, config.word_size]
        layers = [
            (nn.Linear(size, next_size, bias=False), nn.BatchNorm1d(next_size), nn.LeakyReLU(0.1))
            for size, next_size in pairwise(sizes)
        ]
        self.convolutions = nn.Sequential(*(module for layer in layers for module in layer))

    def forward(self, input_ids: Tensor) -> Tensor:
        characters = self.characters(input_ids) * (input_ids != PADDING_ID)[..., None]
        return self.convolutions(characters.flatten(1))  # [n, C, c] -> [n, C * c]


class LiweTextEncoder(nn.Module):
    """Embeds texts by the characters of their words."""

    def __init__(self, config: LiweConfig) -> None:
        super().__init__()
        self.words = WordEncoder(config)
        gru = nn.GRU(config.word_size, config.hidden_size, batch_first=True, bidirectional=True)
        self.gru = initialized_by_itself(gru)

    def get_input_embeddings(self) -> nn.Module:
        return self.words.characters

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.words.characters = value

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Maps [N, W, C] and a mask [N, W] to texts [N, width], words [N, W, word size], and states [N, W, width]."""
        is_word = attention_mask > 0
        if is_exporting() and not self.training:  # in training, padded words would change the batch normalization
            words = self.words(input_ids.flatten(0, 1)).unflatten(0, is_word.shape) * is_word[..., None]
        else:
            found = self.words(input_ids[is_word])
            words = found.new_zeros(*is_word.shape, found.shape[-1])
            words[is_word] = found
        states, last = gru_states(self.gru, words, attention_mask.sum(1))
        return last.mean(0), words, states.unflatten(-1, (2, -1)).mean(-2)


class LiweModel(WordDualEncoderModel):
    """LIWE, a dual encoder without language-specific parameters; its loss groups texts by `language_ids`.

    Examples:
        >>> model = LiweModel(LiweConfig(vocab_size=processor.vocab_size))
        >>> inputs = processor(text=["ein rotes Auto"], language="de", return_tensors="pt")
        >>> model(**inputs, image_features=features).logits_per_image  # [n_images, 2048] -> [n_images, 1]
    """

    config_class = LiweConfig
    auto_classes = ("AutoModel", "AutoModelForZeroShotImageClassification")
    parts = {
        "image": "image_projection",
        "embeddings": r"text_model\.words",
        "transformer": "text_model",
        "backbone": "vision_model",
    }

    def __init__(self, config: LiweConfig) -> None:
        super().__init__(config)
        self.text_model = LiweTextEncoder(config)
        self.image_projection = nn.Linear(self.add_backbone(), config.hidden_size)
        self.post_init()

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_hidden_states: bool = False,
        language_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds character ids [N, W, C]; by default, words without characters are padding. `last_hidden_state` [N, W,
        width] is the mean of both GRU directions; `pooler_output` [N, width] is not normalized."""
        mask = (input_ids != PADDING_ID).any(-1).long() if attention_mask is None else attention_mask
        pooled, words, states = self.text_model(input_ids, mask)
        return BaseModelOutputWithPooling(states, pooled, (words, states) if output_hidden_states else None)

    def _embed_image_features(self, features: Tensor) -> tuple[Tensor, Tensor]:
        pooled = self.image_projection(features)
        return pooled, pooled

    def _objective(self, output: Any, *, step: int = 0, **options: Any) -> Tensor:
        """Computes the hinge losses between images and texts, averaged over the languages, and between texts in two
        languages, averaged over the pairs; each turns from all negatives to the hardest ones at its own rate, by
        the number of previous optimizer steps."""
        from .losses.triplet import annealed_hinge_loss, pairwise_distances, same_label

        image_labels, text_labels = self.labels(output)

        def hinge(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], rate: float) -> Tensor:
            distances, positives = pairwise_distances(one[0], other[0]), same_label(one[1], other[1])
            return annealed_hinge_loss(distances, positives, hardness=1 - rate**step, margin=self.config.margin)

        config, images = self.config, (output.image_embeds, image_labels)
        languages = [output.language_ids == language for language in output.language_ids.unique()]
        texts = [(output.text_embeds[mine], text_labels[mine]) for mine in languages]
        loss = torch.stack([hinge(images, text, config.annealing_rate) for text in texts]).mean()
        pairs = [hinge(one, other, config.translation_annealing_rate) for one, other in combinations(texts, 2)]
        return loss + config.translation_weight * torch.stack(pairs).mean() if pairs else loss
