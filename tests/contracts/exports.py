"""Exports of models for any batch and, unless something is recurrent, any length."""

from collections.abc import Iterable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from .common import LANGUAGES, TEXTS, Contract, drawn_images

# The dimensions in which inputs differ from batch to batch.
BATCH, BATCH_AND_LENGTH = (0,), (0, 1)


class Called(nn.Module):
    def __init__(self, model: nn.Module, method: str, output: str) -> None:
        super().__init__()
        self.model, self.method, self.output = model, method, output

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return getattr(self.model, self.method)(**inputs)[self.output]


def check_export(called: nn.Module, inputs: dict[str, Tensor], others: Iterable[dict[str, Tensor]], free: Any) -> None:
    """Exports with some inputs and compares with the model on others; the dimensions `free` of inputs may differ."""
    shapes = {name: {d: Dim.DYNAMIC for d in free(name) if d < value.dim()} for name, value in inputs.items()}
    with torch.no_grad():
        exported = torch.export.export(called, (inputs,), dynamic_shapes=(shapes,)).module()
        for other in others:
            torch.testing.assert_close(exported(other), called(other), rtol=0, atol=1e-5)


def check_compiled(model: nn.Module, method: str, batches: Iterable[dict[str, Tensor]]) -> None:
    """Compiles a tower without graph breaks, and compares with the model. Inductor is not tried."""
    called = Called(model, method, "pooler_output").eval()
    torch._dynamo.reset()
    compiled = torch.compile(called, fullgraph=True, backend="eager")
    # By default, torch.compile refuses recurrent modules, which SMALR and LIWE have.
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        for batch in batches:
            torch.testing.assert_close(compiled(batch), called(batch), rtol=0, atol=1e-5)


class ExportContract(Contract):
    """Both towers can be exported, with everything that tells rows apart as an input."""

    # The dimensions of texts that may differ from the exported inputs.
    free_in_texts: ClassVar[tuple[int, ...]] = BATCH_AND_LENGTH

    def texts(self, processor: Any, count: int, length: int | None = None) -> dict[str, Tensor]:
        inputs = dict(processor(text=TEXTS[:count], language=LANGUAGES[:count], return_tensors="pt"))
        return {name: value[:, :length] if value.dim() > 1 else value for name, value in inputs.items()}

    def test_texts_of_any_number(self, model, processor):
        called = Called(model, "get_text_features", "pooler_output").eval()
        every = self.texts(processor, len(TEXTS))
        # The order differs as well: the graph may contain no language and no length.
        others = [{name: value[rows] for name, value in every.items()} for rows in ([5, 0], [4, 3, 2, 1, 0, 5, 5])]
        if self.free_in_texts == BATCH_AND_LENGTH:
            others.append(self.texts(processor, 2, length=int(every["attention_mask"][:2].sum(1).max())))
        check_export(called, {n: value[:3] for n, value in every.items()}, others, lambda name: self.free_in_texts)

    def test_images_of_any_number(self, model, processor):
        images = processor(images=drawn_images(6), return_tensors="pt")["pixel_values"]
        called = Called(model, "get_image_features", "pooler_output").eval()
        others = [{"pixel_values": images[:2]}, {"pixel_values": images}]
        check_export(called, {"pixel_values": images[:3]}, others, lambda name: BATCH)

    @pytest.mark.slow
    def test_both_towers_compile_to_one_graph(self, model, processor):
        """Without gradients; nothing about the languages or lengths of a batch makes another graph necessary."""
        images = processor(images=drawn_images(5), return_tensors="pt")["pixel_values"]
        texts = self.texts(processor, len(TEXTS))
        check_compiled(
            model, "get_text_features", [{n: v[rows] for n, v in texts.items()} for rows in ([5, 0], [1, 2, 3])]
        )
        check_compiled(model, "get_image_features", [{"pixel_values": images[:2]}, {"pixel_values": images}])
