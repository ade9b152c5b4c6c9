"""The first stage of SMALR: learns which latent token embeds each word, from sentences about the same images (Burns et
al. 2020, section 3.1).

A sentence is the mean of the latent tokens of its words. The vector of each word scores all latent tokens; the best
one is used (hard attention) or, now and then, one of the best few, so that accidental assignments do not persist.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, initialization as init

from ..configuration.configuration_smalr import SPECIAL_IDS, SmalrConfig
from .losses.distances import pairwise_distances, same_label
from .losses.triplet import top_violation_triplet_loss
from .modeling_common import FIRST_STEP, TrainingStep, WeightsAsMade
from .modeling_dual_encoder import DualEncoderOutput, normalize
from .word_embedding import WordRows


class HardAttention(nn.Module):
    """Chooses one latent token for each word vector.

    The gradient reaches the scores by a straight-through estimator: the token is multiplied by its probability,
    whose value is replaced by 1. The paper does not specify the estimator.
    """

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__()
        self.score = nn.Linear(config.word_size, config.latent_tokens)
        self.latent = nn.Parameter(torch.empty(config.latent_tokens, config.hidden_size))
        self.exploration = config.exploration_probability
        self.candidates = min(config.exploration_tokens, config.latent_tokens)

    def forward(self, vectors: Tensor) -> Tensor:
        """Maps word vectors [n, word size] to latent tokens [n, width]."""
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
    """Learns the latent vocabulary; `assignment` returns the latent token of each word."""

    config_class = SmalrConfig
    base_model_prefix = "smalr_latent"
    main_input_name = "input_ids"
    accepts_loss_kwargs = False
    vectors: Tensor

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__(config)
        self.words = WordRows(config)
        self.register_buffer("vectors", torch.zeros(SPECIAL_IDS + sum(config.vocabulary_sizes), config.word_size))
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
            init.zeros_(module.vectors)

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
        """Computes the triplet loss of sentences about one image, in any languages (equation 1).

        Args:
            output: embeddings of the sentences.
            positives: labels of the images that the sentences describe, [N] or [1, N].
            step: not used, as this loss is the same throughout training.
        """
        if positives is None:
            raise ValueError("a loss needs positives, the labels of the images")
        embeds, labels = output.text_embeds, positives.reshape(-1)
        same = same_label(labels, labels)
        pairs = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        return top_violation_triplet_loss(
            pairwise_distances(embeds, embeds),
            pairs,
            negatives=~same,
            margin=self.config.triplet_margin,
            top_n=self.config.triplet_violations,
        )

    @torch.no_grad()
    def assignment(self, chunk_size: int = 4096) -> Tensor:
        """Returns the index of the latent token of every word of all languages, without the special tokens, [words].

        Args:
            chunk_size: number of words that are scored at a time.
        """
        vectors = self.vectors[SPECIAL_IDS:].split(chunk_size)
        return torch.cat([self.attention.score(part).argmax(1) for part in vectors])
