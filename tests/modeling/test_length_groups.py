"""Texts in groups of similar length, and in chunks, are cut after their last tokens, and nowhere else."""

import pytest
import torch

from babelens.modeling.modeling_common import encode_by_length, text_ends
from babelens.trainers.gradient_caching import _take

IDS = torch.tensor([[3, 4, 0, 0, 0], [5, 6, 7, 8, 0], [9, 0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("ids", "ends", "widths"),
    [(IDS, [2, 4, 1], [1, 2, 4]), (IDS.flip(1), [5, 5, 5], [5, 5, 5])],
    ids=["padded on the right", "padded on the left"],
)
def test_no_token_is_cut_off(ids, ends, widths):
    mask = (ids > 0).long()
    assert text_ends(mask).tolist() == ends
    read = []

    def encode(rows, longest):
        read.append(longest)
        return ids[rows, :longest].sum(1, keepdim=True)

    assert encode_by_length(encode, mask, 3).flatten().tolist() == [7, 26, 9]
    assert read == widths
    taken = _take({"input_ids": ids, "attention_mask": mask}, torch.tensor([0, 2]))
    assert taken["input_ids"].sum(1).tolist() == [7, 9]
    assert taken["input_ids"].shape == taken["attention_mask"].shape == (2, max(ends[0], ends[2]))
