"""Dual encoders as models of mteb, the benchmark of embeddings (https://github.com/embeddings-benchmark/mteb).

mteb asks a model for the embeddings of a task's texts and images. Here an `Embedder` computes them, so that every
dual encoder that it loads is measured in the same way. Texts come with the language of their subset
(`mteb_languages`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import langcodes
import numpy as np

from ..inference.embedder import Embedder
from ..utils.errors import InputError, LanguageTagError, MissingLanguageError, UnknownLanguageError
from ..utils.languages import language_and_script, normalize_language, normalize_languages
from .mteb_meta import AbsEncoder, ModelMeta, described, known_languages


class MtebModel(AbsEncoder):
    """A dual encoder as mteb's `EncoderProtocol`; made by `mteb_model`, whose arguments it has.

    Args:
        embedder: the dual encoder.
        meta: its description.
        tasks: the tasks whose pairs of texts are in two languages, by name.
        language, text_task, prompts: as in `mteb_model`.
    """

    def __init__(
        self,
        embedder: Embedder,
        meta: ModelMeta,
        *,
        tasks: Mapping[str, Any] | None = None,
        language: str | None = None,
        text_task: str | None = None,
        prompts: Mapping[str, str] | None = None,
    ) -> None:
        self.model = self.embedder = embedder
        self.mteb_model_meta = meta
        self.tasks = dict(tasks or {})
        self.language = None if language is None else normalize_language(language)
        self.text_task = text_task
        try:
            self.model_prompts = self.validate_task_to_prompt_name(dict(prompts or {}))
        except KeyError as error:
            raise InputError(f"prompts: {', '.join(sorted(error.args[0]))}") from error

    def encode(
        self,
        inputs: Any,
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        show_progress_bar: bool | None = None,
        **unused: Any,
    ) -> np.ndarray:
        """Embeddings of the texts, of the images, or of texts with images, [N, d].

        Vectors are of unit length. Of a text and an image together, the sum of the two towers' features is the
        embedding, as in mteb's own CLIP.

        Args:
            inputs: batches, dictionaries with lists `text`, `image` or both.
            task_metadata, hf_split, hf_subset: the task, its split and its subset.
            prompt_type: whether these are queries or documents.
            show_progress_bar: whether to show a progress bar.
            unused: mteb's other options, such as `batch_size`, which `inputs` follow already.
        """
        texts: list[str] = []
        images: list[np.ndarray] = []
        for batch in inputs:
            texts += batch.get("text", [])
            if "image" in batch:
                normalize = "text" not in batch
                images.append(self.embedder.encode_image(batch["image"], show_progress=False, normalize=normalize))
        if not texts:
            if not images:
                raise InputError(f"{task_metadata.name}: the inputs have neither texts nor images")
            return np.concatenate(images)
        language = self.language or as_known(
            language_of_texts(task_metadata, hf_subset, lambda: self._side(task_metadata, hf_split, hf_subset, texts)),
            known_languages(self.embedder),
        )
        prompt = (self.model_prompts or {}).get(self.get_prompt_name(task_metadata, prompt_type) or "", "")
        embeddings = self.embedder.encode_text(
            [prompt + text for text in texts],
            language=language,
            task=self.text_task if task_metadata.modalities == ["text"] else None,
            show_progress=show_progress_bar,
            normalize=not images,
        )
        return embeddings + np.concatenate(images) if images else embeddings

    def _side(self, metadata: Any, split: str, subset: str, texts: list[str]) -> int:
        """Whether these are the first or the second texts of the pairs of a task; mteb tells neither to a model."""
        if (task := self.tasks.get(metadata.name)) is None:
            raise InputError(
                f"{metadata.name} pairs texts in two languages, and a model is not told which of them it is given: "
                "name its tasks when it is made, mteb_model(…, tasks=tasks)"
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
    prompts: Mapping[str, str] | None = None,
    name: str | None = None,
    source: str | Path | None = None,
    **loading: Any,
) -> MtebModel:
    """Makes a model of mteb from a dual encoder or an adapter.

    Args:
        model: a folder, a repository of the Hub, or an `Embedder`.
        tasks: the tasks that it will be measured on, as objects of mteb. Only tasks that pair texts in two languages
            (bitext mining, cross-lingual STS) need to be given: mteb does not tell a model which of the two languages
            it is asked for.
        language: the language of all texts, for tasks that do not tell it. By default it is the one that the task
            states for the subset, and an error where it states several.
        text_task: the head that embeds texts in tasks of texts alone, such as `"text_text"` for MURAL; images
            are always compared with texts by the head of images.
        prompts: what is put before texts, by mteb's names: a task, a kind of task, or `query` and `document`.
        name: the name with an owner under which mteb keeps the results; by default the repository's, or `local/` and
            the name of the folder.
        source: the folder or repository of an `Embedder`, which describes the model.
        loading: arguments of `Embedder.from_pretrained`, such as `batch_size`, `device` and `trust_remote_code`; with
            an `Embedder`, those that it was loaded with.

    Examples:
        >>> tasks = mteb.get_tasks(tasks=["XM3600T2IRetrieval"], languages=["ukr", "swa"])
        >>> results = mteb.evaluate(mteb_model("runs/mural"), tasks)
    """
    embedder, meta = _loaded(model, name, source, loading)
    settings = {"language": language, "text_task": text_task, "prompts": dict(prompts) if prompts else None}
    given = {key: value for key, value in settings.items() if value is not None}
    meta = meta.model_copy(update={"experiment_kwargs": given or None})
    named = {task.metadata.name: task for task in tasks}
    return MtebModel(embedder, meta, tasks=named, language=language, text_task=text_task, prompts=prompts)


def mteb_model_meta(
    model: str | Path | Embedder, *, name: str | None = None, source: str | Path | None = None, **loading: Any
) -> ModelMeta:
    """The description of a model for mteb: its name, revision, languages, license, size and modalities.

    They are read from the model's folder: its configuration, its weights and its card. The revision of a local folder
    is a digest of its weights, so that results which mteb has kept are always those of the same weights.
    `load_model()` of the description gives the model that `mteb_model` does.

    Args:
        model, name, source, loading: as in `mteb_model`.
    """
    return _loaded(model, name, source, loading)[1]


def _loaded(
    model: str | Path | Embedder, name: str | None, source: str | Path | None, loading: Mapping[str, Any]
) -> tuple[Embedder, ModelMeta]:
    """A model with its description."""
    if isinstance(model, Embedder):
        embedder = model
    else:
        embedder, source = Embedder.from_pretrained(model, **loading), model
    return embedder, described(embedder, None if source is None else str(source), name, loading, mteb_model)


# ---- Mteb languages ----
# The languages of mteb's tasks: which language the texts have that a model is given for a subset of a task.
#
# mteb states languages by ISO 639-3 with a script (`ukr-Cyrl`), one or several for each subset. A model is told
# the language of every text; where the task leaves it open, that is an error, and no language is assumed.

# The kinds of tasks whose rows are pairs of texts, of which a subset's languages name the first and the second.
_PAIRS = ("BitextMining", "STS")
_NAMED = 40  # subsets that an error names


def short_tag(code: str) -> str:
    """The canonical tag of a language, without a script that the language is usually written in.

    Examples:
        >>> short_tag("ukr-Cyrl"), short_tag("zho-Hant"), short_tag("srp-Latn")
        ('uk', 'zh-Hant', 'sr-Latn')
    """
    tag = normalize_language(code)
    language = langcodes.Language.get(tag).language or tag
    return language if language_and_script(language) == language_and_script(tag) else tag


def subset_languages(metadata: Any, subset: str) -> list[str]:
    """The tags of the languages of a task's subset, in the order in which mteb states them.

    Args:
        metadata: mteb's metadata of the task.
        subset: the subset, or the column of one language in a task whose columns are languages.
    """
    stated = metadata.eval_langs
    codes = stated.get(subset, [subset]) if isinstance(stated, dict) else stated
    return list(dict.fromkeys(short_tag(code) for code in codes))


def subsets_in(metadata: Any, languages: Sequence[str]) -> dict[str, set[str]]:
    """The subsets of a task that have one of these languages, perhaps by another name (`zh` for `cmn`), each with
    those that it has.
    """
    wanted = {tag: language_and_script(tag) for tag in normalize_languages(list(languages))}
    found: dict[str, set[str]] = {}
    for subset in metadata.hf_subsets:
        try:
            present = {language_and_script(tag) for tag in subset_languages(metadata, subset)}
        except LanguageTagError:  # code
            continue
        if tags := {tag for tag, form in wanted.items() if form in present}:
            found[subset] = tags
    if not found:
        known = ", ".join(metadata.hf_subsets[:_NAMED])
        raise UnknownLanguageError(f"{metadata.name} has no texts in {', '.join(wanted)}; its subsets are {known}")
    return found


def language_of_texts(metadata: Any, subset: str, side: Callable[[], int]) -> str:
    """The language of the texts that a model is given.

    Args:
        metadata: mteb's metadata of the task.
        subset: the subset.
        side: tells, for pairs of texts in two languages, whether these are the first (0) or the second texts (1).
    """
    try:
        tags = subset_languages(metadata, subset)
    except LanguageTagError as error:
        raise MissingLanguageError(
            f"{_place(metadata, subset)}: {error}; give the language of its texts with language="
        ) from error
    forms = [language_and_script(tag) for tag in tags]
    if len(set(forms)) == 1:
        return tags[0]
    if pair := _pair(subset, forms) or (tags if len(tags) == 2 else None):
        if metadata.type in _PAIRS:
            return pair[side()]
    elif (named := _tag(subset)) and language_and_script(named) in forms:  # such as `no` of nor, nno and nob
        return named
    raise MissingLanguageError(
        f"{_place(metadata, subset)} has texts in {', '.join(tags)}, and mteb does not tell which of them a text has; "
        "give the language of its texts with language="
    )


def as_known(tag: str, known: Iterable[str]) -> str:
    """The name that a model has for a language: `zh` for `cmn` if it has learned `zh`; by default the tag itself."""
    names = list(known)
    same = [name for name in names if language_and_script(name) == language_and_script(tag)]
    return tag if tag in names or not same else same[0]


def _pair(subset: str, forms: list[tuple[str, str]]) -> list[str] | None:
    """The two languages that the name of a subset states, such as `de-en` or `acm_Arab-eng_Latn`."""
    parts = [_tag(part) for part in subset.split("-")]
    tags = [part for part in parts if part is not None]
    if len(parts) == len(tags) == 2 and {language_and_script(tag) for tag in tags} <= set(forms):
        return tags
    return None


def _tag(name: str) -> str | None:
    try:
        return short_tag(name)
    except LanguageTagError:
        return None


def _place(metadata: Any, subset: str) -> str:
    return f"{metadata.name}, subset {subset!r}"
