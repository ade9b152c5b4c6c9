"""SMALR's first stage: which latent token stands for a word, learned from sentences about the same images (Burns et
al. 2020, section 3.1).

A sentence is the mean of its words' latent tokens. Each word's vector scores all latent tokens; the best one is taken
(hard attention), or now and then one of the best, so that spurious assignments do not stay.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, initialization as init

from ..configuration.configuration_smalr import SmalrConfig
from .modeling_dual_encoder import DualEncoderOutput, normalize
from .training_step import FIRST_STEP, TrainingStep
from .triplet_losses import pairwise_distances, same_label, top_violation_triplet_loss
from .weights_as_made import WeightsAsMade
from .word_embedding import SPECIAL_TOKENS, WordRows


class HardAttention(nn.Module):
    """Word vectors -> latent tokens, one for each word.

    The gradient reaches the scores straight through: the token is multiplied by its probability, whose value is taken
    as 1 (the paper does not say how).
    """

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__()
        self.score = nn.Linear(config.word_size, config.latent_tokens)
        self.latent = nn.Parameter(torch.empty(config.latent_tokens, config.hidden_size))
        self.exploration = config.exploration_probability
        self.candidates = min(config.exploration_tokens, config.latent_tokens)

    def forward(self, vectors: Tensor) -> Tensor:
        """[n, word size] -> [n, width]"""
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
    """Learns the latent vocabulary; `assignment` says what it learned."""

    config_class = SmalrConfig
    base_model_prefix = "smalr_latent"
    main_input_name = "input_ids"
    accepts_loss_kwargs = False
    vectors: Tensor

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__(config)
        self.words = WordRows(config)
        self.register_buffer("vectors", torch.zeros(SPECIAL_TOKENS + sum(config.vocabulary_sizes), config.word_size))
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
        """Embeds texts, [N, T] -> `text_embeds` [N, width]: the mean over the words that have a vector, normalised."""
        words = self.words.words(input_ids, language_ids)
        distinct, places = words.unique(return_inverse=True)
        table = self.attention(self.vectors[distinct])
        known = (attention_mask * (input_ids >= SPECIAL_TOKENS))[..., None]  # [N, T, 1]
        total = (table[places] * known).sum(1)
        return DualEncoderOutput(text_embeds=normalize(total / known.sum(1).clamp(min=1)))

    def contrastive_objective(
        self, output: DualEncoderOutput, *, positives: Tensor | None = None, step: TrainingStep = FIRST_STEP
    ) -> Tensor:
        """The triplet loss of sentences of one image, in whichever languages (equation 1).

        Args:
            output: embeddings of the sentences.
            positives: labels of the images that the sentences describe, [N] or [1, N].
            step: not used, as this loss is the same throughout training.
        """
        if positives is None:
            raise ValueError("a loss needs to know which texts belong together")
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
        """The latent token of every word of all languages, special tokens apart, [words]."""
        vectors = self.vectors[SPECIAL_TOKENS:].split(chunk_size)
        return torch.cat([self.attention.score(part).argmax(1) for part in vectors])
