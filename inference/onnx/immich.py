"""Exports a dual encoder in the layout in which Immich's machine-learning server keeps its CLIP models.

    config.json                                     what open_clip's have: the length of texts
    textual/model.onnx                              `text` int32 [1, length] -> embeddings [1, width]
    textual/tokenizer.json, tokenizer_config.json   read by the package tokenizers; texts are padded to the length
    visual/model.onnx                               `image` float32 [1, 3, size, size] -> embeddings [1, width]
    visual/preprocess_cfg.json                      size, interpolation, mean, std, and how images are resized

The server knows models, and the width of their embeddings, by their names: a folder replaces one of its models.
Embeddings of another width are filled up with zeros, which changes no cosine.

The server passes the language of a query only to models whose names begin with `nllb`: it puts the Flores code of the
interface's language before the text, as in `ukr_Cyrlкіт`. A ridge model replaces one of these, and reads a query
by the map of that language (`immich_characters`). Other models with separate languages are exported for one of them.
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.normalizers import Prepend, Sequence
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ...modeling.modeling_dual_encoder import as_output, normalize
from ...processing.processing_mla import MlaProcessor
from ...processing.processing_mla_student import MlaStudentProcessor
from ...processing.processing_ridge import RidgeProcessor
from ...processing.text_inputs import counting_cut_texts, default_language
from ...processing.text_normalization import same_letters
from ...utils.errors import InputError, ModelKindError
from ...utils.files import check_new, new_folder
from ..embedder import Embedder
from ..texts import SAMPLE_TEXTS
from .export import convert, load_exportable, write_graph
from .immich_characters import CharacterTexts
from .model import PRECISIONS, open_graph

# Widths of the embeddings that the server knows, each with a model that a folder can replace.
IMMICH_MODELS = {
    512: "ViT-B-32__openai",
    640: "RN50x4__openai",
    768: "ViT-L-14__openai",
    1024: "RN50__openai",
    1152: "ViT-SO400M-14-SigLIP-384__webli",
    1536: "ViT-gopt-16-SigLIP2-256__webli",
}
# The same for models that get the language of a query.
NLLB_MODELS = {768: "nllb-clip-base-siglip__v1", 1152: "nllb-clip-large-siglip__v1"}
LEAST_COSINE = 0.9999
_IMAGES = ((40, 120), (97, 64), (224, 301))  # heights and widths of drawn images


@dataclass(frozen=True)
class ImmichFolder:
    """An export.

    Args:
        replaces: the name of a model of Immich with embeddings of this width.
        width: the width of the embeddings, with the zeros.
        language: the language of its texts, or `None` if it reads texts in any; of a ridge model, the language of
            queries without a learned language, or `und`.
        cosines: the lowest cosine with the model's embedding, for texts and for images.
        routed: of a ridge model, the learned languages that the server can name.
    """

    folder: Path
    replaces: str
    width: int
    language: str | None
    cosines: dict[str, float]
    routed: tuple[str, ...] = ()


def export_immich(
    source: str | Path, output: str | Path, *, language: str | None = None, precision: str = "fp32", **loading: Any
) -> ImmichFolder:
    """Writes a dual encoder as a folder that Immich's machine-learning server loads as a CLIP model.

    Args:
        language: the language of all texts, for a model that reads each in its own way. For a ridge model, the
            learned language of queries in languages that it has not learned, such as English; by default they are
            read by the map that all its languages share.
        precision: `fp32`, `fp16` or `int8`.
        loading: what `Embedder.from_pretrained` takes, such as `trust_remote_code`.

    Examples:
        >>> export_immich("runs/mural", "immich/ViT-B-32__openai").replaces
        'ViT-B-32__openai'
    """
    if precision not in PRECISIONS:
        raise InputError(f"precision={precision!r}: choose one of {', '.join(PRECISIONS)}")
    check_new(output)
    embedder = load_exportable(source, **loading)
    is_ridge = isinstance(embedder.processor, RidgeProcessor)
    texts = CharacterTexts(embedder, language) if is_ridge else _Texts(embedder, language)
    images, models = _Images(embedder), NLLB_MODELS if is_ridge else IMMICH_MODELS
    own = texts.width(embedder.model)
    own = min(own, getattr(embedder.model.config, "truncate_dim", None) or own)
    width = next((each for each in models if each >= own), None)
    if width is None:
        raise ModelKindError(f"the embeddings have {own} values, and Immich has none of more than {max(models)}")
    model = _Server(embedder.model, texts, images, width)
    with new_folder(output) as folder:
        for name in ("textual", "visual"):
            (folder / name).mkdir()
        settings = {"embed_dim": width, "text_cfg": {"context_length": texts.length}}
        _write_json(folder / "config.json", settings | {"vision_cfg": {"image_size": images.size}})
        texts.save(folder / "textual")
        _write_json(folder / "visual" / "preprocess_cfg.json", images.settings())
        traced_text = {"text": torch.zeros(2, texts.length, dtype=torch.int32)}
        traced_image = {"image": torch.zeros(2, 3, images.size, images.size)}
        for tower, traced, room in (("text", traced_text, "textual"), ("image", traced_image, "visual")):
            free = {name: ["batch", *[None] * (value.dim() - 1)] for name, value in traced.items()}
            first = folder / room / ("model.onnx" if precision == "fp32" else "fp32.onnx")
            write_graph(model, tower, traced, free, first)
            if precision != "fp32":
                convert(first, folder / room / "model.onnx", precision)
                for file in first.parent.glob("fp32.onnx*"):
                    file.unlink()
        cosines = _compared(ImmichReader(folder), embedder, texts.samples, own)
        if precision == "fp32" and min(cosines.values()) < LEAST_COSINE:
            raise InputError(
                f"read as Immich reads it, the folder gives other embeddings than the model: cosines {cosines}; "
                "nothing was exported"
            )
    return ImmichFolder(Path(output), models[width], width, texts.stated, cosines, texts.routed)


def _write_json(path: Path, settings: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


class _Server(nn.Module):
    """A dual encoder that takes what the server gives: only padded token ids, and images of one size."""

    def __init__(self, model: nn.Module, texts: "_Texts | CharacterTexts", images: "_Images", width: int) -> None:
        super().__init__()
        self.config = None  # its `truncate_dim` would cut off the zeros
        self.kept = getattr(model.config, "truncate_dim", None)
        self.model, self.texts, self.width, self.margin, self.side = model, texts, width, images.margin, images.crop

    def get_text_features(self, text: Tensor) -> BaseModelOutputWithPooling:
        return self._padded(self.texts.features(self.model, text.long()))

    def get_image_features(self, image: Tensor) -> BaseModelOutputWithPooling:
        inside = slice(self.margin, self.margin + self.side)
        pixels = image[:, :, inside, inside]
        found = self.model.get_image_features(pixel_values=pixels)  # type: ignore[operator]
        return self._padded(as_output(found).pooler_output)

    def _padded(self, features: Tensor) -> BaseModelOutputWithPooling:
        features = normalize(features[:, : self.kept])
        features = nn.functional.pad(features, (0, self.width - features.shape[-1]))
        return BaseModelOutputWithPooling(pooler_output=features)


class _Texts:
    """How the server prepares texts: one tokenizer, one length, no mask."""

    routed = ()

    def __init__(self, embedder: Embedder, stated: str | None) -> None:
        self._embedder, processor = embedder, embedder.processor
        self._language = language = stated or default_language(processor)
        self.stated = language if stated or not getattr(processor, "one_tokenizer", True) else None
        tokenizer, prompt = _tokenizer_of(processor, language)
        if tokenizer.padding_side != "right" or tokenizer.truncation_side != "right" or tokenizer.pad_token is None:
            raise ModelKindError("Immich pads and cuts texts on the right, and this model's tokenizer does not")
        self.tokenizer = copy.deepcopy(tokenizer)
        # A prompt is put before each part of a text that special tokens divide, and before no empty text.
        # The server reads letters as they are typed, and the processor by their standard code points.
        texts = list(SAMPLE_TEXTS)
        if getattr(processor, "normalization", 0):
            texts = [same_letters(text, language) for text in texts]
        cleaned = [text for text in map(_cleaned, texts) if not prompt or (text and "<s>" not in text)]
        self.samples = [("", language, text) for text in cleaned]
        if prompt:
            backend = self.tokenizer.backend_tokenizer
            backend.normalizer = Sequence([Prepend(prompt), *([backend.normalizer] if backend.normalizer else [])])
        made = self.inputs(SAMPLE_TEXTS[-1])  # longer than any model reads
        self.length, self.names = made["input_ids"].shape[1], [*made]
        if unknown := set(self.names) - {"input_ids", "attention_mask", "language_ids", "token_type_ids"}:
            raise ModelKindError(
                f"Immich gives only token ids, but this model also reads {', '.join(sorted(unknown))}"
            )
        self.language_id = int(made["language_ids"][0]) if "language_ids" in made else 0
        self.pad_id = int(self.tokenizer.pad_token_id)
        self.ends_in_pad = int(self.tokenizer("x")["input_ids"][-1]) == self.pad_id

    @torch.no_grad()
    def width(self, model: Any) -> int:
        """Returns the width of the model's embeddings."""
        return as_output(model.get_text_features(**self.inputs("x"))).pooler_output.shape[-1]

    def features(self, model: Any, ids: Tensor) -> Tensor:
        """Returns the features [N, d] of padded token ids [N, length], all that the server gives."""
        inputs: dict[str, Tensor] = {"input_ids": ids}
        if "attention_mask" in self.names:
            # The last token of a text may be the padding token, as in CLIP: all positions up to the last other token,
            # and one more, belong to the text.
            places = torch.arange(ids.shape[1])
            last = ((ids != self.pad_id) * places).amax(1, keepdim=True) + int(self.ends_in_pad)
            inputs["attention_mask"] = (places <= last).long()
        if "token_type_ids" in self.names:
            inputs["token_type_ids"] = torch.zeros_like(ids)
        if "language_ids" in self.names:
            inputs["language_ids"] = torch.full_like(ids[:, 0], self.language_id)
        return as_output(model.get_text_features(**inputs)).pooler_output

    def inputs(self, text: str) -> dict[str, Tensor]:
        """Returns the output of the model's processor for a text."""
        with counting_cut_texts():
            return dict(self._embedder.process_texts([text], [self._language]))

    def save(self, folder: Path) -> None:
        """Writes what the server reads, after comparing it with the processor on texts in many scripts."""
        backend = self.tokenizer.backend_tokenizer
        backend.no_padding()
        backend.no_truncation()
        backend.save(str(folder / "tokenizer.json"))
        _write_json(folder / "tokenizer_config.json", {"pad_token": str(self.tokenizer.pad_token)})
        read = _read_tokenizer(folder, self.length)
        for _, _, text in self.samples:
            wanted = self.inputs(text)["input_ids"][0].tolist()
            wanted += [self.pad_id] * (self.length - len(wanted))
            if read.encode(text).ids != wanted:
                raise ModelKindError(f"Immich would read {text[:40]!r} with other tokens than the model's processor")


def _tokenizer_of(processor: Any, language: str) -> tuple[Any, str]:
    """Returns the tokenizer that reads texts in a language, and what is put before them."""
    prompt: str = getattr(processor, "text_prompt", "") or ""
    tokenizer: Any = getattr(processor, "tokenizer", None)
    if isinstance(processor, MlaStudentProcessor):
        if not processor.one_tokenizer and language == processor.native_language:
            prompt, tokenizer = "", processor.native_tokenizer
    elif isinstance(processor, MlaProcessor) and language != processor.native_language:
        tokenizer = processor.multilingual_tokenizer
    if not hasattr(tokenizer, "backend_tokenizer") or not hasattr(processor, "image_processor"):
        raise ModelKindError(f"a {type(processor).__name__} reads words, and Immich a tokenizer.json")
    return tokenizer, prompt


class _Images:
    """How the server prepares images: resized to a square, or the middle of them cut out."""

    def __init__(self, embedder: Embedder) -> None:
        given = embedder.processor.image_processor
        size, crop = dict(getattr(given, "size", None) or {}), dict(getattr(given, "crop_size", None) or {})
        crops = bool(getattr(given, "do_center_crop", False))
        side: Any = size.get("shortest_edge")
        self.mode = "shortest"
        if side is None and size.get("height") == size.get("width"):
            side, self.mode = size.get("height"), "squash"
        cut = crop.get("height") if crops and crop.get("height") == crop.get("width") else None
        self.crop: Any = cut or side
        is_square = side is not None and (self.mode == "squash" or crops) and (cut is not None or not crops)
        if not is_square or not getattr(given, "do_resize", True) or self.crop > side:
            raise ModelKindError(
                f"Immich resizes images to a square or cuts the middle out, and this {type(given).__name__} does not"
            )
        self.size, self.margin = int(side), (int(side) - int(self.crop)) // 2
        self._resample = Image.Resampling(int(given.resample)).name.lower()
        scale = float(getattr(given, "rescale_factor", 1 / 255)) if given.do_rescale else 1.0
        mean, std = (given.image_mean, given.image_std) if given.do_normalize else ([0.0] * 3, [1.0] * 3)
        ratio = scale * 255  # the server divides by 255
        self.mean, self.std = [float(each) / ratio for each in mean], [float(each) / ratio for each in std]

    def settings(self) -> dict[str, Any]:
        """Returns the content of `preprocess_cfg.json`."""
        return {
            "size": [self.size, self.size],
            "mode": "RGB",
            "mean": self.mean,
            "std": self.std,
            "interpolation": self._resample,
            "resize_mode": self.mode,
            "fill_color": 0,
        }


# ---- The folder as the server reads it ----


def _cleaned(text: str) -> str:
    return " ".join(text.split())


def _read_tokenizer(folder: Path, length: int) -> Tokenizer:
    tokenizer: Tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    pad = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))["pad_token"]
    tokenizer.enable_padding(length=length, pad_token=pad, pad_id=tokenizer.token_to_id(pad))
    tokenizer.enable_truncation(max_length=length)
    return tokenizer


class ImmichReader:
    """Embeds texts and images with a folder in Immich's layout, by the steps of its server.

    Args:
        folder: the folder.

    Examples:
        >>> ImmichReader(Path("immich/ViT-B-32__openai")).text("mbwa")  # [512]
    """

    def __init__(self, folder: Path) -> None:
        length = json.loads((folder / "config.json").read_text("utf-8"))["text_cfg"]["context_length"]
        self._tokenizer = _read_tokenizer(folder / "textual", length)
        self._settings = json.loads((folder / "visual" / "preprocess_cfg.json").read_text("utf-8"))
        self._graphs = {
            name: open_graph(folder / name / "model.onnx", torch.get_num_threads()) for name in ("textual", "visual")
        }

    def text(self, text: str, code: str = "") -> np.ndarray:
        """Returns the embedding [width] of a text, with the Flores code that the server puts before it, if any."""
        ids = np.array([self._tokenizer.encode(code + _cleaned(text)).ids], dtype=np.int32)
        return np.asarray(self._graphs["textual"].run(None, {"text": ids})[0][0])

    def image(self, image: Image.Image) -> np.ndarray:
        """Returns the embedding [width] of an image."""
        size, image = int(self._settings["size"][0]), image.convert("RGB")
        how = Image.Resampling[self._settings["interpolation"].upper()]
        if self._settings["resize_mode"] == "squash":
            image = image.resize((size, size), how)
        else:
            shorter = min(image.size)
            width, height = (int(side / shorter * size) if side > shorter else size for side in image.size)
            image = image.resize((width, height), how)
            left, upper = (int(side / 2 - size / 2) for side in image.size)
            image = image.crop((left, upper, left + size, upper + size))
        pixels = np.asarray(image, dtype=np.float32) / 255
        pixels = (pixels - np.float32(self._settings["mean"])) / np.float32(self._settings["std"])
        return np.asarray(self._graphs["visual"].run(None, {"image": pixels.transpose(2, 0, 1)[None]})[0][0])


def _compared(
    reader: ImmichReader, embedder: Embedder, samples: list[tuple[str, str, str]], width: int
) -> dict[str, float]:
    """Returns the lowest cosine with the model's embeddings, for texts (code, language, text) and for images."""
    random = np.random.default_rng(0)
    images = []
    for height, length in _IMAGES:
        ramp = np.linspace(random.uniform(0, 200, 3), random.uniform(0, 200, 3), length)[None]
        rows = ramp + np.linspace(0, 50, height)[:, None, None]
        images.append(Image.fromarray(rows.astype(np.uint8)))
    codes, languages, texts = zip(*samples, strict=True)
    with counting_cut_texts():
        wanted = embedder.encode_text(texts, language=languages), embedder.encode_image(images)
    read = np.stack([reader.text(text, code) for code, text in zip(codes, texts, strict=True)])
    found = read, np.stack([reader.image(image) for image in images])
    pairs = {name: (own, made[:, :width]) for name, own, made in zip(("texts", "images"), wanted, found, strict=True)}
    return {name: float((own * made).sum(1).min()) for name, (own, made) in pairs.items()}
