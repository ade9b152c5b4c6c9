"""Writes stock folders: a MURAL, ALIGN or ETCL model as transformers' `AlignModel`, which needs no extra code. With a
BERT that is pooled at [CLS] and an EfficientNet without a projection, as in the papers, the weights are renamed. The
embeddings are compared before anything is kept."""

import copy
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import ModelCard
from PIL import Image
from torch import nn
from transformers import PROCESSOR_MAPPING, AlignConfig, AlignModel, AlignTextConfig, AutoModel, AutoProcessor
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from .configuration.configuration_two_tower import POOLER
from .inference.embedder import Embedder
from .inference.loading import as_output
from .inference.texts import SAMPLE_TEXTS
from .model_cards.card_text import save_card
from .model_cards.cards import placeholder_repository
from .modeling.modeling_two_tower import TwoTowerModel
from .processing.processing_per_language import counting_cut_texts
from .utils.errors import InputError, ModelKindError
from .utils.files import check_new, new_folder
from .utils.pretrained import load_model, load_processor
from .utils.sentence_files import MODULES_FILE, SETTINGS_FILE, listed_languages, prompt_languages, write_modalities

LARGEST_DIFFERENCE = 1e-5  # of a value of an embedding of unit length
# Without the names of special tokens, whose ids some classes use.
_TEXTS = [text for text in SAMPLE_TEXTS if "<|" not in text]
_IMAGE_SETTINGS = (
    *("size", "crop_size", "image_mean", "image_std", "resample", "rescale_factor"),
    *("do_resize", "do_center_crop", "do_rescale", "do_normalize"),
)


@dataclass(frozen=True)
class StockFolder:
    """A stock folder that was written: the transformers class of its model, the largest difference in any embedding
    value from the original model, for texts and for images, and the features that it lacks, one phrase each."""

    folder: Path
    class_name: str
    difference: dict[str, float]
    lost: tuple[str, ...]


def export_stock(source: str | Path, output: str | Path, **loading: Any) -> StockFolder:
    """Writes a MURAL, ALIGN or ETCL model as a stock transformers folder, with the files of sentence-transformers and
    a card, unless an embedding value differs by more than 1e-5. `loading` are arguments of `Embedder.from_pretrained`.

    Examples:
        >>> export_stock("runs/mural", "mural-stock")
        StockFolder(folder=…, class_name='AlignModel', difference={'text': 1.2e-07, 'image': 0.0}, lost=(…))
    """
    output = Path(output)
    check_new(output)
    embedder = Embedder.from_pretrained(source, device="cpu", dtype=torch.float32, **loading)
    lost = ["the white background of transparent images, and the EXIF rotation of photographs (give it upright RGB)"]
    made: Any = embedder.model.eval()
    if not type(made).__module__.startswith("transformers."):
        if len(getattr(made, "text_heads", ())) > 1:
            lost.insert(0, "the head that compares texts with texts (task text_text)")
        made = as_align(made)
    with new_folder(output) as folder:
        made.save_pretrained(folder)
        _stock_processor(embedder, type(made.config)).save_pretrained(folder)
        _write_sentence_files(folder, embedder)
        difference = _difference(embedder, folder)
        if (card := Path(source, "README.md")).is_file():
            _write_card(card, folder, placeholder_repository(output.name), type(made).__name__, lost)
    return StockFolder(output, type(made).__name__, difference, tuple(lost))


def as_align(model: Any) -> AlignModel:
    """Returns an `AlignModel` with copies of the weights of a MURAL or ETCL."""
    name = type(model).__name__
    if not isinstance(model, TwoTowerModel):
        raise ModelKindError(f"no class of transformers computes what a {name} does: it loads with trust_remote_code")
    config, head = model.config, model.training_head(True, False)
    text, image = config.text_config, config.vision_config
    reasons = {
        f"reads texts with BERT, and not with {text.model_type!r}": text.model_type in ("bert", "align_text_model"),
        f"reads images with EfficientNet, and not with {image.model_type!r}": image.model_type == "align_vision_model",
        f"pools texts at [CLS], and not by {config.text_pooling!r}": config.text_pooling == "cls",
        "does not project images": config.image_pooling == POOLER and not config.image_head,
        "has one linear layer after its text tower": isinstance(head, nn.Linear) and not config.text_layer_norm,
    }
    if unmet := [reason for reason, is_met in reasons.items() if not is_met]:
        raise ModelKindError(f"no class of transformers computes what this {name} does: AlignModel {unmet[0]}")
    temperature = model.similarity().item()
    own = {key: value for key, value in text.to_dict().items() if key not in ("model_type", "architectures")}
    settings = {"text_config": AlignTextConfig(**own).to_dict(), "vision_config": image.to_dict()}
    settings |= {"projection_dim": config.projection_dim, "temperature_init_value": temperature}
    made = AlignModel(AlignConfig(**settings))
    towers = {"text_model": model.text_model, "vision_model": model.vision_model, "text_projection": head}
    weights = {f"{tower}.{key}": value for tower, part in towers.items() for key, value in part.state_dict().items()}
    # A pooling layer that is not read, and a bias that the head may lack, are zeros.
    zeros = {key: torch.zeros_like(value) for key, value in made.state_dict().items()}
    made.load_state_dict(zeros | weights | {"temperature": torch.tensor(temperature)})
    return made.to(model.dtype).eval()


def _read(embedder: Embedder, texts: list[str]) -> Any:
    language = next(iter(listed_languages(embedder.model.config)), "en")
    with counting_cut_texts():
        return embedder.process_texts(texts, [language] * len(texts))


def _stock_processor(embedder: Embedder, config: type) -> Any:
    """A transformers processor that prepares texts and images as the model's processor does."""
    processor = embedder.processor
    if prompt := getattr(processor, "text_prompt", ""):
        raise ModelKindError(
            f"transformers' processors cannot put a prompt before texts, and this model reads texts after {prompt!r}"
        )
    settings = processor.image_processor.to_dict()
    images = CLIPImageProcessorPil(**{name: settings[name] for name in _IMAGE_SETTINGS if name in settings})
    tokenizer = copy.deepcopy(processor.tokenizer)
    # Texts are cut at the same length as by the model's processor.
    tokenizer.model_max_length = _read(embedder, [max(_TEXTS, key=len)])["input_ids"].shape[1]
    stock: Any = PROCESSOR_MAPPING[config]
    return stock(images, tokenizer)


def _write_sentence_files(folder: Path, embedder: Embedder) -> None:
    """Writes the files that let sentence-transformers load the folder with its built-in modules. Each language has an
    empty prompt with its name, so calls that name a language still work."""
    package, name = "sentence_transformers.base.modules", "sentence_embedding"
    modules = [("", f"{package}.transformer.Transformer"), ("1_Normalize", f"{package}.normalize.Normalize")]
    prompts = {"query": "", "document": ""} | dict.fromkeys(prompt_languages(embedder.model.config), "")
    settings: dict[str, Any] = {"model_type": "SentenceTransformer", "prompts": prompts, "default_prompt_name": None}
    if embedder.truncate_dim is not None:
        settings["truncate_dim"] = embedder.truncate_dim
    files: dict[str, Any] = {
        MODULES_FILE: [
            {"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)
        ],
        SETTINGS_FILE: settings | {"similarity_fn_name": "cosine"},
        "1_Normalize/config.json": {"module_input_name": name, "module_output_name": name},
    }
    (folder / "1_Normalize").mkdir()
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    write_modalities(folder, ["text", "image"])


@torch.no_grad()
def _difference(embedder: Embedder, folder: Path) -> dict[str, float]:
    """The largest differences between the embeddings of a stock folder, loaded without babelens, and the model's."""
    model: Any = load_model(AutoModel, folder).eval()
    processor = load_processor(AutoProcessor, folder, backend="pil")
    rng = np.random.default_rng(0)
    shapes = [(*rng.integers(40, 400, 2), 3) for _ in range(5)]
    images = [Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)) for shape in shapes]
    read, seen = _read(embedder, _TEXTS), embedder.processor(images=images, return_tensors="pt")
    stock_read = processor(text=_TEXTS, padding=True, truncation=True, return_tensors="pt")
    stock_seen = processor(images=images, return_tensors="pt")
    pairs = {
        "text": (embedder.model.get_text_features(**read), model.get_text_features(**stock_read)),
        "image": (embedder.model.get_image_features(**seen), model.get_image_features(**stock_seen)),
    }
    differences = {}
    for name, both in pairs.items():
        own, stock = (nn.functional.normalize(as_output(each).pooler_output, dim=-1) for each in both)
        differences[name] = float((own - stock).abs().max())
        if not differences[name] <= LARGEST_DIFFERENCE:
            raise InputError(
                f"as {type(model).__name__}, the model would embed {name}s differently: a value differs by "
                f"{differences[name]:.1g}, more than {LARGEST_DIFFERENCE:g}; nothing was written"
            )
    return differences


def _write_card(source: Path, folder: Path, repository: str, class_name: str, lost: Sequence[str]) -> None:
    """Writes the card of a stock folder: how to load it, then the model's card from its results on."""
    card = ModelCard.load(source, ignore_metadata_errors=True)
    title, _, _ = card.text.strip().partition("\n")
    _, heading, results = card.text.partition("## Results\n")
    card.text = (
        f"{title}\n\nThis is the model as the stock `{class_name}` of transformers: it loads without babelens, "
        f"without `trust_remote_code` and without a language, with the same embeddings. It lacks {'; '.join(lost)}."
        f'\n\n```python\nfrom transformers import AutoModel\n\nmodel = AutoModel.from_pretrained("{repository}")\n'
        f"```\n\n{heading}{results}"
    )
    card.data.tags = [tag for tag in card.data.tags or [] if tag != "custom_code"]
    card.data.widget = None
    if (examples := source.with_name("examples")).is_dir():
        shutil.copytree(examples, folder / examples.name)
    save_card(card, folder)
