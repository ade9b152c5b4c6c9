"""Stock folders: models as the classes that come with transformers, which load everywhere without code of their own.

A folder of babelens carries its code, and asks whoever loads it for `trust_remote_code=True` and for the language of
texts. Where a class of transformers computes the same (`modeling.stock_models`), `export_stock` writes the model as
that class, which transformers, sentence-transformers and what stands on them read as any other.
"""

import copy
import json
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import ModelCard
from PIL import Image
from torch import nn
from transformers import PROCESSOR_MAPPING, AutoModel, AutoProcessor, PreTrainedConfig, ProcessorMixin
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from .inference.embedder import Embedder
from .inference.sample_texts import TEXTS
from .inference.text_only import SentenceEncoder
from .model_cards.card_text import CompactCard, save_card
from .model_cards.result_tables import RESULTS_FILE
from .modeling.modeling_dual_encoder import as_output
from .modeling.stock_models import StockModel, stock_model
from .processing.text_inputs import counting_cut_texts
from .utils.errors import ModelKindError, ModelMismatchError
from .utils.files import check_new, new_folder
from .utils.pretrained import load_model, load_processor
from .utils.sentence_files import (
    MODULES_FILE,
    SETTINGS_FILE,
    listed_languages,
    prompt_languages,
    write_modalities,
)

# Largest difference of a value of an embedding of unit length.
LARGEST_DIFFERENCE = 1e-5
_IMAGES = 5
# Names of special tokens, at which classes may look by their ids.
_TEXTS = tuple(text for text in TEXTS if "<|" not in text)
_LOST_WITH_IMAGES = (
    "white behind transparent images, and the turning of photographs as their EXIF says (give it RGB images that "
    "stand upright)"
)


@dataclass(frozen=True)
class StockFolder:
    """A stock folder that was written.

    Args:
        folder: the folder.
        class_name: the class of transformers that it holds.
        difference: the largest difference of any value of an embedding from the model's, of texts and of images.
        lost: what the model has and the folder lacks, a phrase each.
    """

    folder: Path
    class_name: str
    difference: dict[str, float]
    lost: tuple[str, ...]


def export_stock(source: str | Path, output: str | Path, **loading: Any) -> StockFolder:
    """Writes a model as a stock folder of transformers, and compares the embeddings of both before it is there.

    The folder has weights, processor and the files of sentence-transformers, so that `SentenceTransformer(folder)`
    loads it too, and the card of the model, if it has one, with the examples as they are written for the folder.

    Args:
        source: the model: a folder, or a repository on the Hub; of an adapter, its base model is written.
        output: a new folder.
        loading: what `Embedder.from_pretrained` takes, such as `trust_remote_code`.

    Returns:
        What was written, and what it lacks.

    Raises:
        ArgumentError: if the folder exists.
        ModelFolderError: if there is no such model, or a file of it is missing or damaged.
        ModelKindError: if no class of transformers computes what the model computes, or none of its processors
            prepares texts and images as the model's does.
        ModelMismatchError: if the embeddings differ by more than 1e-5.

    Examples:
        >>> export_stock("runs/mural", "mural-stock")
        StockFolder(folder=…, class_name='AlignModel', difference={'text': 1.2e-07, 'image': 0.0}, lost=(…), …)
    """
    output = Path(output)
    check_new(output)
    embedder = Embedder.from_pretrained(source, device="cpu", dtype=torch.float32, **loading)
    if isinstance(embedder.model, SentenceEncoder):
        raise ModelKindError(
            f"{source} is an embedder of sentence-transformers, which loads everywhere without babelens: there is "
            "nothing to export. Its pooling and prompts are not those of a class of transformers"
        )
    made = stock_model(embedder.model.eval())
    processor, images_lost = _stock_processor(embedder, made)
    lost = (*made.lost, *images_lost)
    class_name = type(made.model).__name__
    with new_folder(output) as folder:
        made.model.save_pretrained(folder)
        processor.save_pretrained(folder)
        _write_sentence_files(folder, made, prompt_languages(embedder.model.config), embedder.truncate_dim)
        difference = _difference(embedder, folder)
        if Path(source).is_dir():
            write_stock_card(folder, Path(source), class_name=class_name, lost=lost)
    return StockFolder(output, class_name, difference, lost)


# ---- The processor ----


def _language_of(embedder: Embedder) -> str:
    """A language that the model reads."""
    return next(iter(listed_languages(embedder.model.config)), "en")


def _stock_processor(embedder: Embedder, made: StockModel) -> tuple[ProcessorMixin, tuple[str, ...]]:
    """The processor of transformers for a stock model, and what it lacks.

    Raises:
        ModelKindError: if it cannot prepare texts as the given one does.
    """
    processor, config = embedder.processor, made.model.config
    if prompt := getattr(processor, "text_prompt", ""):
        raise ModelKindError(
            f"a processor of transformers puts no prompt before texts, and this model reads them after {prompt!r}"
        )
    lost: tuple[str, ...] = ()
    images = processor.image_processor
    if not type(images).__module__.startswith("transformers."):
        images, lost = _stock_images(images), (_LOST_WITH_IMAGES,)
    tokenizer = copy.deepcopy(processor.tokenizer)
    with counting_cut_texts():  # the longest text is cut where the model's own processor cuts texts
        longest = embedder.process_texts([max(_TEXTS, key=len)], [_language_of(embedder)])
    tokenizer.model_max_length = longest["input_ids"].shape[1]
    if is_padded(config):  # SigLIP was trained without a mask
        tokenizer.model_input_names = ["input_ids"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names
    stock: Any = PROCESSOR_MAPPING[type(config)]
    return stock(images, tokenizer), lost


def _stock_images(images: Any) -> CLIPImageProcessorPil:
    """CLIP's image processor with the settings of MURAL's, which has the same steps in the same order."""
    names = ("size", "crop_size", "image_mean", "image_std", "resample", "rescale_factor")
    switches = ("do_resize", "do_center_crop", "do_rescale", "do_normalize")
    settings = images.to_dict()
    return CLIPImageProcessorPil(**{name: settings[name] for name in (*names, *switches) if name in settings})


# ---- The files of sentence-transformers ----


def _write_sentence_files(folder: Path, made: StockModel, languages: Iterable[str], width: int | None) -> None:
    """Writes the files by which sentence-transformers runs its own modules on the folder.

    A prompt is named by each language, and is empty: calls that name the language work as with the model itself.
    Embeddings keep the first `width` dimensions."""
    package = "sentence_transformers.base.modules"
    modules = [("", f"{package}.transformer.Transformer"), ("1_Normalize", f"{package}.normalize.Normalize")]
    listed = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)]
    _write(folder / MODULES_FILE, listed)
    more = {"processing_kwargs": {"text": {"padding": "max_length"}}} if is_padded(made.model.config) else {}
    write_modalities(folder, ["text", "image"], **more)
    name = "sentence_embedding"
    (folder / "1_Normalize").mkdir()
    _write(folder / "1_Normalize" / "config.json", {"module_input_name": name, "module_output_name": name})
    prompts = {"query": "", "document": ""} | dict.fromkeys(languages, "")
    settings = {"model_type": "SentenceTransformer", "prompts": prompts, "default_prompt_name": None}
    cut = {} if width is None else {"truncate_dim": width}
    _write(folder / SETTINGS_FILE, settings | cut | {"similarity_fn_name": "cosine"})


def is_padded(config: PreTrainedConfig) -> bool:
    """Whether a stock model reads texts that are padded to the full length, as SigLIP was trained."""
    return "siglip" in config.model_type


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


# ---- The comparison ----


def _difference(embedder: Embedder, folder: Path) -> dict[str, float]:
    """The largest differences of the embeddings of a stock folder, loaded as anybody loads it, from a model's.

    Raises:
        ModelMismatchError: if one is larger than `LARGEST_DIFFERENCE`.
    """
    model: Any = load_model(AutoModel, folder).eval()
    processor = load_processor(AutoProcessor, folder, backend="pil")
    texts, images = list(_TEXTS), _drawn_images()
    tags = _language_of(embedder)
    cut = {"padding": "max_length" if is_padded(model.config) else True, "truncation": True}
    with counting_cut_texts():
        read = embedder.process_texts(texts, [tags] * len(texts))
    seen = embedder.processor(images=images, return_tensors="pt")
    with torch.no_grad():
        own = {"text": embedder.model.get_text_features(**read), "image": embedder.model.get_image_features(**seen)}
        of_texts = model.get_text_features(**processor(text=texts, **cut, return_tensors="pt"))
        of_images = model.get_image_features(**processor(images=images, return_tensors="pt"))
    expected = {name: _unit(as_output(value).pooler_output) for name, value in own.items()}
    found = {"text": _unit(of_texts.pooler_output), "image": _unit(of_images.pooler_output)}
    differences = {name: float(np.abs(found[name] - value).max()) for name, value in expected.items()}
    for name, value in differences.items():
        if not value <= LARGEST_DIFFERENCE:
            raise ModelMismatchError(
                f"as {type(model).__name__}, the model would embed {name}s otherwise: a value differs by {value:.1g}, "
                f"more than {LARGEST_DIFFERENCE:g}; nothing was written"
            )
    return differences


def _unit(features: torch.Tensor) -> np.ndarray:
    normalized: np.ndarray = nn.functional.normalize(features, dim=-1).numpy()
    return normalized


def _drawn_images() -> list[Image.Image]:
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(_IMAGES):
        height, width = rng.integers(40, 400, 2)
        ramp = np.linspace(rng.uniform(0, 200, 3), rng.uniform(0, 200, 3), width)[None]
        drawn.append(Image.fromarray((ramp + rng.uniform(0, 50, (height, width, 3))).astype(np.uint8)))
    return drawn


# ---- The card of a stock folder, from the card of the model that it was made of ----

_CARD = "README.md"
_EXAMPLES = "examples"
# What only the model's own code understands, in the examples of a card.
_OF_OWN_CODE = re.compile(r', (?:trust_remote_code=True|prompt_name="[^"]*"|language=(?:"[^"]*"|\[[^]]*\]))')
_PROCESSED = re.compile(r'(processor\([^\n]*?)return_tensors="pt"')
_SENTENCES = re.compile(
    r"^(?:With `import babelens` first, .*|The Python files beside the weights .*)$\n?", re.MULTILINE
)
_PROMPTS = "; a prompt names the language of the texts"


def write_stock_card(folder: Path, source: Path, *, class_name: str, lost: Sequence[str] = ()) -> Path | None:
    """Writes the card of a stock folder.

    Args:
        folder: the stock folder.
        source: the folder of the model that it was made of, with its card.
        class_name: the class of transformers in the stock folder.
        lost: what the model has and the stock folder lacks.

    Returns:
        The card's file, or None where the model has no card.
    """
    if not (source / _CARD).is_file():
        return None
    given = ModelCard.load(source / _CARD, ignore_metadata_errors=True)
    metadata = given.data.to_dict()
    metadata["tags"] = [tag for tag in metadata.get("tags") or [] if tag != "custom_code"]
    card = CompactCard(f"---\n{{}}\n---\n{_with_note(_stock_text(given.text), class_name, lost)}")
    card.data = CompactCard.card_data_class(**metadata, ignore_metadata_errors=True)
    for name in (_EXAMPLES, RESULTS_FILE):
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name)
        elif (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    return save_card(card, folder)


def _stock_text(text: str) -> str:
    text = _SENTENCES.sub("", text.replace(_PROMPTS, ""))
    return _PROCESSED.sub(r'\1padding=True, truncation=True, return_tensors="pt"', _OF_OWN_CODE.sub("", text))


def _with_note(text: str, class_name: str, lost: Sequence[str]) -> str:
    """A card's text with a paragraph below its title that says what the folder is."""
    note = (
        f"This repository holds the model as stock `{class_name}` of transformers: it loads without babelens, without "
        "`trust_remote_code` and without a language, with the same embeddings."
    )
    if lost:
        note += f" It lacks {'; '.join(lost)}."
    title = re.search(r"^# .*$", text, re.MULTILINE)
    end = title.end() if title else 0
    return f"{text[:end]}\n\n{note}\n{text[end:]}"
