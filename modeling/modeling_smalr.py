"""SMALR: scalable multilingual aligned language representation (Burns et al. 2020), built on MULE (Kim et al. 2020).

    text    W GRU(u_1 … u_T)              of universal word embeddings u (`modeling_smalr_latent`)
    image   W2 ReLU(BN(W1 features))
    L = L_mm + λ_2 L_mask + λ_3 L_adv + λ_4 L_nc                                                    (equation 4)

L_mm is the triplet loss of images and sentences (equation 3). Masked cross-language modeling (L_mask), an adversarial
language classifier (L_adv) and neighborhood constraints (L_nc) align the languages (section 3); a trained model does
not need their weights.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_smalr import MASK_ID, SPECIAL_IDS, SmalrConfig
from .losses.smalr import (
    SentenceGrid,
    adversarial_language_loss,
    masked_reconstruction_loss,
    neighborhood_loss,
    reversal_schedule,
    sentence_grid,
)
from .losses.triplet import multimodal_triplet_loss, pairwise_distances, same_label
from .modeling_common import FIRST_STEP, TrainingStep, is_exporting
from .modeling_dual_encoder import count_parameters, normalize
from .modeling_smalr_latent import (
    HybridWordEmbedding,
    ImageBranch,
    LanguageAlignment,
    SentenceEncoder,
    SmalrLatentModel,
    WordRows,
    fill_pairs,
    means_of_words,
    rows_at,
)
from .modeling_word_dual_encoder import WordDualEncoderModel, WordDualEncoderOutput, gru_states, pack, pad


@dataclass
class SmalrOutput(WordDualEncoderOutput):
    """Output of a `SmalrModel`. `sentence_embeds` [n_texts, width] are mean universal embeddings of words. In
    training, `masked_…` are embeddings of texts with masked words, `drift` [] is how far word vectors have moved, and
    `alignment` [] is zero, a sum over the weights that align the languages."""

    sentence_embeds: Tensor | None = None
    masked_text_embeds: Tensor | None = None
    masked_sentence_embeds: Tensor | None = None
    drift: Tensor | None = None
    alignment: Tensor | None = None


class SmalrModel(WordDualEncoderModel):
    """SMALR, a dual encoder whose languages share most of their word embeddings. In training mode, texts are embedded
    a second time with some of their words masked.

    Examples:
        >>> model = AutoModel.from_pretrained("runs/smalr")
        >>> inputs = processor(text=["ein rotes Auto"], language="de", return_tensors="pt")
        >>> model(**inputs, image_features=features).logits_per_image  # [n_images, 2048] -> [n_images, 1]
    """

    config_class = SmalrConfig
    auto_classes = ("AutoModel", "AutoModelForZeroShotImageClassification")
    output_class = SmalrOutput
    renamed_weights: ClassVar[dict[str, str]] = {"word_table": "word_table.weight"}

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__(config)
        self.words = WordRows(config)
        if config.compressed:
            rows = SPECIAL_IDS + sum(config.specific_sizes) + config.latent_tokens
            self.word_table = nn.Embedding(rows, config.hidden_size)
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
            if self.config.vector_weight:
                init.copy_(module.initial_specific, module.specific)
        elif isinstance(module, WordRows):
            module.reset()

    @classmethod
    def from_latent(cls, latent: SmalrLatentModel, **options: Any) -> Self:
        """Makes a model whose words are assigned as in the first stage; tokens that no word uses are dropped (section
        3.1). `options` replace keys of its configuration."""
        config = type(latent.config).from_dict(latent.config.to_dict() | options)
        sizes = zip(config.specific_sizes, config.vocabulary_sizes, strict=True)
        is_shared = torch.cat([torch.arange(size) >= specific for specific, size in sizes])
        used, indices = latent.assignment()[is_shared].unique(return_inverse=True)
        config.latent_tokens = len(used)
        model = cls(config)
        model.load_word_vectors(latent.specific_vectors)
        with torch.no_grad():
            model.word_embedding.latent.copy_(latent.attention.latent[used])
            rows = model.words.rows[SPECIAL_IDS:]
            rows[is_shared] = SPECIAL_IDS + sum(config.specific_sizes) + indices
        return model

    @torch.no_grad()
    def load_word_vectors(self, vectors: Tensor) -> None:
        """Initializes the specific words with word vectors [words of all languages, word size], in descending order of
        frequency for each language in turn."""
        parts = vectors.split(self.config.vocabulary_sizes)
        own = [part[:count] for part, count in zip(parts, self.config.specific_sizes, strict=True)]
        self.word_embedding.specific.copy_(torch.cat(own))
        if self.config.vector_weight:
            self.word_embedding.initial_specific.copy_(self.word_embedding.specific)

    @torch.no_grad()
    def compress(self) -> Self:
        """Returns the model for inference, with a table of all universal embeddings and without parts for training."""
        config = type(self.config).from_dict(self.config.to_dict() | {"compressed": True})
        model = type(self)(config).to(device=self.device, dtype=self.dtype)
        left_out = ("word_embedding.", "alignment.")
        kept = {name: value for name, value in self.state_dict().items() if not name.startswith(left_out)}
        model.load_state_dict(kept | {"word_table.weight": self.word_embedding.table()})
        return model.train(self.training)

    def get_input_embeddings(self) -> nn.Module:
        raise NotImplementedError("every language has its own vocabulary: see `words` and `word_embedding`")

    def _distinct_words(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Returns universal embeddings [n, width] and the index of each word's embedding among them, [N, T]."""
        return (self.word_table.weight, rows) if self.config.compressed else self.word_embedding.distinct(rows)

    def _encode(self, table: Tensor, indices: Tensor, lengths: Tensor, language_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the texts [N, width] and the states at their words [N, T, width]; padding has no effect."""
        if not self.config.language_branches:
            return self._encode_by(0, table, indices, lengths)
        pooled = table.new_zeros(indices.shape[0], table.shape[1])
        states = table.new_zeros(*indices.shape, table.shape[1])
        for language in range(len(self.text_model)):
            mine = language_ids == language
            if is_exporting():
                found, found_states = self._encode_by(language, table, indices, lengths)
                pooled = torch.where(mine[:, None], found, pooled)
                states = torch.where(mine[:, None, None], found_states, states)
            elif mine.any():
                found, found_states = self._encode_by(language, table, indices[mine], lengths[mine])
                # Autocast gives another type than the table's.
                pooled[mine], states[mine] = found.to(pooled.dtype), found_states.to(states.dtype)
        return pooled, states

    def _encode_by(self, branch: int, table: Tensor, indices: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        encoder: Any = self.text_model[branch]
        if is_exporting():
            states, last = gru_states(encoder.gru, nn.functional.embedding(indices, table), lengths)
            return encoder.projection(last[-1]), states
        packed = pack(indices, lengths)
        words = nn.functional.embedding(packed.data, table)
        pooled, states = encoder(PackedSequence(words, *packed[1:]))
        return pooled, pad(states, indices.shape[1])

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        language_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds word ids [N, T] in the vocabularies of their languages, by default the first: `last_hidden_state` [N,
        T, width], the states of the sentence encoder, and `pooler_output` [N, width], which is not normalized."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        languages = input_ids.new_zeros(input_ids.shape[0]) if language_ids is None else language_ids
        table, indices = self._distinct_words(self.words(input_ids, languages))
        pooled, states = self._encode(table, indices, mask.sum(1), languages)
        hidden = (nn.functional.embedding(indices, table), states) if output_hidden_states else None
        return BaseModelOutputWithPooling(states, pooled, hidden)

    def _embed_image_features(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.image_branch(features)

    def _embed_texts(
        self, input_ids: Tensor, attention_mask: Tensor | None, language_ids: Tensor | None, with_states: bool
    ) -> dict[str, Any]:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        count = input_ids.shape[0]
        languages = input_ids.new_zeros(count) if language_ids is None else language_ids
        rows, lengths = self.words(input_ids, languages), mask.sum(1)
        if self.training and self.config.mask_weight:
            is_masked = torch.rand(rows.shape, device=rows.device) < self.config.mask_probability
            rows = torch.cat([rows, torch.where(is_masked & (mask > 0), MASK_ID, rows)])
            mask, lengths = torch.cat([mask, mask * ~is_masked]), lengths.repeat(2)
        table, indices = self._distinct_words(rows)
        pooled, states = self._encode(table, indices, lengths, languages.repeat(rows.shape[0] // count))
        texts, means = normalize(pooled), means_of_words(table, indices, mask)
        hidden = (nn.functional.embedding(indices[:count], table), states[:count]) if with_states else None
        found = {
            "text_embeds": texts[:count],
            "text_model_output": BaseModelOutputWithPooling(states[:count], pooled[:count], hidden),
            "sentence_embeds": means[:count],
            "language_ids": languages,
        }
        if rows.shape[0] > count:
            found |= {"masked_text_embeds": texts[count:], "masked_sentence_embeds": means[count:]}
        return found

    def contrastive_objective(
        self, output: Any, *, positives: Tensor | None = None, step: TrainingStep = FIRST_STEP, **options: Any
    ) -> Tensor:
        """Computes L_SMALR (equation 4), or on sentences without images the loss of the warm-up, with `positives` [N]
        or [1, N], labels of the images that they describe; with images, the labels in `output` name all positive
        pairs. The weight of the adversarial loss depends on the step."""
        config, texts, languages = self.config, output.text_embeds, output.language_ids
        if config.compressed:
            raise ValueError("a compressed model cannot be trained: parts that training needs were left out")
        constraints = {"margin": config.triplet_margin, "top_n": config.triplet_violations}
        if output.image_embeds is None and texts is not None and positives is not None:
            # MULE's warm-up, as in its authors' code: the constraints between every two languages.
            labels = positives.reshape(-1)
            return neighborhood_loss(output.sentence_embeds, labels, languages, only_across=True, **constraints)
        image_labels, labels = self.labels(output)
        grid = sentence_grid(labels, languages)

        def multimodal(texts: str) -> Tensor:
            def loss(cut: Any) -> Tensor:
                """L_mm, the mean over the languages (equation 3)."""
                distances = pairwise_distances(cut.image_embeds, cut[texts][grid.indices.flatten()])  # [M, L * K]
                is_of_image = same_label(image_labels, grid.image_ids)  # [M, K]
                return multimodal_triplet_loss(
                    distances.unflatten(1, grid.indices.shape).transpose(0, 1),  # [L, M, K]
                    grid.is_there[:, None] & is_of_image,
                    negatives=grid.is_there[:, None] & ~is_of_image,
                    sentence_weight=config.sentence_weight,
                    **constraints,
                ).mean()

            return self.mean_over_widths(loss, output)

        def neighbors(sentences: Tensor) -> Tensor:
            return neighborhood_loss(sentences, labels, languages, **constraints)

        loss, mask = multimodal("text_embeds"), texts.new_zeros(())
        neighborhood = adversarial = mask
        if output.masked_text_embeds is not None:
            loss = loss + multimodal("masked_text_embeds")
            mask = self._mask_loss(output, grid)
        if config.neighborhood_weight:
            # With an encoder for each language, the words of two languages need not share a space.
            if not config.language_branches:
                neighborhood = neighborhood + neighbors(output.sentence_embeds)
            neighborhood = neighborhood + self.mean_over_widths(lambda cut: neighbors(cut.text_embeds), output)
        if config.adversarial_weight:
            classifier, reversal = self.alignment.classifier, reversal_schedule(step.progress)
            adversarial = adversarial_language_loss(
                output.sentence_embeds, classifier.weight, classifier.bias, languages, reversal=reversal
            )
        weighted = config.mask_weight * mask + config.adversarial_weight * adversarial
        loss = loss + (weighted + config.neighborhood_weight * neighborhood)  # equation 4
        if output.alignment is not None:
            loss = loss + output.alignment
        if config.vector_weight:
            drift = self.word_embedding.drift() if output.drift is None else output.drift
            loss = loss + config.vector_weight * drift
        return loss

    def _weights_of_objective(self) -> dict[str, Tensor]:
        config, found = self.config, {}
        if config.vector_weight:
            found["drift"] = self.word_embedding.drift()
        layers = [self.alignment.classifier] if config.adversarial_weight else []
        layers += [self.alignment.fill_sentence, self.alignment.fill_text] if config.mask_weight else []
        if layers:
            sums = [weight.sum() for layer in layers for weight in layer.parameters()]
            found["alignment"] = 0 * torch.stack(sums).sum()
        return found

    def _mask_loss(self, output: Any, grid: SentenceGrid) -> Tensor:
        """Computes L_mask of both representations (equation 2), over pairs of sentences in one column of the grid."""
        first, second = torch.triu_indices(*[len(grid.indices)] * 2, offset=1, device=grid.indices.device)
        are_there = grid.is_there[first] & grid.is_there[second]  # [pairs of languages, K]
        pairs = torch.stack([grid.indices[first][are_there], grid.indices[second][are_there]])  # [2, P]
        total = output.text_embeds.new_zeros(())
        if not pairs.numel():
            return total
        for fill, masked, whole in (
            (self.alignment.fill_sentence, output.masked_sentence_embeds, output.sentence_embeds),
            (self.alignment.fill_text, output.masked_text_embeds, output.text_embeds),
        ):
            filled = fill_pairs(fill, masked, pairs)
            total = total + masked_reconstruction_loss(rows_at(masked, pairs), filled, rows_at(whole, pairs))
        return total

    def parameter_parts(self) -> dict[str, int]:
        parts = {"image": count_parameters(self.image_branch), "transformer": count_parameters(self.text_model)}
        if self.vision_model is not None:
            parts["backbone"] = count_parameters(self.vision_model)
        if self.config.compressed:
            return parts | {"embeddings": count_parameters(self.word_table)}
        return parts | {
            "embeddings": count_parameters(self.word_embedding),
            "alignment": count_parameters(self.alignment),
        }
