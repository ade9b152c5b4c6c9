"""Teaches a model new languages in closed form (`trainers/ridge.py`), from translations, dictionaries, captioned
images or native texts. The embeddings of images, of texts in the native language, and of languages that the base
acquired earlier stay bitwise the same."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from pyarrow import parquet
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoTokenizer,
    CLIPImageProcessorPil,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import cached_file

from .configuration.configuration_mla import VectorSpaceConfig
from .data.batching.views import images_of, translation_pairs
from .data.corpus.columns import check_columns
from .data.corpus.corpus import captions_of, enumeration, evenly_spaced, languages_of
from .data.corpus.files import read_lines
from .data.corpus.loading import load_captions
from .data.emoji.names import EmojiNames, NameTranslations, Pairs, names_for, names_of_emoji
from .data.readers.bitext import read_translations
from .inference.embedder import Embedder, default_device
from .inference.loading import load_dual_encoder, load_sentence_transformer, needs_sentence_transformers
from .model_cards.base_models import (
    EARLIER,
    OTHER,
    TEXT_TOWER,
    UNKNOWN,
    BaseModel,
    base_model_facts,
    check_hub_license,
    check_weights_license,
)
from .model_cards.cards import ACQUIRED, RidgeCardFacts
from .model_folders import atomic_directory, check_free
from .modeling.modeling_mla import MlaPreTrainedModel
from .modeling.modeling_ridge import RidgeModel, VectorSpaceModel
from .modeling.tower_loading import declared_pooling, load_text_encoder
from .processing.processing_dual_encoder import call_tokenizer
from .processing.processing_ridge import RidgeProcessor
from .trainers.arguments import fastest_precision
from .trainers.ridge import Captions, learn, learn_unstated
from .trainers.ridge_solving import LanguageResult
from .utils.errors import CorpusError, InputError, ModelKindError, did_you_mean, first_line, suggestion
from .utils.language_matching import counts_as
from .utils.languages import UNDETERMINED, normalize_language
from .utils.pretrained import explained, load_processor, located

logger = logging.getLogger(__name__)

_EXAMPLE = "name one, as in text_encoder='intfloat/multilingual-e5-small'"
Sources = str | Mapping[str, str | Sequence[tuple[str, str]]]


def teach(
    base: str,
    sources: Sources = "",
    text_encoder: str | None = None,
    *,
    output: str | Path | None = None,
    **options: Any,
) -> RidgeModel:
    """Teaches a model new languages, and returns the new model.

    Args:
        base: folder or Hub id of a dual encoder or of a sentence-transformers model, or a table of vectors.
        sources: translations for each language: a file or data set that `read_translations` reads, or pairs (text,
            native text). A single file teaches all languages in it. A language with a dictionary or captions needs
            none: `{"mi": []}`, or no sources at all for every language of the dictionary and captions.
        text_encoder: folder or Hub id of a multilingual text encoder, whose features are added to the characters.
        output: a new folder for the model, its processor and its card.
        options: other arguments of `Acquisition`, which also shows how well each language was learned.

    Examples:
        >>> teach("openai/clip-vit-base-patch32", {"uk": "en-uk.tsv"}, output="clip-uk")
        >>> teach("clip-uk", {"mi": [("he ngeru", "a cat"), …]}, output="clip-uk-mi")
        >>> teach("clip-uk-mi", dictionary="en-qu.tsv", output="clip-uk-mi-qu")
    """
    acquisition = Acquisition(base, sources, text_encoder, **options)
    acquisition.load()
    acquisition.learn()
    if output is not None:
        acquisition.save(output)
    return acquisition.model


@dataclass
class Acquisition:
    """Teaches a model new languages in three steps: `load`, `learn` and `save`.

    Args:
        base, sources, text_encoder: as in `teach`.
        texts: instead of `sources`, a file with one native text per line, or native captions that `load_captions`
            reads. The model then reads every language that the text encoder reads.
        dictionary: word translations that `read_translations` reads: in the new languages, or with `texts` in any.
        captions: images with captions in the new languages, which `load_captions` reads.
        text_prompt: before every text that the text encoder reads.
        native_language: of a plain base; English by default.
        names: whether to learn from CLDR's emoji names too.
        license: of the result, as a Hub identifier.
    """

    base: str
    sources: Sources = ""
    text_encoder: str | None = None
    texts: str | None = None
    dictionary: str | None = None
    captions: str | None = None
    text_prompt: str | None = None
    native_language: str | None = None
    names: bool = True
    license: str = "other"
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        self.earlier: RidgeCardFacts | None = None  # only for a base that has acquired languages
        self.earlier_glossaries: set[str] = set()  # languages whose glossary comes with the base
        self.native = normalize_language(self.native_language or "en")
        self.code = {"trust_remote_code": self.trust_remote_code}
        self.languages: list[str] = []
        self._corpora: dict[str, Dataset] = {}
        check_hub_license(self.license)
        if self.text_encoder is None and self.text_prompt is not None:
            raise InputError(f"text_prompt={self.text_prompt!r} needs a text encoder: {_EXAMPLE}")
        if self.texts is not None:
            self.languages = [UNDETERMINED]
            return
        if isinstance(self.sources, str):
            corpora = [self._read(file) for file in (self.sources, self.dictionary) if file][:1]
            corpora += [self._captions] if self.captions and not self.sources else []
            present = dict.fromkeys(tag for corpus in corpora for tag in languages_of(corpus) if tag != self.native)
            self.sources = dict.fromkeys(present, self.sources)
        self.sources = {normalize_language(tag): source for tag, source in self.sources.items()}
        self.languages = list(self.sources)

    # ---- The data ----

    def _read(self, source: str) -> Dataset:
        """Reads translations, and names their languages as the caller does: `en` for `en-US`."""
        if source not in self._corpora:
            asked = [self.native, *self.languages]
            given = self.sources if isinstance(self.sources, Mapping) and source != self.dictionary else {}
            own = [tag for tag in asked if given.get(tag, source) == source] if self.languages else None
            try:
                corpus = read_translations(source, languages=own, on_incomplete="skip")
            except CorpusError:  # it lacks some of the languages
                corpus = read_translations(source, on_incomplete="skip")
            known = {tag: counts_as(tag, asked) or tag for tag in languages_of(corpus)}
            if any(tag != name for tag, name in known.items()):
                renamed = list(dict.fromkeys(known.values()))
                corpus = read_translations(source, languages=renamed, on_incomplete="skip")
            self._corpora[source] = corpus
        return self._corpora[source]

    @cached_property
    def _captions(self) -> Dataset:
        """Images with captions, which are in the language to learn if they state none."""
        only = self.languages[0] if len(self.languages) == 1 else None
        return load_captions(str(self.captions), language=only, on_bad_image="skip")

    @cached_property
    def captioned(self) -> dict[str, Captions]:
        """The captions of each language, and the embedding of each one's image."""
        if self.captions is None:
            return {}
        names = {tag: counts_as(tag, self.languages) for tag in languages_of(self._captions)}
        rows = [
            (names[caption["language"]], caption["text"], row)
            for row, captions in enumerate(captions_of(self._captions).to_pylist())
            for caption in captions
        ]
        used = list(dict.fromkeys(row for tag, _, row in rows if tag is not None))
        if not used:
            wanted, present = enumeration(self.languages), enumeration(list(names))
            raise CorpusError(f"{self.captions} has captions in {present}, and none in {wanted}")
        embedder = Embedder(self.model.native_model, self.processor.native)
        images = torch.from_numpy(embedder.encode_image(images_of(self._captions.select(used))))
        place = {row: index for index, row in enumerate(used)}
        found: dict[str, Captions] = {}
        for tag in self.languages:
            if own := [(text, place[row]) for name, text, row in rows if name == tag]:
                found[tag] = [text for text, _ in own], images[[each for _, each in own]]
        return found

    @cached_property
    def pairs(self) -> dict[str, Pairs]:
        """The texts of each language with their native translations, without duplicates; empty without sentences."""
        assert not isinstance(self.sources, str)
        of_file: dict[str, list[str]] = {}
        for tag, source in self.sources.items():
            if source and isinstance(source, str):
                of_file.setdefault(source, []).append(tag)
        read = {file: self._different_pairs(file, tags) for file, tags in of_file.items()}
        pairs: dict[str, Pairs] = {}
        whole = left_out = 0
        for tag, source in self.sources.items():
            if not source:
                pairs[tag] = [], []
                continue
            name = source if isinstance(source, str) else "the given pairs"
            if isinstance(source, str):
                different = read[source][tag]
            else:
                stripped = ((text.strip(), native.strip()) for text, native in source)
                different = list(dict.fromkeys(pair for pair in stripped if all(pair)))
            if not different:
                raise CorpusError(f"{name} has no text in {tag!r} with a translation into {self.native!r}")
            known = different if self.teacher is None else [pair for pair in different if pair[1] in self.teacher]
            if not known:
                raise CorpusError(
                    f"{tag}: none of the {len(different)} native texts of {name} is in {self.base}; they must match "
                    "exactly"
                )
            pairs[tag] = [text for text, _ in known], [native for _, native in known]
            whole, left_out = whole + len(different), left_out + len(different) - len(known)
        if left_out:
            logger.warning("%d of %d native texts are not in %s and were skipped", left_out, whole, self.base)
        sentences, cldr = {tag: both for tag, both in pairs.items() if both[0]}, self._cldr
        check_columns(sentences, self.native, self._named_sources, None if cldr is None else cldr.profiles)
        return pairs

    def _different_pairs(self, source: str, languages: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
        """Returns the pairs of a text and a native text in each language, without duplicates."""
        present = languages_of(self._read(source))
        for wanted in (self.native, *languages):
            if wanted not in present:
                own = [each for each in present if each.partition("-")[0] == wanted.partition("-")[0]]
                hint = suggestion(own[0]) if own else did_you_mean(wanted, present)
                raise CorpusError(f"{source} has no text in {wanted!r}, only in {', '.join(present)}{hint}")
        pairs = [(tag, self.native) for tag in languages]
        columns = translation_pairs(self._read(source), pairs).texts()
        found: dict[str, dict[tuple[str, str], None]] = {tag: {} for tag in languages}
        for tag, text, native in zip(columns["language_a"], columns["text_a"], columns["text_b"], strict=True):
            found[tag][text, native] = None
        return {tag: list(own) for tag, own in found.items()}

    @property
    def _named_sources(self) -> str:
        sources = self.sources.values() if isinstance(self.sources, Mapping) else [self.sources]
        return ", ".join(dict.fromkeys(s for s in sources if isinstance(s, str))) or "the given pairs"

    @cached_property
    def dictionaries(self) -> dict[str, Pairs]:
        if self.dictionary is None:
            return {}
        present = languages_of(self._read(self.dictionary))
        asked = present if self.texts is not None else self.languages
        known = [tag for tag in asked if tag in present and tag != self.native]
        if self.native not in present or not known:
            wanted = "a language" if self.texts is not None else " or ".join(self.languages)
            raise CorpusError(
                f"{self.dictionary} has words in {', '.join(present)}, and not in {wanted} with translations into "
                f"{self.native!r}"
            )
        if absent := [tag for tag in asked if tag not in present]:
            others = [tag for tag in present if tag != self.native]
            there = (self.dictionary, enumeration(absent), enumeration(others))
            logger.warning("%s has no words in %s; it has words in %s", *there)
        found: dict[str, Pairs] = {}
        for tag, different in self._different_pairs(self.dictionary, known).items():
            words, natives = zip(*different, strict=True)
            found[tag] = list(words), list(natives)
        check_columns(found, self.native, self.dictionary)
        return found

    @cached_property
    def native_texts(self) -> list[str]:
        source = Path(str(self.texts))
        if source.suffix == ".txt" and source.is_file():
            lines = [line for _, line in read_lines(source)]
        else:
            captions = captions_of(load_captions(str(source), languages=[self.native]))
            lines = captions.combine_chunks().flatten().field("text").to_pylist()
        return list(dict.fromkeys(text for line in lines if (text := line.strip())))

    @cached_property
    def _cldr(self) -> EmojiNames | None:
        """The names of emoji in all languages; None without them, and if they cannot be fetched."""
        return names_of_emoji() if self.names and (self.teacher is None or self.teacher.reads_any) else None

    @cached_property
    def emoji_names(self) -> dict[str, NameTranslations]:
        """CLDR's emoji names by language, as additional pairs; empty if they cannot be fetched."""
        names = self._cldr
        if names is None:
            return {}
        if self.texts is None:
            return names_for({tag: self.texts_in(tag) for tag in self.languages}, self.native, names)
        if self.native not in names.languages:
            return {}
        others = [tag for tag in names.languages if tag.partition("-")[0] != self.native.partition("-")[0]]
        return {tag: names.translations(tag, self.native, 1.0) for tag in others}

    def texts_in(self, language: str) -> list[str]:
        """The sentences of a language, or else its captions, or else the words of its dictionary."""
        none: Any = ([], [])
        kinds = self.pairs, self.captioned, self.dictionaries
        return next((given[language][0] for given in kinds if given.get(language, none)[0]), [])

    def samples(self, language: str, count: int = 3) -> list[tuple[str, str]]:
        """Sample pairs (text, native text), which show a reader whether the columns are swapped."""
        texts, natives = self.pairs[language] if self.pairs[language][0] else self.dictionaries.get(language, ([], []))
        return [(texts[row], natives[row]) for row in evenly_spaced(len(texts), count)]

    # ---- The models ----

    @cached_property
    def teacher(self) -> "TextBase | None":
        """The base, if it is a table of vectors or a sentence-transformers model rather than a dual encoder."""
        return text_base(self.base, **self.code)

    def load(self) -> None:
        """Loads the base and the text encoder, and checks their kinds, their licenses and their languages."""
        if self.teacher is not None:
            self._load_text_base(self.teacher)
            return
        native, native_processor = load_dual_encoder(self.base, as_stored=True, **self.code)
        has_languages = isinstance(native, RidgeModel)
        if has_languages:
            self.earlier = self._facts_of_base(native.config.languages)
        check_weights_license(self.license, self.base_facts)
        if self.texts is not None and (self.text_encoder is None or has_languages):
            raise InputError(
                f"texts={self.texts!r}: learning without translations needs a text encoder and a plain base: "
                f"{_EXAMPLE}"
            )
        known = (native.config.native_language, *native.config.languages) if has_languages else (self.native,)
        if held := [tag for tag in self.languages if tag in known]:
            raise InputError(f"{self.base} already has the language {held[0]!r}")
        if has_languages:
            settled = {name: getattr(self, name) for name in ("native_language", "text_encoder", "text_prompt")}
            if given := ", ".join(f"{name}={value!r}" for name, value in settled.items() if value is not None):
                raise InputError(f"{given}: {self.base} has acquired languages, and its settings are fixed")
            self.model, self.processor = native, native_processor
            if self.earlier is None:
                self.earlier_glossaries = {*native_processor.glossaries}.difference(self.languages)
            return
        if isinstance(native, MlaPreTrainedModel):
            raise InputError(f"{self.base} has acquired languages by training: use the plain model as the base")
        if not (hasattr(native, "get_text_features") and hasattr(native, "get_image_features")):
            raise ModelKindError(f"{self.base} is a {native.config.model_type!r} model, not a dual encoder")
        tokenizer = self._make_model(native)
        prompt = {"text_prompt": self.model.config.text_prompt}
        self.processor = RidgeProcessor.for_native(native.config, native_processor, tokenizer, self.native, **prompt)

    def _load_text_base(self, teacher: "TextBase") -> None:
        if self.texts or self.dictionary or self.captions:
            raise InputError(f"{self.base} is not a dual encoder: it can learn only from translations")
        check_weights_license(self.license, self.base_facts[1:])
        space = VectorSpaceConfig(projection_dim=teacher.width, source=teacher.name)
        tokenizer = self._make_model(VectorSpaceModel(space))
        # Every processor has these two; nothing uses them here.
        vocabulary = {piece: number for number, piece in enumerate(("[PAD]", "[UNK]", *ascii_lowercase))}
        words = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
        plain = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
        prompt = self.model.config.text_prompt
        self.processor = RidgeProcessor(CLIPImageProcessorPil(), plain, tokenizer, self.native, text_prompt=prompt)

    def _make_model(self, native: PreTrainedModel) -> PreTrainedTokenizerBase | None:
        """Makes the model, still without languages; returns the text encoder's tokenizer, if there is one."""
        if self.text_encoder is None:
            self.model = RidgeModel.from_native(native, None, native_language=self.native)
            return None
        with explained(self.text_encoder, self.code):
            # Without a token that was trained to represent the text, the mean of all tokens represents it best.
            pooling = declared_pooling(self.text_encoder, **located(self.text_encoder, **self.code)) or "mean"
        encoder = load_text_encoder(self.text_encoder, pooling=pooling, as_stored=True, **self.code)
        options = {"text_pooling": pooling, "text_prompt": self.text_prompt or ""}
        self.model = RidgeModel.from_native(native, encoder, native_language=self.native, **options)
        return load_processor(AutoTokenizer, self.text_encoder, **self.code)

    # ---- Learning and saving ----

    def learn(self) -> None:
        """Solves for the languages, with encoders on the accelerator; `results` hold how well each was learned."""
        before = self.model.device
        self.model.to(default_device() or before)
        how: dict[str, Any] = {"precision": fastest_precision(self.model.device.type)}
        self.results: dict[str, LanguageResult]
        try:
            how |= {"names": self.emoji_names, "dictionaries": self.dictionaries}
            if self.texts is not None:
                self.results = learn_unstated(self.model, self.processor, self.native_texts, **how)
                return
            if empty := [tag for tag in self.languages if not self.texts_in(tag)]:
                raise CorpusError(f"{enumeration(empty)}: no translations, dictionary or captions")
            how |= {"teacher": self.teacher, "captions": self.captioned}
            self.results = learn(self.model, self.processor, self.pairs, **how)
        finally:
            self.model.to(before)

    def _facts_of_base(self, languages: list[str]) -> RidgeCardFacts | None:
        """The facts on the card of a base that has acquired languages; None if there are none or they do not match."""
        try:
            file = cached_file(self.base, ACQUIRED)
        except OSError:
            return None
        facts = RidgeCardFacts.of(file, LanguageResult)
        return facts if list(facts.languages) == languages else None

    @cached_property
    def base_facts(self) -> list[BaseModel]:
        """The plain base, the text encoder and earlier models with some of the languages, with their licenses. A local
        model without a license is left out, because nobody else could find it."""
        if self.earlier is not None:
            own = base_model_facts(self.base, EARLIER)
            is_known = own.on_hub or own.license not in (OTHER, UNKNOWN)
            return [*self.earlier.base_models, *([own] if is_known else [])]
        bases = [base_model_facts(self.base)]
        return bases if self.text_encoder is None else [*bases, base_model_facts(self.text_encoder, TEXT_TOWER)]

    def save(self, output: str | Path, command: str = "") -> None:
        """Writes the model with its processor and its card, which shows the `command`, to a new folder."""
        config, output, before = self.model.config, Path(output), self.earlier
        glossaries = self.processor.glossaries
        used = {each.language for each in self.emoji_names.values()}
        dictionaries = {*self.dictionaries, *(before.dictionaries if before else ())}
        check_free(output)
        with atomic_directory(output) as scratch:
            self.model.save_pretrained(scratch)
            self.processor.save_pretrained(scratch)
            RidgeCardFacts(
                name=output.resolve().name,
                languages=config.languages,
                native_language=config.native_language,
                base_models=self.base_facts,
                has_encoder=config.text_config is not None,
                results={**(before.results if before else {}), **self.results},
                names=sorted({*(before.names if before else ()), *used}),
                any_language=self.processor.any_language,
                embeds_images=self.teacher is None and not isinstance(self.model.native_model, VectorSpaceModel),
                words=sum(len(glossary.entries) for glossary in glossaries.values()),
                dictionaries=sorted(dictionaries.intersection(glossaries)),
                earlier_glossaries=sorted(self.earlier_glossaries),
                earlier_commands=[*before.earlier_commands, before.command] if before else [],
                command=command,
                license=self.license,
            ).save(scratch)


# ---- Text-only bases, from which new languages learn: a table of vectors, or a sentence-transformers model ----

TEXT, VECTOR = "text", "vector"


class VectorTable:
    """Vectors of native texts: a Parquet file with the columns `text` and `vector`. Rows without a text or with a
    missing, zero or non-finite vector are skipped. Vectors are normalized."""

    reads_any = False  # only texts that are in the table

    def __init__(self, file: Path) -> None:
        self.name = file.name
        try:
            table = parquet.read_table(file, columns=[TEXT, VECTOR])
            texts, vectors = table[TEXT].cast(pa.string()).to_pylist(), table[VECTOR].to_pylist()
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            told = f"{file} is not a Parquet file with the columns {TEXT!r} and {VECTOR!r}: {first_line(error)}"
            raise CorpusError(told) from error
        given = [(text, vector) for text, vector in zip(texts, vectors, strict=True) if text and vector is not None]
        widths = {len(vector) for _, vector in given}
        if len(widths) != 1:
            raise CorpusError(f"{file}: all vectors must have the same width; found {sorted(widths) or 'none'}")
        values = np.array([vector for _, vector in given], dtype=np.float32)  # None becomes nan
        lengths = np.linalg.norm(values, axis=1)
        usable = np.isfinite(lengths) & (lengths > 0)
        self._vectors = {
            text: vector / length
            for (text, _), vector, length, good in zip(given, values, lengths, usable, strict=True)
            if good
        }
        self.width = widths.pop()

    def __contains__(self, text: str) -> bool:
        return text in self._vectors

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Returns the vectors [n, d] of texts that are in the table."""
        return np.stack([self._vectors[text] for text in texts])


class SentenceTransformerBase:
    """A text or multimodal model that sentence-transformers loads."""

    reads_any = True

    def __init__(self, source: str, *, trust_remote_code: bool = False) -> None:
        self.model = load_sentence_transformer(source, trust_remote_code=trust_remote_code)
        self.name = Path(source).name if Path(source).is_dir() else source

    @cached_property
    def width(self) -> int:
        return int(self.encode(["a"]).shape[1])

    def __contains__(self, text: str) -> bool:
        return True

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Returns the vectors [n, d] of texts, of unit length."""
        settings = {"normalize_embeddings": True, "show_progress_bar": False}
        found = call_tokenizer(self.model.encode, list(texts), **settings)  # from one thread at a time
        return np.asarray(found, dtype=np.float32)


TextBase = VectorTable | SentenceTransformerBase


def text_base(base: str, *, trust_remote_code: bool = False) -> TextBase | None:
    """Loads the text base that `base` names; None if it is a dual encoder of transformers or babelens."""
    path, code = Path(base), {"trust_remote_code": trust_remote_code}
    if path.suffix == ".parquet" and path.is_file():
        return VectorTable(path)
    try:
        is_sentences = needs_sentence_transformers(base, **code)
    except OSError:  # no such folder or repository; the loader of dual encoders reports it
        return None
    return SentenceTransformerBase(base, **code) if is_sentences else None
