"""Hard negatives that the model mines itself: between epochs, the examples that it confuses come into one batch.

A contrastive loss learns from the negatives in its batch, most of which are far away once a model has learned
something. Before every epoch but the first, the model embeds its training data. The negatives of an example are the
texts of other images that lie nearest to its image; the next epoch puts them behind the example. The loss, and what it
counts as positives, stay the same, and an epoch is one pass over all examples in any case.

Duplicates are no negatives: an example of the same image, of a text that the image has as a caption, or of an image
that has the example's text as one of its captions.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..configuration.errors import TrainingSetupError
from ..data.batching.features import FEATURES_OF, FeatureView
from ..data.batching.views import CorpusView
from ..modeling.encoding import evaluation_mode
from ..modeling.modeling_dual_encoder import normalize

logger = logging.getLogger(__name__)

_FILE = "hard_negatives.npz"
_ROWS = 512  # of scores that are computed at a time
_FEATURES = 4096  # that are projected at a time
_ROUNDING = 1e-6  # of a share of an epoch
_CANDIDATES = 8  # for each negative
_SPARE = 32  # candidates beside those asked for, as some are duplicates


def hardest_negatives(
    images: Tensor, texts: Tensor, image_ids: Sequence[str], captions: Sequence[str], count: int
) -> np.ndarray:
    """Finds the texts of other images that lie nearest to the image of each example.

    Args:
        images, texts: embeddings of unit length of the image and the text of each example.
        image_ids: the image of each example.
        captions: its text.
        count: the number of negatives of an example.

    Returns:
        The indices of the negatives, nearest first; -1 where an example has fewer.

    Shape:
        images, texts: [N, d]; result: [N, count] integer.

    Examples:
        >>> hardest_negatives(images, texts, ["a", "b", "b"], ["a dog", "a cat", "a small cat"], 1)
        array([[2], [0], [0]])
    """
    _, image_labels = np.unique(np.asarray(image_ids, dtype=object), return_inverse=True)
    names, text_labels = np.unique(np.asarray(captions, dtype=object), return_inverse=True)
    pairs = np.unique(image_labels.astype(np.int64) * len(names) + text_labels)  # which image has which text
    size = len(image_labels)
    wanted = min(count + _SPARE, size)
    found = np.full((size, count), -1, dtype=np.int64)
    of_images, of_texts = torch.from_numpy(image_labels), torch.from_numpy(text_labels)
    for start in range(0, size, _ROWS):
        rows = slice(start, min(start + _ROWS, size))
        scores = images[rows] @ texts.T
        same = (of_images[rows, None] == of_images[None]) | (of_texts[rows, None] == of_texts[None])
        values, nearest = scores.masked_fill_(same, -torch.inf).topk(wanted, dim=1)
        candidates = nearest.numpy()
        shared = image_labels[rows, None] * len(names) + text_labels[candidates]
        shares = image_labels[candidates] * len(names) + text_labels[rows, None]
        kept = values.isfinite().numpy() & ~_are_in(pairs, shared) & ~_are_in(pairs, shares)
        first = np.argsort(~kept, axis=1, kind="stable")[:, :count]
        chosen = np.take_along_axis(np.where(kept, candidates, -1), first, axis=1)
        found[rows, : chosen.shape[1]] = chosen
    return found


def _are_in(known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Whether each value is among those that are known, which are sorted, and at least one."""
    return known[np.searchsorted(known, values).clip(max=len(known) - 1)] == values


def order_of_epoch(negatives: np.ndarray, count: int, seed: Sequence[int]) -> np.ndarray:
    """Orders all examples so that the hardest negatives of an example follow it that were not there before.

    A few texts lie near to many images; therefore there are more candidates than negatives that follow an example.

    Args:
        negatives: candidates of each example, hardest first, as `hardest_negatives` finds them.
        count: how many of them follow an example at most.
        seed: shuffles the examples.

    Shape:
        negatives: [N, K] integer; result: [N], a permutation.
    """
    order: list[int] = []
    is_there = np.zeros(len(negatives), dtype=bool)
    for example in np.random.default_rng(list(seed)).permutation(len(negatives)):
        if not is_there[example]:
            candidates = negatives[example]
            free = candidates[(candidates >= 0) & ~is_there[candidates]][:count]
            order += [int(example), *free.tolist()]
            is_there[order[-len(free) - 1 :]] = True
    return np.array(order, dtype=np.int64)


class HardNegativeMiner:
    """Makes the order of each epoch of a training, and keeps it in its checkpoints.

    Args:
        view: the examples of images and texts.
        count: number of negatives of an example.
        seed: shuffles the examples, with the number of the epoch.
        batch_size: images or texts that are embedded at a time.

    Attributes:
        features: the features of frozen towers that the examples have, by column (`features_of_view`); these towers
            do not run once more.
    """

    def __init__(self, view: Any, count: int, *, seed: int, batch_size: int) -> None:
        if not isinstance(view, CorpusView) or not view.has_images or "image_id" not in view.columns:
            raise TrainingSetupError(
                "hard_negatives: they are mined in data of images and texts that are at hand, and neither in streams "
                "nor in groups of languages; leave it out"
            )
        self.view, self.count, self.seed, self.batch_size = view, count, seed, batch_size
        self.epoch, self.order = -1, np.empty(0, dtype=np.int64)
        self.features: Mapping[str, FeatureView] = {}

    def order_of(self, epoch: int, model: Any, processor: Any) -> np.ndarray | None:
        """The order of an epoch, mined by the first process for all; None for the first epoch."""
        if epoch == 0:
            return None
        if epoch != self.epoch:
            made: list[Any] = [None]
            if not dist.is_initialized() or dist.get_rank() == 0:
                made = [order_of_epoch(self.mine(model, processor), self.count, [self.seed, epoch])]
            if dist.is_initialized():
                dist.broadcast_object_list(made, src=0)
            self.epoch, self.order = epoch, made[0]
        return self.order

    def mine(self, model: Any, processor: Any) -> np.ndarray:
        """The hardest negatives of all examples, [N, K], by the model as it is now."""
        # Imported here, so that a trainer can be read and imported without what evaluates its model.
        from ..inference.embedder import Embedder

        examples = list(self.view.without_images())
        captions = [example["text"] for example in examples]
        languages = [example["language"] for example in examples]
        embedder = Embedder(model, processor, batch_size=self.batch_size)
        texts = self._projected(model, "text", model.get_text_features)
        if texts is None:
            texts = torch.from_numpy(embedder.encode_text(captions, language=languages))
        images = self._projected(model, "image", model.get_image_features)
        if images is None:
            images = torch.from_numpy(embedder.encode_image(self.view.images))[torch.from_numpy(self.view.rows)]
        image_ids = [example["image_id"] for example in examples]
        logger.info("mining %d hard negatives for each of %d examples", self.count, len(examples))
        candidates = min(_CANDIDATES * self.count, len(examples) - 1)
        return hardest_negatives(images, texts, image_ids, captions, candidates)

    def _projected(self, model: Any, column: str, embed: Callable[..., Any]) -> Tensor | None:
        """The embeddings [N, d] of all examples by their features; None where they have none."""
        name = FEATURES_OF[column]
        if (view := self.features.get(name)) is None:
            return None
        features = torch.from_numpy(np.asarray(view.features))
        if features.ndim == 3:  # several versions of each image, the first of which is the image as it is
            features = features[:, 0]
        with evaluation_mode(model):
            parts = [embed(**{name: part.to(model.device)}) for part in features.split(_FEATURES)]
        found = torch.cat([normalize(part.pooler_output.float()).cpu() for part in parts])
        return found[torch.from_numpy(view.indices)]

    def save(self, folder: str | Path) -> None:
        """Writes the order of the epoch into a checkpoint."""
        if self.epoch >= 0 and (not dist.is_initialized() or dist.get_rank() == 0):
            np.savez(Path(folder, _FILE), epoch=self.epoch, order=self.order)

    def start(self, checkpoint: str | Path | None) -> None:
        """Begins a training, in the order of the epoch in which its checkpoint was saved, if it goes on from one."""
        self.epoch = -1
        path = None if checkpoint is None else Path(checkpoint, _FILE)
        if path is not None and path.is_file():
            with np.load(path) as saved:
                self.epoch, self.order = int(saved["epoch"]), saved["order"]


class OrderedEpochs(TrainerCallback):
    """Calls a function with the number of each epoch that begins, before its first batch.

    Args:
        order: the function.
    """

    def __init__(self, order: Callable[[int], None]) -> None:
        self.order = order

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.order(int((state.epoch or 0) + _ROUNDING))
