"""What MLA's steps cost beside one another and beside training a whole CLIP.

    python benchmarks/mla_costs.py --rounds 5

Models have the shapes of CLIP ViT-B/32 and of M-BERT's table, with random weights. The two sides of every ratio take
turns in one process; printed are medians of the ratio over the rounds, with quartiles.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor
from transformers import CLIPModel
from turns import Step, machine, quartiles, ratios

from babelens import MlaConfig, MlaModel
from babelens.modeling.encoding import evaluation_mode
from babelens.modeling.peft_mla.conversion import save_adapter, to_peft_model

LANGUAGES = ("de", "fr", "cs", "zh", "ja", "uk", "hi", "sw")


def main(
    rounds: Annotated[int, typer.Option(help="Number of rounds; each times both sides once.")] = 5,
    batch_size: Annotated[int, typer.Option(help="Number of texts and images in a step.")] = 16,
    tokens: Annotated[int, typer.Option(help="Number of tokens of each text.")] = 16,
    threads: Annotated[int, typer.Option(help="Number of processor threads.")] = 2,
    only: Annotated[str, typer.Option(help="Measure the comparisons with this text in their titles.")] = "",
) -> None:
    """Measure the ratios and print them as a table."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    costs = Costs(batch_size, tokens)
    print(f"{machine(threads)}; batch {batch_size}, {tokens} tokens, {rounds} rounds\n")
    clock = time.process_time if threads == 1 else time.perf_counter  # other work on the machine does not count
    print(f"| compared | ratio (quartiles), {'processor' if threads == 1 else 'wall-clock'} time |\n|---|---|")
    for title, one, other in costs.comparisons():
        if only in title:
            print(f"| {title} | {quartiles(ratios(one, other, rounds, clock), 3)} |", flush=True)
    print(f"\nAdapter of one language without the shared embedding: {costs.adapter_megabytes():.2f} MB on disk")


class Costs:
    """The steps to be compared, on one batch of random images and texts."""

    def __init__(self, batch_size: int, tokens: int) -> None:
        config = MlaConfig(languages=LANGUAGES)
        self.model = MlaModel(config).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0, fused=True)
        self.clip: CLIPModel = self.model.unload().train()
        self.clip_optimizer = torch.optim.AdamW(self.clip.parameters(), lr=0.0, fused=True)
        native_end = config.base_config.text_config.eos_token_id
        self.native = texts(batch_size, tokens, native_end)
        self.foreign = texts(batch_size, tokens, config.sep_token_id)
        self.german = torch.ones(batch_size, dtype=torch.long)
        self.mixed = torch.arange(batch_size) % len(LANGUAGES) + 1
        self.pixels = torch.randn(batch_size, 3, 224, 224)
        with torch.no_grad():
            self.teacher = self.model.get_text_features(self.native).pooler_output
            self.images = self.model.get_image_features(self.pixels).pooler_output
        self.peft = to_peft_model(self.model).eval()

    def comparisons(self) -> list[tuple[str, Step, Step]]:
        """(what is compared, one side, other side)."""
        step = self.acquiring
        transfer, exposure = step(self.teacher_texts), step(self.encoded_images)
        later = step(self.encoded_images, train_embedding=False)
        cached_transfer, cached_exposure = step(self.cached_teacher), step(self.cached_images)
        return [
            ("transfer step, cached teacher / teacher computed", step(self.cached_teacher), transfer),
            ("exposure step, cached images / images encoded", step(self.cached_images), exposure),
            (
                "the same, shared embedding frozen",
                step(self.cached_images, train_embedding=False),
                later,
            ),
            ("transfer step, nothing cached / full CLIP step", transfer, self.full_clip_step),
            ("exposure step, nothing cached / full CLIP step", exposure, self.full_clip_step),
            ("the same, shared embedding frozen", later, self.full_clip_step),
            ("transfer step, teacher cached / full CLIP step", cached_transfer, self.full_clip_step),
            ("exposure step, images cached / full CLIP step", cached_exposure, self.full_clip_step),
            ("8 languages in one batch / 8 passes with set_adapter", self.one_mixed_batch, self.eight_passes),
            ("the same as `Embedder` encodes it / 8 passes", self.one_encoded_batch, self.eight_passes),
            ("the same batch in one language / 8 passes", self.one_language, self.eight_passes),
            ("the plain CLIP on such a batch / 8 passes", self.plain_clip, self.eight_passes),
        ]

    def acquiring(self, target: Callable[[], dict[str, Tensor]], *, train_embedding: bool = True) -> Step:
        """A training step of German: of its acquirers and, with the first language, of the shared embedding."""

        def step() -> None:
            self.model.config.train_embedding = train_embedding
            self.model.set_trainable("acquirers", ["de"])
            self.model(self.foreign, language_ids=self.german, return_loss=True, **target()).loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()

        return step

    def teacher_texts(self) -> dict[str, Tensor]:
        return {"paired_input_ids": self.native}

    def cached_teacher(self) -> dict[str, Tensor]:
        return {"paired_text_features": self.teacher}

    def encoded_images(self) -> dict[str, Tensor]:
        return {"pixel_values": self.pixels}

    def cached_images(self) -> dict[str, Tensor]:
        return {"image_features": self.images}

    def full_clip_step(self) -> None:
        self.clip(self.native, self.pixels, return_loss=True).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.clip.parameters(), 1.0)
        self.clip_optimizer.step()
        self.clip_optimizer.zero_grad()

    @torch.no_grad()
    def one_mixed_batch(self) -> None:
        self.model.get_text_features(self.foreign, language_ids=self.mixed)

    def one_encoded_batch(self) -> None:
        with evaluation_mode(self.model):
            self.one_mixed_batch()

    @torch.no_grad()
    def one_language(self) -> None:
        self.model.get_text_features(self.foreign, language_ids=self.german)

    @torch.no_grad()
    def plain_clip(self) -> None:
        self.clip.get_text_features(self.native)

    @torch.no_grad()
    def eight_passes(self) -> None:
        for number, language in enumerate(LANGUAGES, start=1):
            self.peft.set_adapter(language)
            self.peft.get_text_features(self.foreign[self.mixed == number])

    def adapter_megabytes(self) -> float:
        with tempfile.TemporaryDirectory() as folder:
            save_adapter(self.model, "de", folder, embedding="elsewhere")
            return (Path(folder) / "adapter_model.safetensors").stat().st_size / 1e6


def texts(count: int, tokens: int, end: int) -> Tensor:
    """Random ids that end with `end`, [count, tokens]."""
    ids = torch.randint(1000, 40_000, (count, tokens))
    ids[:, -1] = end
    return ids


if __name__ == "__main__":
    typer.run(main)
