"""Teaching a model languages in closed form (`trainers/ridge.py`), from what people have.

The result is a whole model. Images, texts in the native language, and languages that the base has learned in this way
before stay bitwise what they were.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from datasets import Dataset
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

from ..configuration.configuration_ridge import VectorSpaceConfig
from ..configuration.configuration_two_tower import TextPooling, declared_pooling
from ..data.batching.views import translation_pairs
from ..data.corpus.captions import enumeration
from ..data.corpus.corpus import captions_of, languages_of
from ..data.corpus.loading import load_captions
from ..data.corpus.sampling import evenly_spread
from ..data.emoji.benchmark import NameTranslations, Pairs
from ..data.readers.bitext import read_translations
from ..inference.loading import load_dual_encoder
from ..model_cards.base_models import EARLIER, TEXT_TOWER, UNKNOWN, BaseModel, base_model_facts
from ..model_cards.licenses import OTHER, check_hub_license, check_weights_license
from ..model_cards.short_cards import ACQUIRED, RidgeCardFacts
from ..modeling.modeling_mla_base import MlaPreTrainedModel
from ..modeling.modeling_ridge import RidgeModel, VectorSpaceModel
from ..modeling.tower_loading import load_text_encoder
from ..processing.processing_ridge import RidgeProcessor
from ..processing.text_inputs import UNDETERMINED
from ..trainers.checkpoints import atomic_directory, prepare_saving
from ..trainers.precision import AUTO, fastest_precision
from ..trainers.ridge import learn, learn_unstated
from ..trainers.ridge_results import LanguageResult
from ..utils.errors import CorpusError, ModelKindError, TrainingSetupError, did_you_mean, suggestion
from ..utils.identity import check_free
from ..utils.languages import counts_as, normalize_language, normalize_languages
from ..utils.pretrained import explained, load_processor, located
from .emoji_names import check_columns, names_for, names_of_emoji
from .teachers import Teacher, teacher_of

logger = logging.getLogger(__name__)

ALL = "all"


def teach(
    base: str,
    sources: Mapping[str, str],
    text_encoder: str | None = None,
    *,
    before: Callable[["Acquisition"], None] = lambda acquisition: None,
    **choices: Any,
) -> "Acquisition":
    """Teaches a model languages.

    Args:
        base: folder or Hub id of a dual encoder or of a sentence-transformers model, or a table of vectors.
        sources: what there is to learn from, as the arguments of `Acquisition`: `language` and `translations`, or
            `texts`; and a `dictionary`.
        text_encoder: folder or Hub id of a multilingual text encoder that reads beside the characters.
        before: called with the loaded models and sentences, before they are learned from.
        choices: further arguments of `Acquisition`.

    Returns:
        The acquisition, whose `model` and `processor` have the languages, whose `results` say how well, and which can
        `save` them.

    Examples:
        >>> taught = teach("openai/clip-vit-base-patch32", {"language": "uk", "translations": "en-uk.tsv"})
        >>> taught.save("clip-uk")
    """
    acquisition = Acquisition(base, text_encoder=text_encoder, **{**sources, **choices})
    acquisition.load()
    before(acquisition)
    acquisition.learn()
    return acquisition


@dataclass
class Acquisition:
    """One acquisition of languages: `load` the models, `learn`, `save` the whole model.

    Args:
        base: folder or Hub id of the model that learns.
        language: tags of the languages, separated by commas; `all` for every language of the translations.
        translations: a source of `read_translations`: pairs of the languages and the native one.
        texts: a file of native texts, one a line, or a source of `load_captions` with native captions, in the place of
            `language` and `translations`: the languages are all that the text encoder reads.
        dictionary: a source as `translations`, of words: those of the languages, or with `texts`, of any.
        text_encoder: folder or Hub id of a multilingual text encoder.
        text_pooling: how its texts are pooled; by default as its folder states, or by the mean.
        text_prompt: what stands before every text that it reads.
        native_language: the language that a plain base reads; default: English.
        ngram_rows: as in `RidgeConfig`, of a plain base: with four times the default, languages take four times the
            space, and are found one or two points better.
        glossaries: whether languages learn glossaries beside their maps, as in `babelens.trainers.ridge.learn`.
        names: whether languages learn from CLDR's names of emoji too.
        license: of the result, a Hub identifier.
        batch_size: texts that the encoders read at a time.
        precision: in which the text encoder computes.
        trust_remote_code: run code that comes with models.

    Raises:
        TrainingSetupError: for choices that do not fit each other.
        PublishError: for an unknown license.
        LanguageTagError: for an unknown tag.
    """

    base: str
    language: str = ""
    translations: str = ""
    texts: str | None = None
    dictionary: str | None = None
    text_encoder: str | None = None
    text_pooling: TextPooling | None = None
    text_prompt: str | None = None
    native_language: str | None = None
    ngram_rows: int | None = None
    glossaries: bool = True
    names: bool = True
    license: str = "other"
    batch_size: int = 64
    precision: str = AUTO
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        self.earlier: RidgeCardFacts | None = None  # of a base that has learned languages
        self.earlier_glossaries: set[str] = set()  # languages whose words the base brings, from nobody knows what
        check_hub_license(self.license)
        for name in ("ngram_rows", "batch_size"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise TrainingSetupError(f"{name}={value} must be at least 1")
        if self.text_encoder is None and (given := self._given(("text_pooling", "text_prompt"))):
            raise TrainingSetupError(
                f"{given}: choices of a text encoder, and none is named; name one as in "
                "text_encoder='intfloat/multilingual-e5-small'"
            )
        if self.dictionary is not None and not self.glossaries:
            raise TrainingSetupError(
                f"dictionary={self.dictionary!r} is for glossaries, which glossaries=False leaves out"
            )
        if self.texts is not None:
            self.languages = [UNDETERMINED]
        elif self.language == ALL:
            self.languages = [tag for tag in languages_of(self.corpus) if tag != self._native]
        else:
            self.languages = normalize_languages(self.language.split(","))

    def _given(self, names: Iterable[str]) -> str:
        """Which of these choices were made, as errors of the command line show them as options."""
        return ", ".join(f"{name}={value!r}" for name in names if (value := getattr(self, name)) is not None)

    @property
    def code(self) -> dict[str, Any]:
        """The argument of loaders about code that comes with a model."""
        return {"trust_remote_code": self.trust_remote_code}

    @cached_property
    def corpus(self) -> Dataset:
        """The translations, in whatever languages."""
        return self._read(self.translations)

    def _read(self, source: str) -> Dataset:
        """Translations, whose languages are called as those that are learned: `en` for `en-US`."""
        corpus = read_translations(source, on_incomplete="skip")
        asked = [self._native, *getattr(self, "languages", ())]
        known = {tag: counts_as(tag, asked) or tag for tag in languages_of(corpus)}
        if all(tag == name for tag, name in known.items()):
            return corpus
        return read_translations(source, languages=list(dict.fromkeys(known.values())), on_incomplete="skip")

    @cached_property
    def pairs(self) -> dict[str, Pairs]:
        """By language, its texts with their native translations, each pair once.

        Raises:
            CorpusError: when a language has no text, or no translation of one.
        """
        native, present = self._native, languages_of(self.corpus)
        pairs = {}
        whole = left_out = 0
        for tag in (native, *self.languages):
            if tag not in present:
                raise self._absent(tag, present)
        for tag in self.languages:
            different = _different_pairs(self.corpus, tag, native)
            if not different:
                raise CorpusError(f"{self.translations} has no text in {tag!r} with a translation into {native!r}")
            pairs[tag] = self._taught(different, tag)
            whole += len(different)
            left_out += len(different) - len(pairs[tag][0])
        if left_out:
            logger.warning("%d of %d native texts are not in %s, and are left out", left_out, whole, self.base)
        check_columns(pairs, native, self.translations)
        return pairs

    def _absent(self, tag: str, present: Iterable[str]) -> CorpusError:
        own = [each for each in present if each.partition("-")[0] == tag.partition("-")[0]]
        hint = suggestion(own[0]) if own else did_you_mean(tag, present)
        return CorpusError(f"{self.translations} has no text in {tag!r}, only in {', '.join(present)}{hint}")

    @cached_property
    def dictionaries(self) -> dict[str, Pairs]:
        """By language, words and a native translation of each.

        Raises:
            CorpusError: for a dictionary without the native language, or without one of the languages.
        """
        if self.dictionary is None:
            return {}
        corpus, native = self._read(self.dictionary), self._native
        present = languages_of(corpus)
        known = [tag for tag in (present if self.texts is not None else self.languages) if tag in present]
        if native not in present or known in ([], [native]):
            wanted = "a language" if self.texts is not None else " or ".join(self.languages)
            raise CorpusError(
                f"{self.dictionary} has words in {', '.join(present)}, and not in {wanted} with translations into "
                f"{native!r}"
            )
        absent = [] if self.texts is not None else [tag for tag in self.languages if tag not in present]
        if absent:
            others = [tag for tag in present if tag != native]
            there = (self.dictionary, enumeration(absent), enumeration(others))
            logger.warning("%s has no words in %s; it has words in %s", *there)
        found = {}
        for tag in known:
            if tag != native:
                words, natives = zip(*_different_pairs(corpus, tag, native), strict=True)
                found[tag] = list(words), list(natives)
        return found

    def _taught(self, examples: list[tuple[str, str]], tag: str) -> Pairs:
        """Those of which the teacher knows the native text."""
        if self.teacher is not None:
            known = [each for each in examples if each[1] in self.teacher]
            if not known:
                raise CorpusError(
                    f"{tag}: none of {len(examples)} native texts of {self.translations} is in {self.base}; they "
                    "must be the same to the letter"
                )
            examples = known
        texts, natives = zip(*examples, strict=True)
        return list(texts), list(natives)

    @cached_property
    def native_texts_alone(self) -> list[str]:
        """The different texts of `texts`.

        Raises:
            CorpusError: for a file that is not UTF-8, and for a source without native captions.
        """
        source = Path(str(self.texts))
        if source.suffix == ".txt" and source.is_file():
            try:
                lines = source.read_text(encoding="utf-8-sig").split("\n")
            except UnicodeDecodeError as error:
                raise CorpusError(f"{source} is not UTF-8: save it as UTF-8 ({error})") from error
        else:
            lines = captions_of(load_captions(str(source), languages=[self._native]))
            lines = lines.combine_chunks().flatten().field("text").to_pylist()
        return list(dict.fromkeys(text for line in lines if (text := line.strip())))

    @cached_property
    def emoji_names(self) -> dict[str, NameTranslations]:
        """Names of things to learn from, by language, together with sentences or instead of them; empty where
        they cannot be fetched."""
        if not self.names or not (self.teacher is None or self.teacher.reads_any):
            return {}
        names = names_of_emoji()
        if names is None:
            return {}
        if self.texts is None:
            check_columns(self.pairs, self._native, self.translations, names)
            return names_for({tag: texts for tag, (texts, _) in self.pairs.items()}, self._native, names)
        others = [tag for tag in names.languages if tag.partition("-")[0] != self._native.partition("-")[0]]
        if self._native not in names.languages or not self.glossaries:
            return {}
        return {tag: names.translations(tag, self._native, 1.0) for tag in others}

    def samples(self, language: str, count: int = 3) -> list[tuple[str, str]]:
        """Pairs to show, (text, native text), which tell a reader whether the columns are swapped."""
        texts, natives = self.pairs[language]
        return [(texts[row], natives[row]) for row in evenly_spread(len(texts), count)]

    @property
    def _native(self) -> str:
        return normalize_language(self.native_language or "en")

    def load(self) -> None:
        """Loads the base and the text encoder.

        Raises:
            ModelFolderError: for a folder that holds no such model, or a damaged one.
            ModelKindError: for a base that is no dual encoder, and for a text encoder of the wrong kind.
            PublishError: when `license` is freer than the license of the base or of the text encoder.
            TrainingSetupError: for a base that has learned languages in another way, or has the language.
        """
        if self.teacher is not None:
            self._load_beside(self.teacher)
            return
        native, native_processor = load_dual_encoder(self.base, as_stored=True, **self.code)
        if isinstance(native, RidgeModel):
            self.earlier = self._facts_of_base(native.config.languages)
        check_weights_license(self.license, self.base_facts)
        if self.texts is not None and (self.text_encoder is None or isinstance(native, RidgeModel)):
            raise TrainingSetupError(
                f"texts={self.texts!r}: languages without translations are those of a text encoder, beside "
                "a plain base: name one with text_encoder='intfloat/multilingual-e5-small'"
            )
        if isinstance(native, RidgeModel):
            self._check_further(native)
            self.model, self.processor = native, native_processor
            if self.earlier is None:
                self.earlier_glossaries = {*native_processor.glossaries}.difference(self.languages)
            return
        if isinstance(native, MlaPreTrainedModel):
            raise TrainingSetupError(
                f"{self.base} has acquired {', '.join(native.config.languages) or 'languages'} by training: take the "
                "plain model as the base"
            )
        if not (hasattr(native, "get_text_features") and hasattr(native, "get_image_features")):
            raise ModelKindError(f"{self.base} is a {native.config.model_type!r} model, and no dual encoder")
        if self._native in self.languages:
            raise TrainingSetupError(f"{self.base} has the language {self._native!r} already")
        encoder, tokenizer, options = self._encoder()
        self.model = RidgeModel.from_models(native, encoder, **options)
        prompt = {"text_prompt": self.model.config.text_prompt}
        self.processor = RidgeProcessor.for_native(native.config, native_processor, tokenizer, self._native, **prompt)

    @cached_property
    def teacher(self) -> Teacher | None:
        """Vectors in a table, or a model of sentence-transformers, instead of a dual encoder."""
        return teacher_of(self.base, **self.code)

    def _load_beside(self, teacher: Teacher) -> None:
        """Makes a model of texts alone, in the space of a teacher."""
        for name, given in (("texts", self.texts), ("dictionary", self.dictionary)):
            if given is not None:
                raise TrainingSetupError(f"{name}={given!r}: vectors take translations alone, with --language")
        check_weights_license(self.license, self.base_facts[1:])
        encoder, tokenizer, options = self._encoder()
        space = VectorSpaceModel(VectorSpaceConfig(projection_dim=teacher.width, source=teacher.name))
        self.model = RidgeModel.from_models(space, encoder, **options)
        # Nothing is read by these two, which a processor has in any case.
        vocabulary = {piece: number for number, piece in enumerate(("[PAD]", "[UNK]", *ascii_lowercase))}
        plain = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token="[UNK]")),
            pad_token="[PAD]",
            unk_token="[UNK]",
        )
        prompt = self.model.config.text_prompt
        self.processor = RidgeProcessor(CLIPImageProcessorPil(), plain, tokenizer, self._native, text_prompt=prompt)

    def _encoder(self) -> tuple[PreTrainedModel | None, PreTrainedTokenizerBase | None, dict[str, Any]]:
        """The text encoder and its tokenizer, if one is named, and the keys of `RidgeConfig` that are chosen."""
        options: dict[str, Any] = {"native_language": self._native}
        if self.ngram_rows is not None:
            options["ngram_rows"] = self.ngram_rows
        if self.text_encoder is None:
            return None, None, options
        with explained(self.text_encoder, self.code):
            # The mean says most of a text where no state was trained for that.
            stated = declared_pooling(self.text_encoder, **located(self.text_encoder, **self.code))
        pooling = self.text_pooling or stated or "mean"
        encoder = load_text_encoder(self.text_encoder, pooling=pooling, as_stored=True, **self.code)
        tokenizer = load_processor(AutoTokenizer, self.text_encoder, **self.code)
        return encoder, tokenizer, options | {"text_pooling": pooling, "text_prompt": self.text_prompt or ""}

    def _facts_of_base(self, languages: list[str]) -> RidgeCardFacts | None:
        """The facts of the card of a base that has learned languages; None without them, or of another model.

        Raises:
            ModelFolderError: for a damaged file.
        """
        try:
            file = cached_file(self.base, ACQUIRED)
        except OSError:
            return None
        facts = RidgeCardFacts.of(file, LanguageResult)
        return facts if list(facts.languages) == languages else None

    def _check_further(self, model: RidgeModel) -> None:
        given = self._given(("native_language", "text_encoder", "text_pooling", "text_prompt", "ngram_rows"))
        if given:
            raise TrainingSetupError(f"{given}: already settled by {self.base}, which has languages")
        for language in self.languages:
            if language in (model.config.native_language, *model.config.languages):
                raise TrainingSetupError(f"{self.base} has the language {language!r} already")

    def learn(self) -> None:
        """Solves for the languages; `results` say how well each is learned.

        Raises:
            CorpusError: for too few translations.
        """
        precision = fastest_precision(self.model.device.type).name if self.precision == AUTO else self.precision
        how: dict[str, Any] = {"batch_size": self.batch_size, "precision": precision}
        how |= {"names": self.emoji_names, "dictionaries": self.dictionaries}
        if self.texts is not None:
            self.results = learn_unstated(self.model, self.processor, self.native_texts_alone, **how)
            return
        how |= {"teacher": self.teacher, "glossaries": self.glossaries}
        self.results = learn(self.model, self.processor, self.pairs, **how)

    @cached_property
    def base_facts(self) -> list[BaseModel]:
        """The plain base, the text encoder and models that had some of the languages, with their licenses. A model
        that is on this machine alone, under no license of its own, says nothing to others."""
        if self.earlier is not None:
            own = base_model_facts(self.base, EARLIER)
            is_known = own.on_hub or own.license not in (OTHER, UNKNOWN)
            return [*self.earlier.base_models, *([own] if is_known else [])]
        bases = [base_model_facts(self.base)]
        return bases if self.text_encoder is None else [*bases, base_model_facts(self.text_encoder, TEXT_TOWER)]

    def save(self, output: str | Path, command: str = "") -> None:
        """Writes the model with its processor and its card.

        Args:
            output: a new folder.
            command: that was typed, for the card.

        Raises:
            FileExistsError: when `output` holds a model already.
        """
        config, output = self.model.config, Path(output)
        check_free(output)
        prepare_saving(output)
        with atomic_directory(output) as scratch:
            self.model.save_pretrained(scratch)
            self.processor.save_pretrained(scratch)
            before = self.earlier
            facts = RidgeCardFacts(
                name=output.resolve().name,
                languages=config.languages,
                native_language=config.native_language,
                base_models=self.base_facts,
                has_encoder=config.text_config is not None,
                results={**(before.results if before else {}), **self.results},
                names=sorted(
                    {*(before.names if before else ()), *(each.language for each in self.emoji_names.values())}
                ),
                any_language=self.processor.any_language,
                embeds_images=self.teacher is None and not isinstance(self.model.native_model, VectorSpaceModel),
                words=sum(len(glossary.entries) for glossary in self.processor.glossaries.values()),
                dictionaries=sorted(
                    {*self.dictionaries, *(before.dictionaries if before else ())}.intersection(
                        self.processor.glossaries
                    )
                ),
                earlier_glossaries=sorted(self.earlier_glossaries),
                earlier_commands=[*before.earlier_commands, before.command] if before else [],
                command=command,
                license=self.license,
            )
            facts.save(scratch)


def _different_pairs(corpus: Dataset, language: str, native: str) -> list[tuple[str, str]]:
    """The texts of a language with their native translations, each pair once."""
    texts = translation_pairs(corpus, [(language, native)]).texts()
    return list(dict.fromkeys(zip(texts["text_a"], texts["text_b"], strict=True)))
