"""Dual encoders as models of mteb, the benchmark of embeddings (https://github.com/embeddings-benchmark/mteb): an
`Embedder` computes the embeddings that mteb asks for, so all are evaluated in the same way. mteb states languages by
ISO 639-3 with a script (`ukr-Cyrl`), one or several for each subset, but the embedder needs the language of every
text. If a task does not determine it, that is an error; no language is assumed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import langcodes
import numpy as np
from huggingface_hub import EvalResult

from ..inference.embedder import Embedder
from ..inference.texts import known_languages
from ..utils.errors import InputError, LanguageTagError, ModelKindError, SourceUnavailableError, requires
from ..utils.files import optional_file
from ..utils.identity import model_identity
from ..utils.languages import language_and_script, normalize_language, normalize_languages

with requires("mteb"):
    import mteb
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ScoringFunction

_SOURCE = "https://github.com/embeddings-benchmark/mteb/"
# Shown next to the metric that mteb ranks models by. `hit_rate_at_k` is the recall of `evaluate_retrieval`.
SHOWN = ("hit_rate_at_1", "hit_rate_at_5", "hit_rate_at_10")
_PAIRS = ("BitextMining", "STS")  # tasks with pairs of texts in the languages of the subset
_NAMED = 40  # maximum number of subsets in an error message


@dataclass(eq=False)
class MtebModel(AbsEncoder):
    """A dual encoder as mteb's `EncoderProtocol`, from `mteb_model`. `tasks`, by name, pair texts in two languages."""

    model: Embedder  # which `AbsEncoder` names so
    tasks: dict[str, Any]
    mteb_model_meta: ModelMeta  # None in the base class
    language: str | None = None
    text_task: str | None = None

    def encode(
        self,
        inputs: Any,
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        show_progress_bar: bool | None = None,
        **unused: Any,
    ) -> np.ndarray:
        """Embeddings [N, d] of unit length of batches, dictionaries with lists `text`, `image` or both. The embedding
        of a text with an image is the sum of the two towers' features, as in mteb's CLIP."""
        texts: list[str] = []
        images: list[np.ndarray] = []
        for batch in inputs:
            texts += batch.get("text", [])
            if "image" in batch:
                normalize = "text" not in batch
                images.append(self.model.encode_image(batch["image"], show_progress=False, normalize=normalize))
        if not texts:
            return np.concatenate(images)
        language = self.language or self._language(task_metadata, hf_split, hf_subset, texts)
        embeddings = self.model.encode_text(
            texts,
            language=language,
            task=self.text_task if task_metadata.modalities == ["text"] else None,
            show_progress=show_progress_bar,
            normalize=not images,
        )
        return embeddings + np.concatenate(images) if images else embeddings

    def _language(self, metadata: Any, split: str, subset: str, texts: list[str]) -> str:
        """The language of the texts that the model gets, by the model's name for it: `zh` for `cmn`."""
        pair = languages_of_texts(metadata, subset)
        tag = pair[0] if len(pair) == 1 else pair[self._side(metadata, split, subset, texts)]
        known = known_languages(self.model.processor) or []
        same = [name for name in known if language_and_script(name) == language_and_script(tag)]
        return tag if tag in known or not same else same[0]

    def _side(self, metadata: Any, split: str, subset: str, texts: list[str]) -> int:
        """Returns 0 for the first or 1 for the second texts of a task's pairs, which mteb does not state."""
        if (task := self.tasks.get(metadata.name)) is None:
            raise InputError(
                f"{metadata.name} pairs texts in two languages, but mteb does not tell a model which of them it gets: "
                "pass the tasks to the model, mteb_model(…, tasks=tasks)"
            )
        data = task.dataset.get(subset, task.dataset)
        columns = getattr(task, "column_names", ("sentence1", "sentence2"))
        same = [index for index, column in enumerate(columns) if list(data[split][column]) == texts]
        if len(same) != 1:
            raise InputError(f"{metadata.name}, subset {subset!r}: the columns {' and '.join(columns)} do not differ")
        return same[0]


def mteb_model(
    model: str | Path | Embedder,
    *,
    tasks: Sequence[Any] = (),
    language: str | None = None,
    text_task: str | None = None,
    **loading: Any,
) -> MtebModel:
    """Makes an mteb model from a dual encoder or an adapter: a folder, a repository on the Hub, or an `Embedder`.
    `loading` are arguments of `Embedder.from_pretrained`.

    Args:
        tasks: needed for tasks that pair texts in two languages (bitext mining, cross-lingual STS), because mteb does
            not tell a model which of the two languages it gets.
        language: the language of all texts, for tasks that do not state it.
        text_task: the head that embeds texts in tasks without images, such as `"text_text"` for MURAL.
    """
    source = None if isinstance(model, Embedder) else str(model)
    embedder = model if isinstance(model, Embedder) else Embedder.from_pretrained(str(model), **loading)
    given: dict[str, Any] = {} if language is None else {"language": normalize_language(language)}
    given |= {} if text_task is None else {"text_task": text_task}
    meta = _described(embedder, source, loading).model_copy(update={"experiment_kwargs": given or None})
    return MtebModel(embedder, {task.metadata.name: task for task in tasks}, meta, **given)


# ---- Description of the model ----


def _described(embedder: Embedder, source: str | None, loading: Mapping[str, Any]) -> ModelMeta:
    """Describes a model for mteb. The revision of a local folder is a digest: stored results belong to its weights."""
    model, processor = embedder.model, embedder.processor
    on_hub = source is not None and not Path(source).is_dir()
    folder = Path(source or getattr(model, "name_or_path", "") or type(model).__name__)
    known = known_languages(processor) or []
    # The name of a repository's folder in the Hub's cache is the commit.
    configuration = optional_file(source, "config.json", loading) if source and on_hub else None
    commit = configuration.parent.name if configuration and configuration.parent.parent.name == "snapshots" else None
    facts = {
        "name": source if on_hub else f"local/{folder.resolve().name}",
        "revision": commit or model_identity(model, processor),
        "n_parameters": sum(parameter.numel() for parameter in model.parameters()),
        # For any text, in a language that the model has learned.
        "embed_dim": embedder.encode_text(["1"], language=(known or ["en"])[0]).shape[1],
        "similarity_fn_name": ScoringFunction.COSINE,
        "modalities": ["image", "text"] if embedder.takes_images else ["text"],
    }
    return ModelMeta.create_empty(facts)


# ---- Languages of tasks ----


def _short_tag(code: str) -> str:
    """The canonical tag of a language, without its usual script: `uk` for `ukr-Cyrl`, but `sr-Latn` for `srp-Latn`."""
    tag = normalize_language(code)
    language = langcodes.Language.get(tag).language or tag
    return language if language_and_script(language) == language_and_script(tag) else tag


def _subset_languages(metadata: Any, subset: str) -> list[str]:
    """The language tags of a task's subset, or of its column for a language, in mteb's order."""
    stated = metadata.eval_langs
    codes = stated.get(subset, [subset]) if isinstance(stated, dict) else stated
    return list(dict.fromkeys(map(_short_tag, codes)))


def languages_of_texts(metadata: Any, subset: str) -> list[str]:
    """The language of a subset's texts, or the two languages of its pairs of texts."""
    try:
        tags = _subset_languages(metadata, subset)
        forms = {language_and_script(tag) for tag in tags}
        if len(forms) == 1:
            return tags[:1]
        try:
            named = [_short_tag(part) for part in subset.split("-")]  # such as `de-en`, or `no` among nor, nno and nob
        except LanguageTagError:
            named = []
        if not {language_and_script(tag) for tag in named} <= forms:
            named = []
        if metadata.type in _PAIRS and len(pair := named if len(named) == 2 else tags) == 2:
            return pair
        if len(named) == 1:
            return named
        why = f"it has {', '.join(tags)}"
    except LanguageTagError as error:
        why = str(error)
    raise InputError(f"{metadata.name}, subset {subset!r}: state the language of its texts with language= ({why})")


# ---- Runs ----


@dataclass(frozen=True, kw_only=True)
class MtebScore:
    """The scores of one subset of a task, which `metadata` describe: all metrics, as fractions instead of percentages.
    Languages are mteb's codes, and `version` is mteb's."""

    metadata: TaskMetadata
    split: str
    subset: str
    languages: list[str]
    scores: dict[str, float]
    version: str

    def shown(self) -> dict[str, float]:
        """The main metric and the metrics of `SHOWN`, in percent."""
        names = dict.fromkeys([self.metadata.main_score, *SHOWN])
        return {name: 100 * self.scores[name] for name in names if name in self.scores}


def mteb_tasks(names: Sequence[str], languages: Sequence[str] | None = None) -> list[Any]:
    """mteb's tasks by name, such as `XM3600T2IRetrieval` and `STS17`, with their subsets in some languages, by default
    all. A subset with two languages is included if one of them matches, possibly by another name (`zh` for `cmn`)."""
    wanted = {tag: language_and_script(tag) for tag in normalize_languages(list(languages or []))}
    tasks, present = [], set()
    for name in names:
        try:
            task = mteb.get_task(name)
        except KeyError as error:
            raise InputError(f"mteb has no such task: {error.args[0].removeprefix('KeyError: ')}") from error
        if wanted:
            subsets = []
            for subset in task.metadata.hf_subsets:
                try:
                    forms = {language_and_script(tag) for tag in _subset_languages(task.metadata, subset)}
                except LanguageTagError:  # code
                    continue
                if found := {tag for tag, form in wanted.items() if form in forms}:
                    subsets.append(subset)
                    present |= found
            if not subsets:
                known = ", ".join(task.metadata.hf_subsets[:_NAMED])
                raise LanguageTagError(f"{name} has no texts in {', '.join(wanted)}; its subsets are {known}")
            task = task.filter_languages(None, hf_subsets=subsets)
        tasks.append(task)
    if absent := [tag for tag in wanted if tag not in present]:
        raise LanguageTagError(f"none of these tasks has texts in {', '.join(absent)}")
    return tasks


def evaluate_mteb(
    model: MtebModel, tasks: Sequence[Any], *, cache: str | Path | None = None, show_progress: bool = False
) -> list[MtebScore]:
    """Evaluates a model on mteb tasks. `cache` is the folder in which mteb stores results
    (`results/<model>/<revision>/<task>.json`); subsets with stored results are not evaluated again.

    Examples:
        >>> evaluate_mteb(mteb_model("runs/mural"), mteb_tasks(["XM3600T2IRetrieval"], ["uk", "sw"]))[0].shown()
    """
    described = model.mteb_model_meta
    for task in tasks:
        if unread := [each for each in task.metadata.modalities if each not in described.modalities]:
            raise ModelKindError(
                f"{task.metadata.name} has {'s and '.join(unread)}s, which {described.name} does not read"
            )
    model.tasks |= {task.metadata.name: task for task in tasks}
    results = mteb.evaluate(
        model,
        tasks,
        cache=None if cache is None else mteb.ResultCache(cache),
        encode_kwargs={"batch_size": model.model.batch_size, "show_progress_bar": False},
        co2_tracker=False,
        show_progress_bar=show_progress,
    )
    for failed in results.exceptions or []:  # data that is not public
        raise SourceUnavailableError(f"{failed.task_name}: {failed.exception}")
    return [
        MtebScore(
            metadata=task.metadata,
            split=split,
            subset=found["hf_subset"],
            languages=list(found["languages"]),
            scores={name: float(value) for name, value in found.items() if isinstance(value, int | float)},
            version=result.mteb_version,
        )
        for task, result in zip(tasks, results.task_results, strict=True)
        for split in task.eval_splits
        for found in result.scores[split]
        if found["hf_subset"] in task.hf_subsets  # the cache may have other subsets
    ]


def model_index(scores: Sequence[MtebScore]) -> list[EvalResult]:
    """Converts scores to entries of a card's `model-index`, in percent."""
    return [
        EvalResult(
            task_type=score.metadata.type,
            dataset_type=score.metadata.dataset["path"],
            dataset_name=f"{score.metadata.name} ({score.subset})",
            dataset_config=score.subset,
            dataset_split=score.split,
            dataset_revision=score.metadata.dataset["revision"],
            metric_type=metric,
            metric_name=metric,
            metric_value=round(value, 3),
            source_name=f"mteb {score.version}",
            source_url=_SOURCE,
        )
        for score in scores
        for metric, value in score.shown().items()
    ]
