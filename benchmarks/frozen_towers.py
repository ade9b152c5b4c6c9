"""What a training step costs with frozen and half-frozen towers, beside training all of both.

    python benchmarks/frozen_towers.py --rounds 5

A MURAL of two transformers with random weights: BERT-like with MiniLM's shape, and a ViT-S/32. Each row trains both
towers, or one, as the option `towers` says. Printed are the trained parameters, the memory of AdamW's state and of the
gradients, the activations that a step keeps for its backward pass, and the time of a step: the median, with quartiles,
of its ratio to a step that trains all, by turns in one process.
"""

import tempfile
from typing import Annotated, Any

import torch
import typer
from gradient_caching import IMAGE_TEXT, make_batch, make_trainer
from turns import machine, quartiles, ratios

from babelens import MuralConfig, MuralModel

SHAPE = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 1536}
TEXT = SHAPE | {"model_type": "bert", "vocab_size": 30_000, "max_position_embeddings": 128}
IMAGE = SHAPE | {"model_type": "vit", "image_size": 224, "patch_size": 32}
EACH: dict[str, dict[str, Any]] = {
    "upper 4 layers": {"train": "upper", "layers": 4},
    "upper 1 layer": {"train": "upper", "layers": 1},
    "biases": {"train": "biases"},
    "lora, r=8": {"train": "lora"},
    "none": {"train": "none"},
}
CHOICES = {f"both: {name}": {"image": setting, "text": setting} for name, setting in EACH.items()}
CHOICES |= {"image: none": {"image": {"train": "none"}}, "text: none": {"text": {"train": "none"}}}


class Training:
    """A model whose towers are trained in one way, and steps of it."""

    def __init__(self, towers: dict[str, Any] | None, batch_size: int, folder: str) -> None:
        torch.manual_seed(0)
        self.model = MuralModel(MuralConfig(text_config=TEXT, vision_config=IMAGE)).train()
        self.batch = make_batch(self.model, IMAGE_TEXT, batch_size, IMAGE["image_size"])
        self.batch["pixel_values"] = self.batch["pixel_values"].contiguous(memory_format=torch.channels_last)
        self.trainer = make_trainer(self.model, folder, {}, towers=towers, optim="adamw_torch")
        self.trainer.current_gradient_accumulation_steps = 1  # `train` would set it
        self.optimizer = self.trainer.create_optimizer()

    def step(self) -> None:
        """Takes a step of the optimizer."""
        self.trainer.training_step(self.model, {IMAGE_TEXT: dict(self.batch)})
        self.optimizer.step()
        self.optimizer.zero_grad()

    @property
    def parameters(self) -> int:
        """The number of trained parameters."""
        return sum(weight.numel() for weight in self.model.parameters() if weight.requires_grad)

    def activations(self) -> int:
        """The bytes that a step keeps for its backward pass, besides the weights."""
        weights = {weight.untyped_storage().data_ptr() for weight in self.model.parameters()}
        kept: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            self.step()
        return sum(kept.values())


def main(
    rounds: Annotated[int, typer.Option(help="Number of rounds; each times both sides once.")] = 5,
    batch_size: Annotated[int, typer.Option(help="Number of image-text pairs in a batch.")] = 32,
    threads: Annotated[int, typer.Option(help="Number of processor threads.")] = 1,
) -> None:
    """Measure each choice and print a table."""
    torch.set_num_threads(threads)
    print(f"{machine(threads)}; batch {batch_size}, {rounds} rounds\n")
    print("| towers | trained, million | gradients and AdamW, MB | activations, MB | time of a step |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        every = Training(None, batch_size, folder)
        print(_row("both: all", every, "1"))
        for name, towers in CHOICES.items():
            training = Training(towers, batch_size, folder)
            print(_row(name, training, quartiles(ratios(training.step, every.step, rounds))), flush=True)


def _row(name: str, training: Training, time: str) -> str:
    state = 3 * 4 * training.parameters / 1e6
    return f"| {name} | {training.parameters / 1e6:.2f} | {state:.1f} | {training.activations() / 1e6:.0f} | {time} |"


if __name__ == "__main__":
    typer.run(main)
