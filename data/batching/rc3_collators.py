"""From examples to the batches of RC3's pre-training: a batch for each data set (Zhou et al. 2023, section 2.3).

Which of an example's two texts is x_i and which x_j, and which words are masked, is drawn from the example's own seed,
so that both languages of a pair have anchors, masked words and targets; who is whose partner, from the first one's.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...configuration.errors import InputError
from .collators import identity_label
from .views import Example

Batch = dict[str, Any]

_TEXT_INPUTS = ("input_ids", "attention_mask")


class TripletCollator:
    """Images with two texts -> a strictly or a weakly aligned batch of `Rc3ForPreTraining`.

    Args:
        processor: an `Rc3Processor`.
        mask_probability: of a word of x_i; then x_j is also encoded for the decoder. None: neither, as on weakly
            aligned data.
        transform: images and their seeds -> pixel values [B, 3, H, W]; by default the processor's.

    An example has an `image`, `regions` [R, region_size], or both; what it has becomes the visual inputs. Of several
    versions of its regions, [V, R, region_size], one is drawn.

    Raises:
        InputError: when more than half of a batch are images of one thing.
    """

    def __init__(
        self,
        processor: Any,
        mask_probability: float | None = None,
        transform: Callable[[list[Any], list[int]], Tensor] | None = None,
    ) -> None:
        self.processor, self.mask_probability, self.transform = processor, mask_probability, transform

    def __call__(self, examples: list[Example], seeds: list[int]) -> Batch:
        rngs = [_rng(seed) for seed in seeds]
        sides = [_sides(example, rng) for example, rng in zip(examples, rngs, strict=True)]
        batch: Batch = _encoded(self.processor, sides) | self._visual(examples, seeds, rngs)
        batch["partner"] = torch.from_numpy(partners([example["image_id"] for example in examples], rngs[0]))
        if self.mask_probability is not None:
            batch["masked"] = self._masked(batch["first"], rngs)
            texts, languages = zip(*(second for _, second in sides), strict=True)
            target = self.processor(text_target=list(texts), target_language=list(languages), return_tensors="pt")
            batch["decoder"] = dict(target)
        return batch

    def _visual(self, examples: list[Example], seeds: list[int], rngs: list[np.random.Generator]) -> dict[str, Tensor]:
        inputs: dict[str, Tensor] = {}
        if "image" in examples[0]:
            images = [example["image"] for example in examples]
            if self.transform is None:
                inputs |= self.processor(images=images, return_tensors="pt")
            else:
                inputs["pixel_values"] = self.transform(images, seeds)
        if "regions" in examples[0]:
            regions = [_one_version(example["regions"], rng) for example, rng in zip(examples, rngs, strict=True)]
            inputs |= self.processor(regions=regions, return_tensors="pt")
        return inputs

    def _masked(self, texts: dict[str, Tensor], rngs: list[np.random.Generator]) -> dict[str, Tensor]:
        """Each text masked by its own random numbers, whatever else is in the batch."""
        rows = []
        for row, rng in enumerate(rngs):
            generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
            length = int(texts["attention_mask"][row].sum())
            text = {"input_ids": texts["input_ids"][row : row + 1, :length]}
            rows.append(self.processor.mask_words(text, self.mask_probability, generator))
        masked, labels = texts["input_ids"].clone(), torch.full_like(texts["input_ids"], -100)
        for row, (ids, original) in enumerate(rows):
            masked[row, : ids.shape[1]], labels[row, : ids.shape[1]] = ids[0], original[0]
        return {"input_ids": masked, "labels": labels}


class TranslationCollator:
    """Two texts that say the same -> a parallel batch of `Rc3ForPreTraining`.

    Pairs of which two texts are equal, or that are about the same (`image_id`, where there is one), share an identity
    and are not each other's negatives.

    Args:
        processor: an `Rc3Processor`.
    """

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, examples: list[Example], seeds: list[int]) -> Batch:
        sides = [_sides(example, _rng(seed)) for example, seed in zip(examples, seeds, strict=True)]
        columns = [column for column in ("text_a", "text_b", "image_id") if column in examples[0]]
        identities = [[identity_label(example[column]) for example in examples] for column in columns]
        return _encoded(self.processor, sides) | {"identities": torch.tensor(identities)}


def partners(image_ids: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """A random partner for each, of another image, a permutation [B].

    Raises:
        InputError: when there is no such permutation, because one image is more than half of them.
    """
    places = rng.permutation(len(image_ids))
    ids, group, counts = np.unique(np.asarray(image_ids)[places], return_inverse=True, return_counts=True)
    largest = int(counts.max())
    if 2 * largest > len(image_ids):
        raise InputError(
            f"{largest} of the {len(image_ids)} images of a batch show {str(ids[counts.argmax()])!r}: not each can "
            "have a partner that shows something else"
        )
    # Image by image in a circle; who stands as far away as the largest group is long belongs to another one.
    circle = places[np.argsort(rng.permutation(len(ids))[group], kind="stable")]
    partner = np.empty_like(circle)
    partner[circle] = np.roll(circle, largest)
    return partner


def _rng(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _one_version(regions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return regions if regions.ndim == 2 else regions[rng.integers(len(regions))]


def _sides(example: Example, rng: np.random.Generator) -> tuple[tuple[str, str], tuple[str, str]]:
    """x_i and x_j, each a text with its language, in a random order."""
    a, b = ((example[f"text_{side}"], example[f"language_{side}"]) for side in "ab")
    return (a, b) if rng.random() < 0.5 else (b, a)


def _encoded(processor: Any, sides: list[tuple[tuple[str, str], tuple[str, str]]]) -> Batch:
    """`first` and `second`, text inputs."""
    batch = {}
    for name, side in zip(("first", "second"), zip(*sides, strict=True), strict=True):
        texts, languages = zip(*side, strict=True)
        encoded = processor(text=list(texts), language=list(languages), return_tensors="pt")
        batch[name] = {key: encoded[key] for key in _TEXT_INPUTS}
    return batch
