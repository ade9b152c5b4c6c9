"""SMALR: scalable multilingual aligned language representation (Burns et al. 2020), on MULE (Kim et al. 2020).

Words of all languages become universal embeddings (`word_embedding`), which one recurrent encoder reads; pictures come
as features of a backbone, through two layers. Training aligns the languages by masked cross-language modelling, an
adversarial language classifier and neighbourhood constraints (section 3); none of these parts is needed afterwards.
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_smalr import SmalrConfig
from .modeling_captioned_pictures import CaptionedPicturesModel, CaptionedPicturesOutput
from .modeling_dual_encoder import count_parameters, normalize
from .modeling_smalr_latent import SmalrLatentModel
from .smalr_layers import ImageBranch, LanguageAlignment, SentenceEncoder
from .triplet_losses import (
    adversarial_language_loss,
    masked_reconstruction_loss,
    multimodal_triplet_loss,
    neighbourhood_loss,
    pairwise_distances,
    reversal_schedule,
    same_label,
    smalr_loss,
)
from .word_embedding import MASK, SPECIAL_TOKENS, HybridWordEmbedding, WordRows, row_count


@dataclass
class SmalrOutput(CaptionedPicturesOutput):
    """
    Args:
        sentence_embeds ([n_texts, width]): mean universal embeddings of the texts' words.
        masked_text_embeds, masked_sentence_embeds: the same of the texts with some of their words masked; in training.
    """

    sentence_embeds: Tensor | None = None
    masked_text_embeds: Tensor | None = None
    masked_sentence_embeds: Tensor | None = None


class SmalrModel(CaptionedPicturesModel):
    """In training mode, texts are embedded a second time with some of their words masked."""

    config_class = SmalrConfig
    auto_classes = ("AutoModel",)  # no pipeline reads texts without a tokenizer
    output_class = SmalrOutput
    # How much of the training is over, from 0 to 1, for the schedule of the adversarial loss; the trainer sets it.
    training_progress = 0.0

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__(config)
        self.words = WordRows(config)
        if config.compressed:
            self.word_table = nn.Parameter(torch.empty(row_count(config), config.hidden_size))
        else:
            self.word_embedding = HybridWordEmbedding(config)
            self.alignment = LanguageAlignment(config)
        branches = len(config.languages) if config.language_branches else 1
        self.text_model = nn.ModuleList([SentenceEncoder(config.hidden_size) for _ in range(branches)])
        self.image_branch = ImageBranch(config, self.add_backbone())
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, HybridWordEmbedding):
            for table in (module.special, module.specific, module.latent):
                init.normal_(table, std=self.config.initializer_range)
        elif isinstance(module, WordRows):
            module.reset()

    # ---- Made from what was learned before ----

    @classmethod
    def from_latent(cls, latent: SmalrLatentModel, **options: Any) -> Self:
        """A model whose words are assigned as in `latent`: tokens that stand for no word are dropped (section 3.1).

        Args:
            latent: the first stage's model.
            options: keys of `SmalrConfig` that replace its configuration's.
        """
        config = type(latent.config).from_dict(latent.config.to_dict() | options)
        is_shared = torch.cat(
            [
                torch.arange(size) >= specific
                for specific, size in zip(config.specific_sizes, config.vocabulary_sizes, strict=True)
            ]
        )
        used, places = latent.assignment()[is_shared].unique(return_inverse=True)
        config.latent_tokens = len(used)
        model = cls(config)
        model.load_word_vectors(latent.vectors[SPECIAL_TOKENS:])
        with torch.no_grad():
            model.word_embedding.latent.copy_(latent.attention.latent[used])
            rows = model.words.rows[SPECIAL_TOKENS:]
            rows[is_shared] = SPECIAL_TOKENS + sum(config.specific_sizes) + places
        return model

    @torch.no_grad()
    def load_word_vectors(self, vectors: Tensor) -> None:
        """Starts the specific words from word vectors, [words of all languages, word size], by falling frequency."""
        parts = vectors.split(self.config.vocabulary_sizes)
        own = [part[:count] for part, count in zip(parts, self.config.specific_sizes, strict=True)]
        self.word_embedding.specific.copy_(torch.cat(own))

    @torch.no_grad()
    def compress(self) -> Self:
        """The same model for use: every row's universal embedding in one table, and nothing that only training
        needs."""
        config = type(self.config).from_dict(self.config.to_dict() | {"compressed": True})
        model = type(self)(config).to(device=self.device, dtype=self.dtype)
        mine = {
            name: value
            for name, value in self.state_dict().items()
            if not name.startswith(("word_embedding.", "alignment."))
        }
        model.load_state_dict(mine | {"word_table": self.word_embedding.table()})
        return model.train(self.training)

    # ---- Embedding ----

    def get_input_embeddings(self) -> nn.Module:
        raise NotImplementedError("every language has a vocabulary of its own: see `words` and `word_embedding`")

    def _embed_words(self, input_ids: Tensor, language_ids: Tensor) -> Tensor:
        """Universal embeddings, [N, T] -> [N, T, width]."""
        rows = self.words(input_ids, language_ids)
        return self.word_table[rows] if self.config.compressed else self.word_embedding(rows)

    def _encode(self, words: Tensor, lengths: Tensor, language_ids: Tensor) -> tuple[Tensor, Tensor]:
        if not self.config.language_branches:
            return self.text_model[0](words, lengths)
        pooled, states = words.new_zeros(len(words), words.shape[-1]), torch.zeros_like(words)
        for language in language_ids.unique().tolist():
            mine = language_ids == language
            pooled[mine], states[mine] = self.text_model[language](words[mine], lengths[mine])
        return pooled, states

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        language_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds texts.

        Args:
            input_ids ([N, T]): word ids, each of its language's vocabulary.
            attention_mask ([N, T]): 0 at padding.
            language_ids ([N]): which language; default: the first.

        Returns:
            `last_hidden_state` [N, T, width], the sentence encoder's; `pooler_output` [N, width], not normalised.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        languages = input_ids.new_zeros(len(input_ids)) if language_ids is None else language_ids
        words = self._embed_words(input_ids, languages)
        pooled, states = self._encode(words, mask.sum(1), languages)
        return BaseModelOutputWithPooling(states, pooled, (words, states) if output_hidden_states else None)

    def _embed_image_features(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.image_branch(features)

    def _embed_texts(
        self, input_ids: Tensor, attention_mask: Tensor | None, language_ids: Tensor | None
    ) -> dict[str, Tensor]:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        languages = input_ids.new_zeros(len(input_ids)) if language_ids is None else language_ids
        words, lengths = self._embed_words(input_ids, languages), mask.sum(1)
        pooled, _ = self._encode(words, lengths, languages)
        found = {
            "text_embeds": normalize(pooled),
            "sentence_embeds": _mean(words, mask),
            "language_ids": languages,
        }
        if self.training and self.config.mask_weight:
            is_masked = (torch.rand(input_ids.shape, device=input_ids.device) < self.config.mask_probability) & (
                mask > 0
            )
            mask_embedding = self.word_embedding.special[MASK]
            masked, _ = self._encode(torch.where(is_masked[..., None], mask_embedding, words), lengths, languages)
            found["masked_text_embeds"] = normalize(masked)
            found["masked_sentence_embeds"] = _mean(words, mask * ~is_masked)
        return found

    # ---- Training ----

    def contrastive_objective(
        self, output: Any, *, positives: Tensor | None = None, tile_size: int | None = None
    ) -> Tensor:
        """L_SMALR (equation 4), of texts and pictures with their labels; further `positives` it has none.

        Raises:
            ValueError: without texts or pictures, or for a compressed model.
        """
        if self.config.compressed:
            raise ValueError("a compressed model is for use alone: what training needs is no longer there")
        image_labels, labels = self.labels(output)
        texts, images, languages = output.text_embeds, output.image_embeds, output.language_ids
        multimodal = self._multimodal(images, texts, image_labels, labels, languages)
        mask = neighbourhood = adversarial = texts.new_zeros(())
        if output.masked_text_embeds is not None:
            masked = output.masked_text_embeds
            multimodal = multimodal + self._multimodal(images, masked, image_labels, labels, languages)
            mask = self._mask_loss(output, labels)
        if self.config.neighbourhood_weight:
            for embeds in (output.sentence_embeds, texts):
                neighbourhood = neighbourhood + neighbourhood_loss(embeds, labels, languages, **self._constraints)
        if self.config.adversarial_weight:
            adversarial = adversarial_language_loss(
                output.sentence_embeds,
                self.alignment.classifier.weight,
                self.alignment.classifier.bias,
                languages,
                reversal=reversal_schedule(self.training_progress),
            )
        return smalr_loss(
            multimodal,
            mask,
            adversarial,
            neighbourhood,
            mask_weight=self.config.mask_weight,
            adversarial_weight=self.config.adversarial_weight,
            neighbourhood_weight=self.config.neighbourhood_weight,
        )

    @property
    def _constraints(self) -> dict[str, Any]:
        return {"margin": self.config.triplet_margin, "top_n": self.config.triplet_violations}

    def _multimodal(
        self, images: Tensor, texts: Tensor, image_labels: Tensor, labels: Tensor, language_ids: Tensor
    ) -> Tensor:
        """L_mm, the mean over the languages (equation 3)."""
        losses = []
        for language in language_ids.unique():
            mine = language_ids == language
            losses.append(
                multimodal_triplet_loss(
                    pairwise_distances(images, texts[mine]),
                    same_label(image_labels, labels[mine]),
                    sentence_weight=self.config.sentence_weight,
                    **self._constraints,
                )
            )
        return torch.stack(losses).mean()

    def _mask_loss(self, output: Any, labels: Tensor) -> Tensor:
        """L_mask of both representations (equation 2), over all pairs of sentences of one picture in two languages."""
        pairs = _translations(labels, output.language_ids)  # [2, P]
        total = output.text_embeds.new_zeros(())
        if not pairs.numel():
            return total
        for fill, masked, whole in (
            (self.alignment.fill_sentence, output.masked_sentence_embeds, output.sentence_embeds),
            (self.alignment.fill_text, output.masked_text_embeds, output.text_embeds),
        ):
            both = masked[pairs]  # [2, P, width]
            filled = fill(torch.cat([both[0], both[1]], -1)).chunk(2, -1)
            total = total + masked_reconstruction_loss(both, torch.stack(filled), whole[pairs])
        return total

    def parameter_parts(self) -> dict[str, int]:
        """Numbers of parameters by part; they add up to the total. The backbone's count as `backbone`."""
        parts = {"image": count_parameters(self.image_branch), "transformer": count_parameters(self.text_model)}
        if self.vision_model is not None:
            parts["backbone"] = count_parameters(self.vision_model)
        if self.config.compressed:
            return parts | {"embeddings": self.word_table.numel()}
        return parts | {
            "embeddings": count_parameters(self.word_embedding),
            "alignment": count_parameters(self.alignment),
        }


def _mean(words: Tensor, mask: Tensor) -> Tensor:
    """The mean of a sentence's words that the mask keeps, zeros where it keeps none. [N, T, d], [N, T] -> [N, d]"""
    kept = mask.to(words.dtype)[..., None]
    return (words * kept).sum(1) / kept.sum(1).clamp(min=1)


def _translations(labels: Tensor, language_ids: Tensor) -> Tensor:
    """Pairs of texts that say the same in two languages, [2, P]: the n-th of a label in one and in the other."""
    same = same_label(labels, labels)
    number = (
        (same & same_label(language_ids, language_ids)).tril(-1).sum(1)
    )  # of a text among its label's in its language
    other = language_ids[:, None] < language_ids[None, :]
    return (same & other & same_label(number, number)).nonzero().T


__all__ = ["SmalrModel"]
