"""SMALR: scalable multilingual aligned language representation (Burns et al. 2020), built on MULE (Kim et al. 2020).

    text    W GRU(u_1 … u_T)              of universal word embeddings u (`HybridWordEmbedding`)
    image   W2 ReLU(BN(W1 features))
    L = L_mm + λ_2 L_mask + λ_3 L_adv + λ_4 L_nc                                                    (equation 4)

L_mm is the triplet loss of images and sentences (equation 3). Masked cross-language modeling (L_mask), an adversarial
language classifier (L_adv) and neighborhood constraints (L_nc) align the languages (section 3); a trained model does
not need their weights. A first stage (`SmalrLatentModel`, section 3.1) learns which latent token embeds each word w
with the vector v_w, from sentences about the same images. Now and then one of the best few tokens is used, so that
accidental assignments do not persist.

    token(w) = c_k,  k = argmax_k (A v_w + a)_k
    sentence = mean of the tokens of its words
    L = mean of max(0, m + d(s, s+) − d(s, s−))        of the most violated triplets (equation 1)
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from transformers import PreTrainedModel, initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_smalr import MASK_ID, PADDING_ID, SPECIAL_IDS, UNKNOWN_ID, SmalrConfig
from .modeling_common import initialized_by_itself, is_exporting
from .modeling_dual_encoder import DualEncoderOutput, WeightsAsMade, normalize
from .modeling_word_dual_encoder import WordDualEncoderModel, WordDualEncoderOutput, gru_states, pack, pad

# SMALR's hybrid word embedding: words of many languages in one space, few of them with their own parameters (Burns et
# al. 2020, section 3.1). A word id of a language is mapped to a *row*. The rows are, in this order:
#
#     padding, [MASK], [UNK]                          embeddings
#     the specific words of the first language, ...   word vectors, projected by the layer of their language
#     the latent tokens                               embeddings that words of all languages share
#
# One table of integers stores the row of every word; it is fixed once the latent tokens are assigned. A word that a
# dictionary maps to another has the row of that word (section 4).


class WordRows(nn.Module):
    """Maps word ids [N, T] of languages [N] to rows [N, T]."""

    rows: Tensor
    offsets: Tensor

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__()
        self.config = config
        rows, offsets = self._initial()
        self.register_buffer("rows", rows)
        self.register_buffer("offsets", offsets, persistent=False)
        initialized_by_itself(self)

    def _initial(self) -> tuple[Tensor, Tensor]:
        """Returns the initial rows, and the offsets of the languages. Until they are assigned, words without their own
        row have the row of the first latent token, or of [UNK] without latent tokens."""
        parts, start = [torch.arange(SPECIAL_IDS)], SPECIAL_IDS
        shared = SPECIAL_IDS + sum(self.config.specific_sizes) if self.config.latent_tokens else UNKNOWN_ID
        for specific, size in zip(self.config.specific_sizes, self.config.vocabulary_sizes, strict=True):
            parts += [torch.arange(start, start + specific), torch.full((size - specific,), shared)]
            start += specific
        sizes = torch.tensor([0, *self.config.vocabulary_sizes])
        return torch.cat(parts), sizes.cumsum(0)[:-1]

    def reset_parameters(self) -> None:
        for own, initial in zip((self.rows, self.offsets), self._initial(), strict=True):
            init.copy_(own, initial)

    def share(self, words: Tensor, others: Tensor) -> None:
        """Gives each of some words [n] the row of another [n]; both are indices among the words of all languages."""
        self.rows[words] = self.rows[others]

    def words(self, input_ids: Tensor, language_ids: Tensor) -> Tensor:
        """Returns indices among the words of all languages, special tokens first. [N, T], [N] -> [N, T]"""
        return torch.where(input_ids < SPECIAL_IDS, input_ids, input_ids + self.offsets[language_ids, None])

    def forward(self, input_ids: Tensor, language_ids: Tensor) -> Tensor:
        return self.rows[self.words(input_ids, language_ids)]


class HybridWordEmbedding(nn.Module):
    """Maps rows to universal word embeddings. With `vector_weight`, it keeps the initial vectors."""

    initial_specific: Tensor

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__()
        self.special = nn.Parameter(torch.empty(SPECIAL_IDS, config.hidden_size))
        self.specific = nn.Parameter(torch.empty(sum(config.specific_sizes), config.word_size))
        self.projections = nn.ModuleList([nn.Linear(config.word_size, config.hidden_size) for _ in config.languages])
        self.latent = nn.Parameter(
            torch.empty(config.latent_tokens, config.hidden_size), requires_grad=config.latent_tokens > 0
        )
        if config.vector_weight:
            self.register_buffer("initial_specific", torch.zeros_like(self.specific))
        self.sizes = [SPECIAL_IDS, *config.specific_sizes, config.latent_tokens]  # numbers of rows of each part

    def distinct(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the embeddings [n, width] of the rows that occur, each computed once, and the index of each row's
        embedding among them; in an exported graph, the embeddings of all rows."""
        ends = torch.tensor(self.sizes, device=rows.device).cumsum(0)
        if is_exporting():
            distinct, indices, counts = torch.arange(sum(self.sizes), device=rows.device), rows, self.sizes
        else:
            distinct, indices = rows.unique(return_inverse=True)  # ascending: the rows of a part are contiguous
            counts = torch.searchsorted(distinct, ends).diff(prepend=ends.new_zeros(1)).tolist()
        special, *specific, latent = distinct.split(counts)
        table = [
            self.special[special] * (special != PADDING_ID)[:, None],
            *(layer(self.specific[own - ends[0]]) for layer, own in zip(self.projections, specific, strict=True)),
            self.latent[latent - ends[-2]],
        ]
        return torch.cat(table), indices

    def drift(self) -> Tensor:
        """Returns half the squared distance of specific vectors from the initial ones, mean over languages, []."""
        return (self.specific - self.initial_specific).square().sum() / (2 * len(self.projections))


class SentenceEncoder(nn.Module):
    """A GRU, and a linear layer on its last state (EmbN on MULE): word embeddings [n, width], their index at each word
    [N, T], and lengths [N] -> texts [N, width], and the states at their words [N, T, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gru = initialized_by_itself(nn.GRU(width, width, batch_first=True))
        self.projection = nn.Linear(width, width)

    def forward(self, table: Tensor, indices: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        if is_exporting():
            states, last = gru_states(self.gru, nn.functional.embedding(indices, table), lengths)
            return self.projection(last[-1]), states
        packed = pack(indices, lengths)
        words = nn.functional.embedding(packed.data, table)
        packed_states, last = self.gru(PackedSequence(words, *packed[1:]))
        return self.projection(last[-1]), pad(packed_states, indices.shape[1])


class ImageBranch(nn.Module):
    """Embeds features [N, F] (Embedding Network, Wang et al. 2018): [N, width], and hidden states [N, hidden]."""

    def __init__(self, config: SmalrConfig, feature_size: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(feature_size, config.image_hidden_size)
        self.norm = nn.BatchNorm1d(config.image_hidden_size)
        self.dropout = nn.Dropout(config.image_dropout)
        self.projection = nn.Linear(config.image_hidden_size, config.hidden_size)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.norm(self.hidden(features)).relu()
        return self.projection(self.dropout(hidden)), hidden


class LanguageAlignment(nn.Module):
    """Weights that align languages in training (sections 3.2, 3.3): for both representations, a layer that
    reconstructs masked words, for all pairs of languages, and a classifier of languages."""

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.fill_sentence = nn.Linear(2 * width, 2 * width)
        self.fill_text = nn.Linear(2 * width, 2 * width)
        self.classifier = nn.Linear(width, len(config.languages))


class LatentVocabulary(nn.Module):
    """Chooses one latent token [n, width] for each word vector [n, vector size]. The gradient reaches the scores by a
    straight-through estimator, which the paper does not specify: the token is multiplied by its probability, whose
    value is replaced by 1."""

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__()
        self.score = nn.Linear(config.vector_size or config.word_size, config.latent_tokens)
        self.latent = nn.Parameter(torch.empty(config.latent_tokens, config.hidden_size))
        self.exploration = config.exploration_probability
        self.candidates = min(config.exploration_tokens, config.latent_tokens)

    def forward(self, vectors: Tensor) -> Tensor:
        scores = self.score(vectors)
        chosen = self._choose(scores.detach())
        probability = scores.gather(1, chosen[:, None]).squeeze(1).sub(scores.logsumexp(1)).exp()  # [n]
        return self.latent[chosen] * (1 + probability - probability.detach())[:, None]

    def _choose(self, scores: Tensor) -> Tensor:
        if not self.training or self.exploration == 0:
            return scores.argmax(1)
        best = scores.topk(self.candidates).indices  # [n, M]
        explores = torch.rand(len(scores), device=scores.device) < self.exploration
        drawn = torch.randint(self.candidates, (len(scores),), device=scores.device)
        return best.gather(1, torch.where(explores, drawn, 0)[:, None]).squeeze(1)


class SmalrLatentModel(WeightsAsMade, PreTrainedModel):
    """Learns the latent vocabulary; `assignment` predicts the latent token of each word from its vector (`vectors`).
    Specific words will have its principal components, `components` (section 3.1), the same without `vector_size`."""

    config_class = SmalrConfig
    base_model_prefix = "smalr_latent"
    main_input_name = "input_ids"
    vectors: Tensor
    components: Tensor

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__(config)
        self.words = WordRows(config)
        words = SPECIAL_IDS + sum(config.vocabulary_sizes)
        self.register_buffer("vectors", torch.zeros(words, config.vector_size or config.word_size))
        if config.vector_size:
            self.register_buffer("components", torch.zeros(words, config.word_size))
        self.attention = LatentVocabulary(config)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LatentVocabulary):
            init.normal_(module.latent, std=self.config.initializer_range)
        elif isinstance(module, SmalrLatentModel):
            for buffer in module.buffers(recurse=False):
                init.zeros_(buffer)

    @torch.no_grad()
    def load_word_vectors(self, vectors: Tensor, components: Tensor) -> None:
        """Sets the vectors [words, vector size] and principal components [words, word size] of words, in descending
        order of frequency for each language in turn."""
        self.vectors[SPECIAL_IDS:] = vectors
        if self.config.vector_size:
            self.components[SPECIAL_IDS:] = components

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, language_ids: Tensor, return_logits: bool = False
    ) -> DualEncoderOutput:
        """Embeds texts: the normalized mean of the words that have a vector, [N, T] -> `text_embeds` [N, width]."""
        words = self.words.words(input_ids, language_ids)
        distinct, indices = words.unique(return_inverse=True)
        table = self.attention(self.vectors[distinct])
        known = (attention_mask * (input_ids >= SPECIAL_IDS))[..., None]  # [N, T, 1]
        total = (table[indices] * known).sum(1)
        return DualEncoderOutput(text_embeds=normalize(total / known.sum(1).clamp(min=1)))

    def contrastive_objective(
        self, output: DualEncoderOutput, *, positives: Tensor | None = None, **options: Any
    ) -> Tensor:
        """Computes the triplet loss of sentences in any languages (equation 1); `positives` are image labels [N]."""
        from .losses.triplet import pairwise_distances, same_label, top_violation_triplet_loss

        if positives is None:
            raise ValueError("a loss needs positives, the labels of the images")
        embeds, labels = output.text_embeds, positives.reshape(-1)
        same = same_label(labels, labels)
        pairs = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        constraints = {"margin": self.config.triplet_margin, "top_n": self.config.triplet_violations}
        return top_violation_triplet_loss(pairwise_distances(embeds, embeds), pairs, negatives=~same, **constraints)

    @torch.no_grad()
    def assignment(self) -> Tensor:
        """Returns the latent token of every word [words], without special tokens."""
        vectors = self.vectors[SPECIAL_IDS:].split(4096)  # whose scores fit in memory
        return torch.cat([self.attention.score(part).argmax(1) for part in vectors])


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
    parts = {
        "image": "image_branch",
        "transformer": "text_model",
        "backbone": "vision_model",
        "embeddings": "word_",
        "alignment": "alignment",
    }

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
        model.load_word_vectors((latent.components if latent.config.vector_size else latent.vectors)[SPECIAL_IDS:])
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
        table, _ = self.word_embedding.distinct(torch.arange(len(model.word_table.weight), device=self.device))
        model.load_state_dict(kept | {"word_table.weight": table})
        return model.train(self.training)

    def get_input_embeddings(self) -> nn.Module:
        raise NotImplementedError("every language has its own vocabulary: see `words` and `word_embedding`")

    def _distinct_words(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Returns universal embeddings [n, width] and the index of each word's embedding among them, [N, T]."""
        return (self.word_table.weight, rows) if self.config.compressed else self.word_embedding.distinct(rows)

    def _encode(self, table: Tensor, indices: Tensor, lengths: Tensor, language_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the texts [N, width] and the states at their words [N, T, width]; padding has no effect."""
        if not self.config.language_branches:
            return self.text_model[0](table, indices, lengths)
        pooled = table.new_zeros(indices.shape[0], table.shape[1])
        states = table.new_zeros(*indices.shape, table.shape[1])
        for language, encoder in enumerate(self.text_model):
            mine = language_ids == language
            if is_exporting():
                found, found_states = encoder(table, indices, lengths)
                pooled = torch.where(mine[:, None], found, pooled)
                states = torch.where(mine[:, None, None], found_states, states)
            elif mine.any():
                found, found_states = encoder(table, indices[mine], lengths[mine])
                # Autocast gives another type than the table's.
                pooled[mine], states[mine] = found.to(pooled.dtype), found_states.to(states.dtype)
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
        texts = normalize(pooled)
        weights = mask.to(table.dtype) / mask.sum(1, keepdim=True).clamp(min=1)  # without words, the mean is zero
        means = nn.functional.embedding_bag(indices, table, per_sample_weights=weights, mode="sum")
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
        self, output: Any, *, positives: Tensor | None = None, progress: float = 0.0, **options: Any
    ) -> Tensor:
        """Computes L_SMALR (equation 4), or on sentences without images the loss of the warm-up, with `positives` [N]
        or [1, N], labels of the images that they describe; with images, the labels in `output` name all positive
        pairs. The weight of the adversarial loss depends on the `progress` of the training, from 0 to 1."""
        from .losses.contrastive import mean_over_widths
        from .losses.smalr import adversarial_language_loss, neighborhood_loss, reversal_schedule, sentence_grid
        from .losses.triplet import multimodal_triplet_loss, pairwise_distances, same_label

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

            return mean_over_widths(loss, output, config.matryoshka_dims)

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
            each = mean_over_widths(lambda cut: neighbors(cut.text_embeds), output, config.matryoshka_dims)
            neighborhood = neighborhood + each
        if config.adversarial_weight:
            classifier, reversal = self.alignment.classifier, reversal_schedule(progress)
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

    def _mask_loss(self, output: Any, grid: Any) -> Tensor:
        """Computes L_mask of both representations (equation 2), over pairs of sentences in one column of the
        `SentenceGrid`."""
        from .losses.smalr import masked_reconstruction_loss

        first, second = torch.triu_indices(*[len(grid.indices)] * 2, offset=1, device=grid.indices.device)
        are_there = grid.is_there[first] & grid.is_there[second]  # [pairs of languages, K]
        pairs = torch.stack([grid.indices[first][are_there], grid.indices[second][are_there]])  # [2, P]
        total, rows_at = output.text_embeds.new_zeros(()), nn.functional.embedding  # whose gradient is fast on a CPU
        if not pairs.numel():
            return total
        for fill, masked, whole in (
            (self.alignment.fill_sentence, output.masked_sentence_embeds, output.sentence_embeds),
            (self.alignment.fill_text, output.masked_text_embeds, output.text_embeds),
        ):
            # The layer on pairs of sentences, with each sentence's part computed once. [N, d], [2, P] -> [P, 2 d]
            one, other = (masked @ weight.T for weight in fill.weight.chunk(2, dim=1))
            filled = rows_at(pairs[0], one) + rows_at(pairs[1], other) + fill.bias
            predicted = torch.stack(filled.chunk(2, dim=1))  # [2, P, d]
            total = total + masked_reconstruction_loss(rows_at(pairs, masked), predicted, rows_at(pairs, whole))
        return total
