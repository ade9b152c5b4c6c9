"""Cross-lingual consistency, CLC (Burns et al. 2020, section 3.4): combines the scores s of a candidate with a query
and its translations, which any dual encoder computes, in L languages.

    CLC-A   mean(s)
    CLC-C   w2 ReLU(W1 s),  W1 [32, L], w2 [1, 32], trained by L_mm (equation 3) on the scores of a validation set

The paper says: "All parameters are initialized with uniform weight". With equal weights, all hidden units would get
the same gradient and remain identical. Here, a layer's weights are drawn uniformly between 0 and twice the weight of a
mean, by the configuration's seed, and each language's are scaled so that the untrained CLC-C computes exactly the
scores of CLC-A. The ReLU is not in the paper. Scores should be positive, such as 1 + cosine: others can become ties.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel, initialization as init

from ..configuration.configuration_consistency import CrossLingualConsistencyConfig
from ..utils.errors import InputError
from ..utils.hub_mixin import HubCodeMixin
from .modeling_dual_encoder import WeightsAsMade

_PAIRS_AT_ONCE = 2**18  # of queries and candidates, whose hidden units training keeps in memory


class CrossLingualConsistency(WeightsAsMade, HubCodeMixin, PreTrainedModel):
    """Computes one score for each candidate from its scores with a query and its translations.

    Examples:
        >>> consistency = CrossLingualConsistency(CrossLingualConsistencyConfig(languages=["en", "de", "ja"]))
        >>> losses = consistency.fit(validation_scores, right_candidates)  # [3, n_queries, n_candidates]
        >>> consistency(test_scores)  # [n_queries, n_candidates]
    """

    config_class = CrossLingualConsistencyConfig
    auto_classes = ("AutoModel",)
    main_input_name = "scores"

    def __init__(self, config: CrossLingualConsistencyConfig) -> None:
        super().__init__(config)
        n_languages = len(config.languages)
        if config.aggregation == "mlp":
            self.hidden = nn.Linear(n_languages, config.hidden_size, bias=False)
            self.output = nn.Linear(config.hidden_size, 1, bias=False)
        else:
            # They are constants, but a model without tensors could not be saved or moved.
            self.language_weights = nn.Parameter(torch.empty(n_languages), requires_grad=False)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            hidden, output = _drawn_weights(self.config)
            init.copy_(module.weight, hidden if module is self.hidden else output)
        elif isinstance(module, CrossLingualConsistency) and module.config.aggregation == "mean":
            init.constant_(module.language_weights, 1 / len(module.config.languages))

    def forward(self, scores: Tensor) -> Tensor:
        """Combines scores in each of `config.languages`, [L, n_queries, n_candidates] -> [n_queries, n_candidates]."""
        self._check(scores)
        return self._join(scores.to(self.dtype))

    def _join(self, scores: Tensor) -> Tensor:
        by_pair = scores.movedim(0, -1)  # [L, Nq, Nc] -> [Nq, Nc, L]
        if self.config.aggregation == "mean":
            return by_pair @ self.language_weights
        return self.output(self.hidden(by_pair).relu()).squeeze(-1)

    def fit(
        self,
        scores: Tensor,
        query_to_candidates: Sequence[Sequence[int]],
        *,
        iterations: int = 30,
        learning_rate: float = 1e-2,
    ) -> list[float]:
        """Trains CLC-C, from its current weights, on the scores [L, n_queries, n_candidates] of a validation set, by
        L_mm (equation 3) with negated scores as distances and candidates as images; returns the loss before each
        iteration, first that of CLC-A, and after the last. The joint scores are always scaled to the standard
        deviation of CLC-A's, which is not in the paper: the margin is a constant, so smaller weights would reduce the
        loss without changing any ranking. The paper states 30 iterations, but not the optimizer, here Adam, or its
        learning rate."""
        from .losses.triplet import multimodal_triplet_loss

        if self.config.aggregation == "mean":
            raise ValueError("CLC-A (aggregation='mean') has nothing to learn; CLC-C is aggregation='mlp'")
        self._check(scores)
        positives = _mask(query_to_candidates, scores.shape[1], scores.shape[2]).to(scores.device)
        optimizer, losses, dtype = torch.optim.Adam(self.parameters(), lr=learning_rate), [], self.dtype
        # The loss does not depend on the scale of the weights. In float32, its gradient along the weights is therefore
        # only noise, which Adam would turn into full steps.
        self.double()
        scores = scores.double()
        try:
            for iteration in range(iterations + 1):
                joint, scale = self._rescaled(scores)
                loss = multimodal_triplet_loss(-joint.T, positives.T)
                losses.append(loss.item())
                if iteration < iterations:
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            with torch.no_grad():
                self.output.weight *= scale
        finally:
            self.to(dtype)
        return losses

    @property
    def importances(self) -> dict[str, float]:
        """The weight of each language in the joint score, if the ReLU cuts off no hidden unit."""
        is_mean = self.config.aggregation == "mean"
        weights = self.language_weights if is_mean else (self.output.weight @ self.hidden.weight)[0]
        return dict(zip(self.config.languages, (weights / weights.sum()).tolist(), strict=True))

    def _rescaled(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the joint scores, rescaled to the spread of CLC-A's, and the rescaling factor."""
        rows = max(1, _PAIRS_AT_ONCE // scores.shape[2])
        # The hidden layer is computed for some queries at a time, and recomputed in the backward pass.
        joint = torch.cat([checkpoint(self._join, part, use_reentrant=False) for part in scores.split(rows, dim=1)])
        spread = joint.std()
        if not spread > 0:
            raise InputError("the joint scores are all the same: give positive scores, such as 1 + cosine")
        scale = scores.mean(0).std() / spread
        return joint * scale, scale

    def _check(self, scores: Tensor) -> None:
        count = len(self.config.languages)
        if scores.dim() != 3 or 0 in scores.shape or len(scores) != count:
            raise InputError(f"scores are {list(scores.shape)}, but must be [{count}, n_queries, n_candidates]")
        if len(broken := (~scores.isfinite()).nonzero()):
            raise InputError(f"scores{broken[0].tolist()} is not finite")


def _drawn_weights(config: CrossLingualConsistencyConfig) -> tuple[Tensor, Tensor]:
    """Draws the weights of both layers, [hidden, L] and [1, hidden], whose product is 1 / L for every language."""
    n_languages, generator = len(config.languages), torch.Generator().manual_seed(config.seed)
    hidden = 2 / n_languages * torch.rand(config.hidden_size, n_languages, generator=generator, device="cpu")
    output = 2 / config.hidden_size * torch.rand(1, config.hidden_size, generator=generator, device="cpu")
    return hidden / (n_languages * (output @ hidden)), output


def _mask(query_to_candidates: Sequence[Sequence[int]], n_queries: int, n_candidates: int) -> Tensor:
    """Returns the mask of the correct pairs, [n_queries, n_candidates] bool."""
    if len(query_to_candidates) != n_queries:
        raise InputError(f"{n_queries} queries have right candidates for {len(query_to_candidates)}")
    mask = torch.zeros(n_queries, n_candidates, dtype=torch.bool)
    for query, right in enumerate(query_to_candidates):
        if not len(right) or not all(0 <= candidate < n_candidates for candidate in right):
            raise InputError(f"query {query} has the right candidates {list(right)}, not of 0 to {n_candidates - 1}")
        mask[query, list(right)] = True
    return mask
