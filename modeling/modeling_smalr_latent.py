"""The first stage of SMALR: learns which latent token embeds each word, from sentences about the same images (Burns et
al. 2020, section 3.1).

    token(w) = c_k,  k = argmax_k (A v_w + a)_k        of the vector v_w of a word
    sentence = mean of the tokens of its words
    L = mean of max(0, m + d(s, s+) − d(s, s−))        of the most violated triplets (equation 1)

Now and then one of the best few tokens is used, so that accidental assignments do not persist.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from transformers import PreTrainedModel, initialization as init

from ..configuration.configuration_smalr import PADDING_ID, SPECIAL_IDS, UNKNOWN_ID, SmalrConfig
from .losses.triplet import pairwise_distances, same_label, top_violation_triplet_loss
from .modeling_common import FIRST_STEP, TrainingStep, initialized_by_itself, is_exporting
from .modeling_dual_encoder import DualEncoderOutput, WeightsAsMade, normalize

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

    def _initial(self) -> tuple[Tensor, Tensor]:
        """Returns the initial rows, and the offsets of the languages. Until they are assigned, words without their own
        row have the row of the first latent token, or of [UNK] if there are no latent tokens."""
        parts, start = [torch.arange(SPECIAL_IDS)], SPECIAL_IDS
        shared = SPECIAL_IDS + sum(self.config.specific_sizes) if self.config.latent_tokens else UNKNOWN_ID
        for specific, size in zip(self.config.specific_sizes, self.config.vocabulary_sizes, strict=True):
            parts += [torch.arange(start, start + specific), torch.full((size - specific,), shared)]
            start += specific
        sizes = torch.tensor([0, *self.config.vocabulary_sizes])
        return torch.cat(parts), sizes.cumsum(0)[:-1]

    def reset(self) -> None:
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
        if is_exporting():
            return self.table(), rows
        distinct, indices = rows.unique(return_inverse=True)  # ascending, so that the rows of a part are contiguous
        ends = torch.tensor(self.sizes, device=rows.device).cumsum(0)
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

    def table(self) -> Tensor:
        """Returns the universal embeddings of all rows, [rows, width]."""
        is_token = torch.arange(SPECIAL_IDS, device=self.special.device) != PADDING_ID
        specific = self.specific.split(self.sizes[1:-1])
        own = [layer(vectors) for layer, vectors in zip(self.projections, specific, strict=True)]
        return torch.cat([self.special * is_token[:, None], *own, self.latent])


class SentenceEncoder(nn.Module):
    """A GRU, and a linear layer on its last state (EmbN on MULE): words [.., width] -> [N, width], states."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gru = initialized_by_itself(nn.GRU(width, width, batch_first=True))
        self.projection = nn.Linear(width, width)

    def forward(self, words: PackedSequence) -> tuple[Tensor, PackedSequence]:
        states, last = self.gru(words)
        return self.projection(last[-1]), states


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


class HardAttention(nn.Module):
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
    accepts_loss_kwargs = False
    vectors: Tensor
    components: Tensor

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__(config)
        self.words = WordRows(config)
        words = SPECIAL_IDS + sum(config.vocabulary_sizes)
        self.register_buffer("vectors", torch.zeros(words, config.vector_size or config.word_size))
        if config.vector_size:
            self.register_buffer("components", torch.zeros(words, config.word_size))
        self.attention = HardAttention(config)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, HardAttention):
            init.normal_(module.latent, std=self.config.initializer_range)
        elif isinstance(module, WordRows):
            module.reset()
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

    @property
    def specific_vectors(self) -> Tensor:
        """The vectors that words have as specific ones, [words, word size]."""
        return (self.components if self.config.vector_size else self.vectors)[SPECIAL_IDS:]

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
        self, output: DualEncoderOutput, *, positives: Tensor | None = None, step: TrainingStep = FIRST_STEP
    ) -> Tensor:
        """Computes the triplet loss of sentences in any languages (equation 1); `positives` are image labels [N]."""
        if positives is None:
            raise ValueError("a loss needs positives, the labels of the images")
        embeds, labels = output.text_embeds, positives.reshape(-1)
        same = same_label(labels, labels)
        pairs = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        options = {"margin": self.config.triplet_margin, "top_n": self.config.triplet_violations}
        return top_violation_triplet_loss(pairwise_distances(embeds, embeds), pairs, negatives=~same, **options)

    @torch.no_grad()
    def assignment(self, chunk_size: int = 4096) -> Tensor:
        """Returns the latent token of every word [words], without special tokens, `chunk_size` words at a time."""
        vectors = self.vectors[SPECIAL_IDS:].split(chunk_size)
        return torch.cat([self.attention.score(part).argmax(1) for part in vectors])


def means_of_words(table: Tensor, indices: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean of the words that the mask keeps, or zeros. [n, d], [N, T], [N, T] -> [N, d]"""
    weights = mask.to(table.dtype) / mask.sum(1, keepdim=True).clamp(min=1)
    return nn.functional.embedding_bag(indices, table, per_sample_weights=weights, mode="sum")


def rows_at(x: Tensor, indices: Tensor) -> Tensor:
    """Returns `x[indices]`, [n, d], [...] -> [..., d]; unlike indexing, its gradient is fast on a CPU."""
    return nn.functional.embedding(indices, x)


def fill_pairs(fill: nn.Linear, masked: Tensor, pairs: Tensor) -> Tensor:
    """Applies the layer to pairs of sentences, [N, d], [2, P] -> [2, P, d], and computes each sentence's part once."""
    first, second = fill.weight.chunk(2, dim=1)  # [2 d, d] each
    filled = rows_at(masked @ first.T, pairs[0]) + rows_at(masked @ second.T, pairs[1]) + fill.bias  # [P, 2 d]
    return torch.stack(filled.chunk(2, dim=1))
