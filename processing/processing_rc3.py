"""RC3's processor (Zhou et al. 2023, section 2.2; for two images, the appendix on MaRVL), and its tokenizer:
mBART-50's or one trained here, with [CLS], [SEP'] and the languages. The model adds the visual tokens between [CLS]
and [BOS]."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import BatchFeature, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..configuration.configuration_two_tower import check_probabilities
from ..utils.errors import InputError, LanguageTagError
from ..utils.language_matching import did_you_mean_language, language_id
from ..utils.languages import normalize_language, normalize_languages
from .image_processing_mural import MuralImageProcessor
from .images import as_images
from .processing_per_language import PerLanguageProcessor, TextLayout, texts_and_languages

IGNORED_LABEL = -100
CLS_TOKEN = "[CLS]"  # mBART's own, <s>, begins the text
IMAGE_SEPARATOR_TOKEN = "[SEP']"
_MBART_LANGUAGE_CODE = re.compile(r"([a-z]{2,3})_[A-Z]{2}")  # de_DE, fr_XX
_NEEDED_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "mask_token")


def check_tokens(tokenizer: Any, tokens: Iterable[str]) -> None:
    vocabulary = tokenizer.get_vocab()
    missing = [name for name in _NEEDED_TOKENS if getattr(tokenizer, name, None) is None]
    missing += [f"token {token}" for token in tokens if token not in vocabulary]
    if missing:
        raise InputError(f"the tokenizer has no {', '.join(missing)}")


def mbart_languages(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """Returns mBART's codes by language tag: `de` and `de-DE` both map to de_DE, and only `fr` maps to fr_XX."""
    codes: dict[str, str] = {}
    for token in map(str, tokenizer.added_tokens_decoder.values()):
        if match := _MBART_LANGUAGE_CODE.fullmatch(token):
            codes[normalize_language(match[1])] = token
            if not token.endswith("_XX"):
                codes[normalize_language(token)] = token
    return codes


def with_special_tokens(tokenizer: PreTrainedTokenizerBase, tokens: list[str]) -> PreTrainedTokenizerFast:
    """Returns a tokenizer with the same pieces, followed by these special tokens; it adds only [BOS] to texts."""
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise InputError(f"{type(tokenizer).__name__} is not a fast tokenizer")
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    backend.add_special_tokens(tokens)
    own = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=tokenizer.bos_token or tokenizer.cls_token,  # in mBART's tokenizer, <s> is the cls_token
        **{name: getattr(tokenizer, name) for name in _NEEDED_TOKENS if name != "bos_token"},
        cls_token=CLS_TOKEN,
        sep_token=tokenizer.eos_token,
        additional_special_tokens=[token for token in tokens if token != CLS_TOKEN],
        model_max_length=tokenizer.model_max_length,
        model_input_names=["input_ids", "attention_mask"],
    )
    check_tokens(own, tokens)
    # mBART's tokenizer would also add the language code that was last set on it.
    begin = (own.bos_token, own.bos_token_id)
    own.backend_tokenizer.post_processor = TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin])
    return own


_SPACE = "▁"
# Thai, Lao, Burmese, Khmer; Han, kana and bopomofo with extensions and punctuation; not Korean, which uses spaces.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3001-\u30ff\u3100-\u312f\u31a0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff01-\uff9f\U0001b000-\U0001b16f\U00020000-\U000323af]"
)
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_NO_WORD = -1


class WordMasking:
    """Masks whole words, for masked conditional language modeling (section 2.3.1: 15 % of the words of a caption).

    A word is the text between spaces (`▁`), with its punctuation. In scripts without spaces, each piece is a word:
    SentencePiece finds pieces of about that length. A piece that begins with a vowel sign, and the bytes of an unknown
    character, belong to the piece before them; a lone `▁` belongs to the piece after it.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, special_tokens: list[str]) -> None:
        pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        special = {*tokenizer.all_special_tokens, *special_tokens} - {tokenizer.unk_token}
        self.mask_token_id = tokenizer.mask_token_id
        # Properties of each piece, bool [V].
        self._is_special = torch.tensor([piece in special for piece in pieces])
        self._is_space = torch.tensor([piece == _SPACE for piece in pieces])
        self._after_space = torch.tensor([piece.startswith(_SPACE) for piece in pieces])
        firsts = [piece.removeprefix(_SPACE)[:1] for piece in pieces]
        self._begins_unspaced = torch.tensor([bool(_UNSPACED.match(own)) and not _continues(own) for own in firsts])
        self._ends_unspaced = torch.tensor([bool(_UNSPACED.match(piece[-1:])) for piece in pieces])
        self._continues = torch.tensor([_continues(piece) for piece in pieces])
        if not self._after_space.any():
            raise InputError(f"words cannot be found: no piece of the vocabulary begins with {_SPACE!r}")

    def words(self, input_ids: Tensor) -> Tensor:
        """Returns the index of the word of each piece; -1 for special tokens, including masks and padding. [N, T] ->
        [N, T]"""
        special = self._is_special[input_ids]
        previous = input_ids.roll(1, dims=-1)
        first = self._is_special[previous]
        first[:, 0] = True
        after_unspaced = self._ends_unspaced[previous] & ~self._continues[input_ids]
        begins = first | self._after_space[input_ids]
        begins |= (self._begins_unspaced[input_ids] | after_unspaced) & ~self._is_space[previous]
        indices = (begins & ~special).cumsum(-1) - 1
        return indices.masked_fill(special, _NO_WORD)

    def __call__(
        self, input_ids: Tensor, probability: float, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Masks each word of texts [N, T] with a given probability, but leaves one of each text. Returns the masked
        ids, and labels [N, T]: the original ids of masked pieces, -100 elsewhere."""
        check_probabilities(probability=probability)
        words = self.words(input_ids)
        counts = words.amax(-1, keepdim=True) + 1  # [N, 1]
        drawn = torch.rand(words.shape, generator=generator)  # [N, T]: the first entries are the words' random numbers
        drawn = drawn.masked_fill(torch.arange(words.shape[1]) >= counts, -1.0)
        # The word with the largest random number would be masked last, so it is the one that is always left.
        chosen = (drawn < probability).scatter(-1, drawn.argmax(-1, keepdim=True), False)
        masked = chosen.gather(-1, words.clamp(min=0)) & (words != _NO_WORD)
        return input_ids.masked_fill(masked, self.mask_token_id), input_ids.masked_fill(~masked, -100)


def _continues(piece: str) -> bool:
    """Returns whether a piece can never begin a word: a byte, or a sign on the preceding letter."""
    return bool(_BYTE.fullmatch(piece)) or unicodedata.category(piece[:1] or " ").startswith("M")


class Rc3Processor(PerLanguageProcessor):
    """Prepares texts, images, regions and target texts (decoder labels) for every RC3 model.

        input_ids, attention_mask                  [N, T]  `[BOS] words [LANG]`
        region_features                            [N, R, region_size] or, for two images, [N, 2, R, region_size]
        region_mask                                bool [N, R] or [N, 2, R]
        pixel_values                               [N, 3, H, W] or [N, 2, 3, H, W]
        pixel_mask                                 bool [N] or [N, 2]; left out if no image is missing
        decoder_input_ids, decoder_attention_mask  [N, U]  `[LANG] words`
        labels                                     [N, U]  `words </s>`, -100 at padding

    Args:
        tokenizer: a SentencePiece-like fast tokenizer with `[CLS]`, `[SEP']` and a token for each of `languages`,
            which `from_mbart_tokenizer` and `new` add.
        max_text_length: tokens at which texts and target texts are cut; 80, the longest in the paper's tasks (table
            6).

    Examples:
        >>> processor = Rc3Processor.from_mbart_tokenizer(mbart_tokenizer, ["en", "de", "fr"])
        >>> inputs = processor(images=images, text=captions, language="de", return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)
    least_length = 3  # [BOS], a word and the language

    def __init__(
        self,
        image_processor: Any,
        tokenizer: Any,
        languages: Sequence[str],
        language_tokens: Sequence[str],
        max_text_length: int = 80,
        region_size: int = 2048,
        max_regions: int = 36,
    ) -> None:
        super().__init__(image_processor, tokenizer)
        self.languages = normalize_languages(list(languages))
        self.language_tokens = list(language_tokens)
        if not len(self.languages) == len(languages) == len(set(self.language_tokens)) == len(self.language_tokens):
            raise InputError(f"each of {list(languages)} needs a token of its own, not {self.language_tokens}")
        check_tokens(tokenizer, [CLS_TOKEN, IMAGE_SEPARATOR_TOKEN, *self.language_tokens])
        self.max_text_length, self.region_size, self.max_regions = max_text_length, region_size, max_regions

    @classmethod
    def from_mbart_tokenizer(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        languages: Sequence[str],
        image_processor: Any | None = None,
        **settings: Any,
    ) -> Self:
        """Makes the processor of an mBART-50 or a trimmed one, whose tokens keep their ids; [CLS] and [SEP'] come
        after them. Both `de` and `de-DE` map to `de_DE`. By default, images become squares of 224 pixels."""
        tags, codes = normalize_languages(list(languages)), mbart_languages(tokenizer)
        for tag in tags:
            if tag not in codes:
                raise LanguageTagError(f"mBART has no code for {tag!r}{did_you_mean_language(tag, codes)}")
        return cls._with_tokens(tokenizer, {tag: codes[tag] for tag in tags}, image_processor, settings)

    @classmethod
    def new(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        languages: Sequence[str],
        image_processor: Any | None = None,
        **settings: Any,
    ) -> Self:
        """Makes the processor of a vocabulary such as the one from `train_bpe`: [CLS], [SEP'] and a token such as
        `[de]` for each language are appended to it. Arguments are as in `from_mbart_tokenizer`."""
        tokens = {tag: f"[{tag}]" for tag in normalize_languages(list(languages))}
        return cls._with_tokens(tokenizer, tokens, image_processor, settings)

    @classmethod
    def _with_tokens(cls, tokenizer: Any, tokens: dict[str, str], image_processor: Any, settings: dict) -> Self:
        own = with_special_tokens(tokenizer, [CLS_TOKEN, IMAGE_SEPARATOR_TOKEN, *tokens.values()])
        return cls(image_processor or square_image_processor(), own, [*tokens], [*tokens.values()], **settings)

    def language_token_id(self, language: str) -> int:
        token = self.language_tokens[language_id(language, self.languages)]
        return int(self.tokenizer.convert_tokens_to_ids(token))

    def config_fields(self) -> dict[str, Any]:
        names = ("bos_token_id", "eos_token_id", "pad_token_id", "mask_token_id")
        return {name: getattr(self.tokenizer, name) for name in names} | {
            "vocab_size": len(self.tokenizer),
            "cls_token_id": self.tokenizer.convert_tokens_to_ids(CLS_TOKEN),
            "image_separator_token_id": self.tokenizer.convert_tokens_to_ids(IMAGE_SEPARATOR_TOKEN),
            "languages": self.languages,
            "language_token_ids": [self.language_token_id(language) for language in self.languages],
            "region_size": self.region_size,
            "max_regions": self.max_regions,
        }

    def __call__(
        self,
        images: Any = None,
        text: str | list[str] | None = None,
        language: str | list[str] | None = None,
        regions: Any = None,
        text_target: str | list[str] | None = None,
        target_language: str | list[str] | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        """Prepares texts, images, regions and target texts (decoder labels); languages and `kwargs` are as in
        `TextImageProcessor`.

        Args:
            images: an image or a list of them (see `as_images`), None for a missing image, or pairs for two images.
            regions: features [R, region_size], or a list of them (arrays, tensors); None and pairs as in `images`.
        """
        language, text_settings, image_settings = self.read_settings(language, kwargs)
        layout = TextLayout.of(text_settings)
        inputs: dict[str, Any] = {}
        shapes: dict[str, tuple[int, ...]] = {}  # [N], or [N, 2] of pairs
        for names, given, tags, encode in (
            (("text", "language"), text, language, self.encode_texts),
            (("text_target", "target_language"), text_target, target_language, self._encode_targets),
        ):
            if given is not None:
                texts, languages = texts_and_languages(given, tags, names)
                inputs |= encode(texts, languages, layout)
                shapes[names[0]] = (len(texts),)
            elif tags is not None:
                raise InputError(f"{names[1]}= was given without {names[0]}=")
        if images is not None:
            flat, shapes["images"] = _flat(images, "images", dimensions=3)
            inputs |= self._pixels(flat, shapes["images"], image_settings)
        if regions is not None:
            features, shapes["regions"] = _flat(regions, "regions", dimensions=2)
            inputs |= self._regions(features, shapes["regions"])
        if not inputs:
            raise InputError("give text=, text_target=, images= or regions=")
        if len({shape[0] for shape in shapes.values()}) > 1:
            counts = ", ".join(f"{shape[0]} {name}" for name, shape in shapes.items())
            raise InputError(f"the numbers of inputs differ: {counts}")
        if len({shapes[name][1:] for name in ("images", "regions") if name in shapes}) > 1:
            raise InputError("images= are pairs and regions= are not, or vice versa: give both for the same images")
        return BatchFeature(inputs, tensor_type=text_settings.get("return_tensors"))

    def encode_texts(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, Any]:
        ends = [self.language_token_id(language) for language in languages]
        words = layout.tokens(self.tokenizer, texts, room=2, add_special_tokens=False)
        rows = [[self.tokenizer.bos_token_id, *ids, end] for ids, end in zip(words, ends, strict=True)]
        return {"input_ids": layout.padded(rows, [self.tokenizer.pad_token_id] * len(rows))} | layout.mask(rows)

    def _encode_targets(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, Any]:
        begins = [self.language_token_id(language) for language in languages]
        words = layout.tokens(self.tokenizer, texts, room=1, add_special_tokens=False)
        rows = [[begin, *ids] for ids, begin in zip(words, begins, strict=True)]
        labels = [[*ids, self.tokenizer.eos_token_id] for ids in words]
        return {
            "decoder_input_ids": layout.padded(rows, [self.tokenizer.pad_token_id] * len(rows)),
            **layout.mask(rows, "decoder_attention_mask"),
            "labels": layout.padded(labels, [IGNORED_LABEL] * len(rows)),
        }

    def _pixels(self, images: list[Any], shape: tuple[int, ...], settings: dict[str, Any]) -> dict[str, np.ndarray]:
        mask = np.array([image is not None for image in images])
        if not mask.any():
            return {}
        there = [image for image in images if image is not None]
        read = self.image_processor(as_images(there), **settings | {"return_tensors": "np"})
        found = np.asarray(read["pixel_values"])  # [n, 3, H, W]
        pixels = np.zeros((len(images), *found.shape[1:]), found.dtype)
        pixels[mask] = found
        inputs = {"pixel_values": pixels.reshape(*shape, *found.shape[1:])}
        return inputs if mask.all() else inputs | {"pixel_mask": mask.reshape(shape)}

    def _regions(self, regions: list[Any], shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        """Returns the regions of images, each features [R, region_size] or None, padded to the largest R."""
        none = np.zeros((0, self.region_size), np.float32)
        checked = [
            none if given is None else check_regions(given, self.region_size, self.max_regions, f"image {index}")
            for index, given in enumerate(regions)
        ]
        counts = np.array([len(own) for own in checked])
        if not counts.any():
            return {}
        features = np.stack([np.pad(own, ((0, counts.max() - len(own)), (0, 0))) for own in checked])
        mask = np.arange(counts.max()) < counts[:, None]
        return {
            "region_features": features.reshape(*shape, *features.shape[1:]),
            "region_mask": mask.reshape(*shape, -1),
        }

    @cached_property
    def _masking(self) -> WordMasking:
        return WordMasking(self.tokenizer, [CLS_TOKEN, IMAGE_SEPARATOR_TOKEN, *self.language_tokens])

    def mask_words(
        self, encoding: Any, probability: float = 0.15, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._masking(torch.as_tensor(encoding["input_ids"]), probability, generator)

    def batch_decode(self, sequences: Any, skip_special_tokens: bool = True, **kwargs: Any) -> list[str]:
        return super().batch_decode(sequences, skip_special_tokens=skip_special_tokens, **kwargs)

    def decode(self, token_ids: Any, skip_special_tokens: bool = True, **kwargs: Any) -> str:
        return super().decode(token_ids, skip_special_tokens=skip_special_tokens, **kwargs)

    @property
    def model_input_names(self) -> list[str]:
        encoder = ["input_ids", "attention_mask", "region_features", "region_mask", "pixel_values", "pixel_mask"]
        return [*encoder, "decoder_input_ids", "decoder_attention_mask", "labels"]


def square_image_processor(size: int = 224) -> MuralImageProcessor:
    """Makes squares of `size` pixels, with values in [-1, 1], which the paper does not state."""
    square = {"height": size, "width": size}
    return MuralImageProcessor(size=square, crop_size=square)


def _flat(given: Any, name: str, dimensions: int) -> tuple[list[Any], tuple[int, ...]]:
    """Returns the items of an argument as a flat list, and their arrangement: [N], or [N, 2] for pairs."""
    if not isinstance(given, list | tuple):
        given = list(given) if getattr(given, "ndim", 0) > dimensions else [given]
    if not given:
        raise InputError(f"{name} is an empty list")
    if all(len(entry) < 2 for entry in given if isinstance(entry, list | tuple)):
        # One item for each text, or a list of one item or none, as transformers nests them.
        alone = [entry if not isinstance(entry, list | tuple) else next(iter(entry), None) for entry in given]
        return alone, (len(given),)
    flat: list[Any] = []
    for index, entry in enumerate(given):
        pair = (None, None) if entry is None else entry
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise InputError(f"{name}[{index}] is not a pair, but others are: give two images for each text, or None")
        flat += pair
    return flat, (len(given), 2)


def check_regions(features: Any, region_size: int, max_regions: int, called: str) -> np.ndarray:
    """Returns the features of one image, `called` so in errors, as float32 [R, region_size]."""
    if hasattr(features, "numpy"):  # a tensor, on any device, with or without a gradient
        features = features.detach().float().cpu().numpy()
    array = np.asarray(features, dtype=np.float32)
    if array.ndim != 2 or array.shape[1] != region_size or not 1 <= len(array) <= max_regions:
        raise InputError(
            f"{called}: features of the shape {list(array.shape)}; the model reads 1 to {max_regions} regions of "
            f"width {region_size}, and None for an image without regions"
        )
    if not np.isfinite(array).all():
        raise InputError(f"{called}: the features are not finite")
    return array
