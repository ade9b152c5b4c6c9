"""The translate-test baseline: captions are machine-translated before a model for few languages searches with them.

    translator = CachedTranslator(Seq2SeqTranslator.from_pretrained("facebook/nllb-200-distilled-600M"))
    evaluate_translate_test(embedder, corpus, ["en", "de", "sw"], translator)["sw"]["gain"]["t2i_r10"]

A multilingual model should be compared with translated queries and an English model, in recall and in cost (Jain et
al. 2021, MURAL, table 2; Burns et al. 2020, SMALR, "Trans. to En").
"""

from typing import Any, cast

import datasets

from ..data.batching.retrieval_sets import RetrievalSets
from ..data.batching.views import images_of
from ..inference.embedder import Embedder
from ..inference.translated_captions import TranslatingEmbedder
from ..inference.translation import Translator
from ..utils.errors import InputError, LanguageTagError
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
    """Evaluates retrieval with the original captions and with their machine translations into one language.

    Args:
        embedder: the model.
        corpus: a caption corpus.
        languages: BCP-47 tags of the captions.
        translator: the translator. With a `CachedTranslator`, the reported time is the time of the original
            translation.
        to: the target language; captions in this language are not translated.
        protocol, only_captioned, show_progress: as in `evaluate_retrieval`.
        ranks, translated_ranks: dictionaries to which the ranks of single queries are added, by language.

    Returns:
        For each language, the results of `evaluate_retrieval` for the original captions (`untranslated`, None for a
        language that the model has not learned) and for their translations (`translated`, None for `to`). If there are
        both, `gain`, the difference of each recall. If there are translations, `seconds_per_1000_texts`, for
        `translation` and for `encoding` the translations, and `n_empty`, the number of captions with an empty
        translation, for which the original caption is used.
    """
    tags, to = normalize_languages(languages), normalize_language(to)
    foreign = [tag for tag in tags if tag != to]
    if not foreign:
        raise InputError(f"there is nothing to translate: all captions are already in {to}")
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
            encoding = cast(Embedder, translating)  # it has the same methods for encoding
            found = evaluate_retrieval(encoding, corpus, tag, ranks=translated_ranks, **options)[tag]
            results[tag]["translated"] = found
            if tag in untranslated:
                # Captions may be equal only before or only after translation.
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
    except LanguageTagError:
        return False
    return True
