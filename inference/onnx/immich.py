"""Exports a ridge model in the layout in which Immich's machine-learning server keeps its CLIP models.

    config.json                                     as open_clip's: the length of texts
    textual/model.onnx                              `text` int32 [1, length] -> embeddings [1, width]
    textual/tokenizer.json, tokenizer_config.json   read by the package tokenizers; texts are padded to the length
    visual/model.onnx                               `image` float32 [1, 3, size, size] -> embeddings [1, width]
    visual/preprocess_cfg.json                      size, interpolation, mean, std, and how images are resized

The server knows models and their widths by name: a folder replaces one of them, with narrower embeddings filled up
with zeros. To models named `nllb…` it also passes the language of a query, as a Flores code before the text:
`ukr_Cyrlкіт`. The tokenizer applies the spelling rules that all languages share, the graph the rules of the
text's language for single characters; the glossary and rules that depend on neighboring letters are left out.
"""

import json
import re
import sys
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor, nn

from ...modeling.modeling_dual_encoder import normalize
from ...processing.processing_per_language import counting_cut_texts
from ...processing.processing_ridge import MOST_CHARACTERS, RidgeProcessor, spaced
from ...processing.text_normalization import (
    BEFORE_REPETITION,
    LATIN_I,
    NASAL,
    OPTIONAL,
    SEQUENCES,
    SPACING_ACCENT,
    UNSEEN,
    spelling_of,
)
from ...utils.errors import InputError, ModelKindError
from ...utils.files import check_new, new_folder
from ...utils.language_matching import learned_language, nearest_language
from ...utils.languages import UNDETERMINED, normalize_language
from ..embedder import Embedder
from ..loading import as_output
from ..texts import SAMPLE_TEXTS
from .export import convert, drawn_image, load_exportable, write_graph, write_json
from .model import PRECISIONS, open_graph

# Widths of the embeddings of models that get the language of a query, each with a model that a folder can replace.
IMMICH_MODELS = {768: "nllb-clip-base-siglip__v1", 1152: "nllb-clip-large-siglip__v1"}
LEAST_COSINE = 0.9999
_IMAGES = 3  # drawn, to compare


@dataclass(frozen=True)
class ImmichFolder:
    """An export: its `folder`, the model of Immich that it `replaces`, the `width` of its embeddings with the zeros,
    the `language` of queries without a learned language, the lowest `cosines` with the model's embeddings of texts and
    of images, and the learned languages that the server can name (`routed`)."""

    folder: Path
    replaces: str
    width: int
    language: str
    cosines: dict[str, float]
    routed: tuple[str, ...]


def export_immich(
    source: str | Path, output: str | Path, *, language: str | None = None, precision: str = "fp32", **loading: Any
) -> ImmichFolder:
    """Writes a ridge model as a folder that Immich's machine-learning server loads as a CLIP model, in the `precision`
    `fp32`, `fp16` or `int8`. `language` is the learned language of queries in languages that the model has not
    learned, such as English; by default, the map that all its languages share reads them."""
    if precision not in PRECISIONS:
        raise InputError(f"precision={precision!r}: choose one of {', '.join(PRECISIONS)}")
    check_new(output)
    embedder = load_exportable(source, **loading)
    if not isinstance(embedder.processor, RidgeProcessor):
        raise ModelKindError(f"{source} is not a model that `babelens acquire` made: use --format onnx")
    texts, images = CharacterTexts(embedder, language), _Images(embedder.processor.image_processor)
    own = len(embedder.model.maps.mean)
    own = min(own, getattr(embedder.model.config, "truncate_dim", None) or own)
    width = next((each for each in IMMICH_MODELS if each >= own), None)
    if width is None:
        raise ModelKindError(f"embeddings have {own} values, and in Immich at most {max(IMMICH_MODELS)}")
    model = _Server(embedder.model, texts, images, width)
    with new_folder(output) as folder:
        settings = {"embed_dim": width, "text_cfg": {"context_length": texts.length}}
        write_json(folder / "config.json", settings | {"vision_cfg": {"image_size": images.size}})
        traced_text = {"text": torch.zeros(2, texts.length, dtype=torch.int32)}
        traced_image = {"image": torch.zeros(2, 3, images.size, images.size)}
        for tower, traced, name in (("text", traced_text, "textual"), ("image", traced_image, "visual")):
            (folder / name).mkdir()
            graph = folder / name / "model.onnx"
            first = graph if precision == "fp32" else graph.with_name("fp32.onnx")
            write_graph(model, tower, traced, first, fixed_length=True)
            if precision != "fp32":
                convert(first, graph, precision)
                for file in first.parent.glob("fp32.onnx*"):
                    file.unlink()
        texts.save(folder / "textual")
        write_json(folder / "visual" / "preprocess_cfg.json", images.settings)
        cosines = _lowest_cosines(folder, embedder, texts, images, own)
        if precision == "fp32" and min(cosines.values()) < LEAST_COSINE:
            raise InputError(f"Immich would compute other embeddings: cosines {cosines}; nothing was exported")
    return ImmichFolder(Path(output), IMMICH_MODELS[width], width, texts.stated, cosines, texts.routed)


class _Server(nn.Module):
    """A dual encoder that takes the inputs of the server: only padded token ids, and images of one size."""

    def __init__(self, model: nn.Module, texts: "CharacterTexts", images: "_Images", width: int) -> None:
        super().__init__()
        self.config = None  # its `truncate_dim` would cut off the zeros
        self.kept = getattr(model.config, "truncate_dim", None)
        self.model, self.texts, self.width = model, texts, width
        self.inside = slice(images.margin, images.margin + images.crop)

    def get_text_features(self, text: Tensor) -> Tensor:
        return self._padded(self.texts.features(self.model, text.long()))

    def get_image_features(self, image: Tensor) -> Tensor:
        pixels = image[:, :, self.inside, self.inside]
        found = self.model.get_image_features(pixel_values=pixels)  # type: ignore[operator]
        return self._padded(as_output(found).pooler_output)

    def _padded(self, features: Tensor) -> Tensor:
        features = normalize(features[:, : self.kept])
        return nn.functional.pad(features, (0, self.width - features.shape[-1]))


class _Images:
    """How the server prepares images: resized to a square, or the middle of them cut out."""

    def __init__(self, given: Any) -> None:
        size, crop = dict(getattr(given, "size", None) or {}), dict(getattr(given, "crop_size", None) or {})
        crops = bool(getattr(given, "do_center_crop", False))
        side: Any = size.get("shortest_edge")
        mode = "shortest"
        if side is None and size.get("height") == size.get("width"):
            side, mode = size.get("height"), "squash"
        cut = crop.get("height") if crops and crop.get("height") == crop.get("width") else None
        self.crop: Any = cut or side
        is_square = side is not None and (mode == "squash" or crops) and (cut is not None or not crops)
        if not is_square or not getattr(given, "do_resize", True) or self.crop > side:
            raise ModelKindError("Immich resizes images to a square or cuts the middle out; this model does not")
        self.size, self.margin = int(side), (int(side) - int(self.crop)) // 2
        ratio = (float(getattr(given, "rescale_factor", 1 / 255)) if given.do_rescale else 1.0) * 255
        mean, std = (given.image_mean, given.image_std) if given.do_normalize else ([0.0] * 3, [1.0] * 3)
        self.settings: dict[str, Any] = {  # the content of `preprocess_cfg.json`; the server divides by 255
            "size": [self.size, self.size],
            "mode": "RGB",
            "mean": [float(each) / ratio for each in mean],
            "std": [float(each) / ratio for each in std],
            "interpolation": Image.Resampling(int(given.resample)).name.lower(),
            "resize_mode": mode,
            "fill_color": 0,
        }


def _lowest_cosines(
    folder: Path, embedder: Embedder, texts: "CharacterTexts", images: "_Images", width: int
) -> dict[str, float]:
    """The lowest cosines of a folder's embeddings, by the steps of the server, with the model's. Images have the size
    that the server gives them."""
    tokenizer = Tokenizer.from_file(str(folder / "textual" / "tokenizer.json"))
    tokenizer.enable_padding(length=texts.length, pad_token=_PAD)
    tokenizer.enable_truncation(max_length=texts.length)
    textual, visual = (open_graph(folder / name / "model.onnx") for name in ("textual", "visual"))
    random = np.random.default_rng(0)
    drawn = [drawn_image(random, images.size, images.size) for _ in range(_IMAGES)]
    codes, languages, samples = zip(*texts.samples, strict=True)
    with counting_cut_texts():
        own = {"texts": embedder.encode_text(samples, language=languages), "images": embedder.encode_image(drawn)}
    ids = [tokenizer.encode(code + text).ids for code, text in zip(codes, samples, strict=True)]
    mean, std = (np.float32(images.settings[name]) for name in ("mean", "std"))
    pixels = [((np.asarray(image, np.float32) / 255 - mean) / std).transpose(2, 0, 1) for image in drawn]
    found = {
        "texts": [textual.run(None, {"text": np.array([each], np.int32)})[0][0] for each in ids],
        "images": [visual.run(None, {"image": each[None]})[0][0] for each in pixels],
    }
    return {name: float((own[name] * np.stack(found[name])[:, :width]).sum(1).min()) for name in own}


# ---- Texts: one token for the language, then one for each character ----

# The codes that the server puts before texts, one for each language of its interface.
_CODES = (
    "afr_Latn arb_Arab azj_Latn bel_Cyrl bul_Cyrl cat_Latn ces_Latn dan_Latn deu_Latn ell_Grek eng_Latn spa_Latn "
    "est_Latn pes_Arab fin_Latn fra_Latn heb_Hebr hin_Deva hrv_Latn hun_Latn hye_Armn ind_Latn ita_Latn jpn_Hira "
    "kmr_Latn kor_Hang ltz_Latn lit_Latn lav_Latn mkd_Cyrl khk_Cyrl mar_Deva zsm_Latn nob_Latn nno_Latn nld_Latn "
    "pol_Latn por_Latn ron_Latn rus_Cyrl slk_Latn slv_Latn srp_Cyrl swe_Latn tam_Taml tel_Telu tha_Thai tur_Latn "
    "ukr_Cyrl urd_Arab vie_Latn zho_Hans zho_Hant"
)
_PAD, _UNKNOWN = "[PAD]", "[UNK]"
_SPACE = ord(" ")
# Characters that Vietnamese and Catalan spell in another way together (`text_normalization`); each is one token.
_TOGETHER = [
    unicodedata.normalize("NFC", f"{first}{tone}{second}")
    for lower, last in ("oa", "oe", "uy")
    for first, second in ((lower, last), (lower.upper(), last), (lower.upper(), last.upper()))
    for tone in "\u0300\u0301\u0303\u0309\u0323"
] + [f"{letter}{sign}{letter}" for letter in "lL" for sign in ".-"]
_BETWEEN = "\ue000"  # characters: no spelling rule knows it, and it is not one of them
_NOT_CHARACTERS = {"Cn", "Cs", "Co"}  # Unicode's categories of code points that are not assigned


class CharacterTexts:
    """The tokenizer and the text graph of a ridge model; texts of no learned language are in `stated` (`und`)."""

    length = 1 + MOST_CHARACTERS

    def __init__(self, embedder: Embedder, stated: str | None) -> None:
        self.processor: RidgeProcessor = embedder.processor
        if self.processor.has_text_encoder:
            raise ModelKindError("Immich cannot run a text encoder: acquire the languages without --text-encoder")
        embedder.model.config.gloss_weights = []  # the export has no glossary
        self.processor.glossaries.clear()
        languages = self.processor.languages
        self.stated = UNDETERMINED if stated is None else learned_language(normalize_language(stated), languages)
        if stated is None and not embedder.model.maps.has_shared:
            raise InputError(f"this model has no map for other languages: name one of {', '.join(languages)}")
        known = [UNDETERMINED, *languages]  # in the order of the maps
        route = {code: nearest_language(normalize_language(code), tuple(languages)) for code in _CODES.split()}
        self.routed = tuple(dict.fromkeys(tag for tag in route.values() if tag))
        spellings = {spelling_of(tag): tag for tag in known}  # with a language of each
        self._codes = {code: known.index(tag or self.stated) for code, tag in route.items()}
        self._default = known.index(self.stated)
        self._spelling_of_map = torch.tensor([[*spellings].index(spelling_of(tag)) for tag in known])
        self._token_ids, self._table = self._characters(spellings.values())
        self.tokenizer = Tokenizer(models.WordLevel(self._token_ids, unk_token=_UNKNOWN))
        self.tokenizer.add_tokens([AddedToken(code, normalized=False) for code in self._codes])
        self.tokenizer.normalizer = _in_every_language() if self.processor.normalization else normalizers.NFKC()
        self.tokenizer.pre_tokenizer = pre_tokenizers.Split(
            Regex("|".join([*map(re.escape, _TOGETHER), r"[\s\S]"])), "isolated"
        )
        named = {tag: code for code, tag in route.items() if tag}
        tagged = [(code, tag) for tag, code in {self.stated: "", **named}.items()]
        texts = [" ".join(text.split()) for text in SAMPLE_TEXTS]
        self.samples = [(code, tag, text) for code, tag in tagged for text in texts if self._spells(text, tag)]

    def _characters(self, languages: Iterable[str]) -> tuple[dict[str, int], Tensor]:
        """Token ids, of a character (or those `_TOGETHER`) that the tokenizer does not replace, with all of the same
        spellings, or of a language's code; and their code points in each spelling [languages, tokens, K], 0 where
        there are fewer."""
        kept = [
            character
            for character in map(chr, range(sys.maxunicode + 1))
            if unicodedata.category(character) not in _NOT_CHARACTERS
            and not character.isspace()
            and unicodedata.is_normalized("NFKC", character)
        ]
        kept += [whole for whole in SEQUENCES.values() if len(whole) == 1] + _TOGETHER
        lines = _BETWEEN.join(kept)
        folded = (self.processor.folded([lines], language)[0] for language in languages)
        spelled = [unicodedata.normalize("NFKC", each).lower().split(_BETWEEN) for each in folded]
        vocabulary = {" ": (" ",) * len(spelled)} | dict(zip(kept, zip(*spelled, strict=True), strict=True))
        rows = {row: number for number, row in enumerate(dict.fromkeys(vocabulary.values()), 2)}
        ids = {_PAD: 0, _UNKNOWN: 1} | {each: rows[row] for each, row in vocabulary.items()}
        ids |= {code: 2 + len(rows) + number for number, code in enumerate(self._codes)}
        texts = {text: number for number, text in enumerate({text for row in rows for text in row})}
        codes = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
        for text, number in texts.items():
            codes[number, : len(text)] = [*map(ord, text)]
        numbers = np.array([[texts[text] for text in column] for column in zip(*rows, strict=True)])
        # [PAD], [UNK] and the languages have no characters.
        return ids, torch.from_numpy(np.pad(codes[numbers], ((0, 0), (2, len(self._codes)), (0, 0))))

    def features(self, model: Any, ids: Tensor) -> Tensor:
        """Returns the features [N, d] of token ids [N, length]."""
        routes = torch.tensor(list(self._codes.values()))
        code = ids[:, 0] - self._token_ids[next(iter(self._codes))]
        index = torch.where(code >= 0, routes[code.clamp(min=0)], self._default)
        return model.maps(index, self.read(ids, index), None).to(model.dtype)

    def read(self, ids: Tensor, index: Tensor) -> Tensor:
        """Returns the code points [N, C] of token ids [N, L], spelled as in the language of each text, [N]."""
        codes = self._table[self._spelling_of_map[index][:, None], ids].flatten(1)
        space = torch.full_like(codes[:, :1], _SPACE)
        codes = _without_gaps(torch.cat([space, codes, space], 1))
        is_doubled = (codes[:, 1:] == _SPACE) & (codes[:, :-1] == _SPACE)
        codes = torch.cat([codes[:, :1], torch.where(is_doubled, 0, codes[:, 1:])], 1)
        return _without_gaps(codes)[:, :MOST_CHARACTERS]

    def _spells(self, text: str, language: str) -> bool:
        """Returns whether the graph reads the same characters of a text as the model."""
        ids = torch.tensor([self.tokenizer.encode(text).ids or [0]])
        index = torch.tensor([[UNDETERMINED, *self.processor.languages].index(language)])
        found = self.read(ids, index)[0]
        wanted = spaced(self.processor.folded([text], language)[0])[:MOST_CHARACTERS]
        return found[found > 0].tolist() == list(map(ord, wanted))

    def save(self, folder: Path) -> None:
        written = json.loads(self.tokenizer.to_str())
        written["model"]["vocab"] = self._token_ids  # `tokenizers` writes one character for each id
        write_json(folder / "tokenizer.json", written)
        write_json(folder / "tokenizer_config.json", {"pad_token": _PAD})


def _in_every_language() -> normalizers.Normalizer:
    """The steps of `text_normalization.folded` that depend on neighboring characters but not on the language."""
    by_length = sorted(SEQUENCES.items(), key=lambda pair: -len(pair[0]))
    return normalizers.Sequence(
        [
            normalizers.Replace(Regex(SPACING_ACCENT.pattern), "'"),
            normalizers.Replace(Regex(UNSEEN.pattern), ""),
            normalizers.NFKC(),
            normalizers.Replace("İ", "i"),
            # In Lao and Thai, the tone comes before a nasal vowel.
            *(normalizers.Replace(f"\u0ecd{chr(tone)}", f"{chr(tone)}\u0ecd") for tone in range(0xEC8, 0xECD)),
            *(normalizers.Replace(f"\u0e4d{chr(tone)}", f"{chr(tone)}\u0e4d") for tone in range(0xE47, 0xE4D)),
            *(normalizers.Replace(sequence, whole) for sequence, whole in by_length),
            normalizers.Replace(Regex(f"(?i:{LATIN_I.pattern})"), "і"),
            normalizers.Replace(Regex(BEFORE_REPETITION.pattern), ""),
            normalizers.NFD(),
            normalizers.Replace(Regex(f"(?i:{OPTIONAL})"), ""),
            normalizers.NFC(),
            normalizers.Replace(Regex(NASAL.pattern), "ं"),
            normalizers.Replace("եւ", "եվ"),
        ]
    )


def _without_gaps(codes: Tensor) -> Tensor:
    """Moves the zeros between code points [N, C] to the end."""
    kept = codes > 0
    place = torch.where(kept, kept.cumsum(1) - 1, codes.shape[1])  # the others share a place that is cut off
    moved = torch.zeros(codes.shape[0], codes.shape[1] + 1, dtype=codes.dtype)
    return moved.scatter(1, place, codes)[:, :-1]
