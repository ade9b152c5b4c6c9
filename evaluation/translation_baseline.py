"""The baseline translate-test: captions are translated by machine before a model of few languages searches with them.

    translator = CachedTranslator(Seq2SeqTranslator.from_pretrained("facebook/nllb-200-distilled-600M"))
    evaluate_translate_test(embedder, corpus, ["en", "de", "sw"], translator)["sw"]["gain"]["t2i_r10"]

Whether translated queries and an English model do better, and at what cost, is the first question to every
multilingual model (Jain et al. 2021, MURAL, table 2; Burns et al. 2020, SMALR, "Trans. to En").
"""

from typing import Any, cast

import datasets

from ..data.batching.retrieval_sets import RetrievalSets
from ..data.batching.views import images_of
from ..inference.embedder import Embedder
from ..inference.translated_captions import TranslatingEmbedder
from ..inference.translation import Translator
from ..utils.errors import InputError, UnknownLanguageError
from ..utils.languages import normalize_language, normalize_languages
from .query_ranks import QueryRanks
from .retrieval import evaluate_retrieval

Numbers = dict[str, Any]


def evaluate_translate_test(
    embedder: Embedder,
    corpus: datasets.Dataset,
    languages: str | list[str] | tuple[str, ...],
    translator: Translator,
    *,
    to: str = "en",
    protocol: str = "standard",
    only_captioned: bool = False,
    ranks: dict[str, QueryRanks] | None = None,
    translated_ranks: dict[str, QueryRanks] | None = None,
    show_progress: bool | None = None,
) -> dict[str, Numbers]:
    """Retrieval with captions as they are, and with their translations by machine into one language.

    Args:
        embedder: the model.
        corpus: a caption corpus.
        languages: BCP-47 tags of the captions.
        translator: the translator. With a `CachedTranslator`, the time is that which the translations took when they
            were made.
        to: the language that captions are translated into; its own captions are not translated.
        protocol, only_captioned, show_progress: as in `evaluate_retrieval`.
        ranks, translated_ranks: dictionaries to which the ranks of the single queries are added, by language.

    Returns:
        For each language what `evaluate_retrieval` returns, for captions as they are (`untranslated`, None for a
        language that the model has not learned) and for their translations (`translated`, None for `to`). Where there
        are both, `gain`, the difference of each recall. Where there are translations, `seconds_per_1000_texts`, of
        `translation` and of `encoding` the translations, and `n_empty`, the number of captions that were translated to
        nothing and search as they are.
    """
    tags, to = normalize_languages(languages), normalize_language(to)
    foreign = [tag for tag in tags if tag != to]
    if not foreign:
        raise InputError(
            f"there is nothing to translate: all captions are in {to}, into which they would be translated"
        )
    sets = RetrievalSets(corpus)
    examples = {tag: sets.of(tag).texts[:1] for tag in tags}
    embedder.encode_text(examples[foreign[0]], language=to)  # raises an error now if the model has not learned it
    options: dict[str, Any] = {
        "protocol": protocol,
        "only_captioned": only_captioned,
        "show_progress": show_progress,
        "image_embeddings": embedder.encode_image(images_of(corpus), show_progress=show_progress),
    }
    learned = [tag for tag in tags if _has_learned(embedder, tag, examples[tag])]
    untranslated = evaluate_retrieval(embedder, corpus, learned, ranks=ranks, **options)
    results: dict[str, Numbers] = {}
    for tag in tags:
        results[tag] = {"untranslated": untranslated.get(tag), "translated": None}
        if tag != to:
            translating = TranslatingEmbedder(embedder, translator, to=to)
            encoding = cast(Embedder, translating)  # it encodes as one
            found = evaluate_retrieval(encoding, corpus, tag, ranks=translated_ranks, **options)[tag]
            results[tag]["translated"] = found
            if tag in untranslated:
                # Captions may be equal, word for word, before the translation alone or after it alone.
                recalls = [name for name in untranslated[tag] if name in found and not name.startswith("n_")]
                results[tag]["gain"] = {name: found[name] - untranslated[tag][name] for name in recalls}
            thousands = translating.n_translated / 1000
            results[tag]["seconds_per_1000_texts"] = {
                "translation": translating.translation_seconds / thousands,
                "encoding": translating.encoding_seconds / found["n_texts"] * 1000,
            }
            results[tag]["n_empty"] = translating.n_empty
    return results


def _has_learned(embedder: Embedder, language: str, texts: list[str]) -> bool:
    try:
        embedder.encode_text(texts, language=language)
    except UnknownLanguageError:
        return False
    return True
