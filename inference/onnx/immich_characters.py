"""Prepares texts of a ridge model for Immich's server: one token for the language, then one for each character.

The tokenizer applies the spelling rules that all languages share (compatible forms, invisible characters, optional
marks). The graph then applies the rules of the text's language to each character, and reads the text by the map of
that language. Rules of one language that depend on neighboring letters, such as the position of a Vietnamese tone
mark, are left out. So is the glossary, because the server cannot translate a query.
"""

import json
import sys
import unicodedata
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor

from ...processing.processing_ridge import MOST_CHARACTERS, RidgeProcessor, as_characters
from ...processing.text_inputs import UNDETERMINED
from ...processing.text_normalization import NASAL, OPTIONAL, SEQUENCES, UNSEEN, spelling_of
from ...utils.errors import InputError, LanguageTagError, ModelKindError
from ...utils.language_matching import learned_language
from ...utils.languages import normalize_language
from ..embedder import Embedder
from ..texts import SAMPLE_TEXTS

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
_NOT_CHARACTERS = {"Cn", "Cs", "Co"}  # Unicode's categories of code points that are not assigned


class CharacterTexts:
    """The tokenizer and the text graph of a ridge model.

    Args:
        stated: the language of texts whose code is not of a learned language; by default `und`.

    Attributes:
        length: the number of token ids of a text.
        routed: the learned languages that the server can name.
        stated: as above, or `und`.
        samples: (code, language, text) to compare the export with the model.
    """

    length = 1 + MOST_CHARACTERS

    def __init__(self, embedder: Embedder, stated: str | None) -> None:
        self.processor: RidgeProcessor = embedder.processor
        if self.processor.has_text_encoder:
            raise ModelKindError(
                "this model also reads texts with a text encoder, which Immich cannot: acquire the languages without "
                "--text-encoder"
            )
        # The export has no glossary.
        embedder.model.config.gloss_weights = []
        self.processor.glossaries.clear()
        languages = self.processor.languages
        self.stated = UNDETERMINED if stated is None else learned_language(normalize_language(stated), languages)
        if stated is None and not embedder.model.maps.has_shared:
            raise InputError(f"this model has no map for other languages: name one of {', '.join(languages)}")
        known = [UNDETERMINED, *languages]  # in the order of the maps
        route = {code: _language_of(code, languages) for code in _CODES.split()}
        self.routed = tuple(dict.fromkeys(tag for tag in route.values() if tag))
        self._spellings = list(dict.fromkeys(map(spelling_of, known)))
        self._languages = {spelling_of(tag): tag for tag in reversed(known)}  # one of each spelling
        self._codes = {code: known.index(tag or self.stated) for code, tag in route.items()}
        self._default = known.index(self.stated)
        self._spelling_of_map = torch.tensor([self._spellings.index(spelling_of(tag)) for tag in known])
        named = {tag: code for code, tag in route.items() if tag}
        tagged = [(code, tag) for tag, code in {self.stated: "", **named}.items()]
        texts = [" ".join(text.split()) for text in SAMPLE_TEXTS]
        self.samples = [(code, tag, text) for code, tag in tagged for text in texts if self._spells(text, tag)]

    # ---- Characters ----

    @cached_property
    def _vocabulary(self) -> dict[str, tuple[str, ...]]:
        """What each character becomes in each spelling; characters that the tokenizer replaces are left out."""
        kept = [
            character
            for character in map(chr, range(sys.maxunicode + 1))
            if unicodedata.category(character) not in _NOT_CHARACTERS
            and not character.isspace()
            and unicodedata.is_normalized("NFKC", character)
        ]
        kept += [whole for whole in SEQUENCES.values() if len(whole) == 1]
        lines = "\n".join(kept)  # no spelling rule crosses a line break
        folded = (self.processor.folded([lines], self._languages[spelling])[0] for spelling in self._spellings)
        spelled = [unicodedata.normalize("NFKC", each).lower().split("\n") for each in folded]
        return {" ": (" ",) * len(self._spellings)} | dict(zip(kept, zip(*spelled, strict=True), strict=True))

    @cached_property
    def _rows(self) -> dict[tuple[str, ...], int]:
        """The ids of tokens, from 2 on, by what they become in each spelling."""
        return {row: number for number, row in enumerate(dict.fromkeys(self._vocabulary.values()), 2)}

    @cached_property
    def _table(self) -> Tensor:
        """The code points of each token in each spelling [spellings, tokens, K], 0 where there are fewer."""
        texts = {text: number for number, text in enumerate({text for row in self._rows for text in row})}
        codes = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
        for text, number in texts.items():
            codes[number, : len(text)] = [*map(ord, text)]
        numbers = np.array([[texts[text] for text in column] for column in zip(*self._rows, strict=True)])
        # [PAD], [UNK] and the languages have no characters.
        return torch.from_numpy(np.pad(codes[numbers], ((0, 0), (2, len(self._codes)), (0, 0))))

    # ---- The graph ----

    def width(self, model: Any) -> int:
        """Returns the width of the model's embeddings."""
        return len(model.maps.mean)

    def features(self, model: Any, ids: Tensor) -> Tensor:
        """Returns the features [N, d] of token ids [N, length]."""
        first = 2 + len(self._rows)  # the first code's id
        routes = torch.tensor(list(self._codes.values()))
        code = ids[:, 0] - first
        index = torch.where(code >= 0, routes[code.clamp(min=0)], self._default)
        return model.maps(index, self.read(ids, index), None).to(model.dtype)

    def read(self, ids: Tensor, index: Tensor) -> Tensor:
        """Returns the code points [N, C] of token ids [N, L], spelled as in the language of each text, [N]."""
        codes = self._table[self._spelling_of_map[index][:, None], ids].flatten(1)
        space = torch.full_like(codes[:, :1], _SPACE)
        codes = _without_gaps(torch.cat([space, codes], 1))
        length = (codes > 0).sum(1, keepdim=True)
        codes = torch.cat([codes, torch.zeros_like(space)], 1)
        codes = torch.where(torch.arange(codes.shape[1]) == length, _SPACE, codes)
        is_doubled = (codes[:, 1:] == _SPACE) & (codes[:, :-1] == _SPACE)
        codes = torch.cat([codes[:, :1], torch.where(is_doubled, 0, codes[:, 1:])], 1)
        return _without_gaps(codes)[:, :MOST_CHARACTERS]

    # ---- Files ----

    @cached_property
    def _token_ids(self) -> dict[str, int]:
        ids = {_PAD: 0, _UNKNOWN: 1} | {each: self._rows[row] for each, row in self._vocabulary.items()}
        return ids | {code: 2 + len(self._rows) + number for number, code in enumerate(self._codes)}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Splits a text into the language's code and characters."""
        tokenizer = Tokenizer(models.WordLevel(self._token_ids, unk_token=_UNKNOWN))
        tokenizer.add_tokens([AddedToken(code, normalized=False) for code in self._codes])
        tokenizer.normalizer = _in_every_language() if self.processor.normalization else normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        return tokenizer

    def _spells(self, text: str, language: str) -> bool:
        """Whether the graph reads the same characters of a text as the model."""
        ids = torch.tensor([self.tokenizer.encode(text).ids or [0]])
        index = torch.tensor([[UNDETERMINED, *self.processor.languages].index(language)])
        found = self.read(ids, index)[0]
        wanted = as_characters(self.processor.folded([text], language)[0])[:MOST_CHARACTERS]
        return found[found > 0].tolist() == wanted

    def save(self, folder: Path) -> None:
        """Writes what the server reads."""
        written = json.loads(self.tokenizer.to_str())
        written["model"]["vocab"] = self._token_ids  # `tokenizers` writes one character for each id
        files = {"tokenizer.json": written, "tokenizer_config.json": {"pad_token": _PAD}}
        for name, content in files.items():
            (folder / name).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")


def _in_every_language() -> normalizers.Normalizer:
    """The steps of `text_normalization.folded` that depend on neighboring characters but not on the language."""
    by_length = sorted(SEQUENCES.items(), key=lambda pair: -len(pair[0]))
    return normalizers.Sequence(
        [
            normalizers.Replace("´", "'"),
            normalizers.Replace(Regex(UNSEEN.pattern), ""),
            normalizers.NFKC(),
            normalizers.Replace("İ", "i"),
            # In Lao and Thai, the tone comes before a nasal vowel.
            *(normalizers.Replace(f"\u0ecd{chr(tone)}", f"{chr(tone)}\u0ecd") for tone in range(0xEC8, 0xECD)),
            *(normalizers.Replace(f"\u0e4d{chr(tone)}", f"{chr(tone)}\u0e4d") for tone in range(0xE47, 0xE4D)),
            *(normalizers.Replace(sequence, whole) for sequence, whole in by_length),
            normalizers.NFD(),
            normalizers.Replace(Regex(f"(?i:{OPTIONAL})"), ""),
            normalizers.NFC(),
            normalizers.Replace(Regex(NASAL.pattern), "ं"),
            normalizers.Replace("եւ", "եվ"),
        ]
    )


def _language_of(code: str, languages: list[str]) -> str | None:
    """The learned language for one of the server's codes, if any."""
    language, script = code.split("_")
    tag = language if script in ("Hira", "Hang") else f"{language}-{script}"
    try:
        return learned_language(normalize_language(tag), languages)
    except LanguageTagError:
        return None


def _without_gaps(codes: Tensor) -> Tensor:
    """Moves the zeros between code points [N, C] to the end."""
    kept = codes > 0
    place = torch.where(kept, kept.cumsum(1) - 1, codes.shape[1])  # the others share a place that is cut off
    moved = torch.zeros(codes.shape[0], codes.shape[1] + 1, dtype=codes.dtype)
    return moved.scatter(1, place, codes)[:, :-1]
