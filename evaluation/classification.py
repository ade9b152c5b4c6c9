"""Image classification with a dual encoder: zero-shot in any language, and by nearest neighbors.

    data = ClassifiedImages.of_folder("imagenet/val")
    labels = read_labels("babel_imagenet-298.json", data.classes, ["de", "sw"])
    evaluate_classification(Embedder.from_pretrained("runs/mural"), data, labels)["de"]["top1"]

In zero-shot classification, the embedding of a class is the normalized mean of the unit embeddings of its texts, one
for each template (Radford et al. 2021, section 3.1.4). Classes without a label in a language are left out with their
images, as in Babel-ImageNet, so languages with few labels have an easier task: compare results within a group of
languages, or between models. A class that ties with the correct one is ranked before it.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.corpus.files import read_json
from ..data.corpus.images import is_system_name, readable_images, skipped_line
from ..data.corpus.tables import table_rows
from ..inference.embedder import Embedder
from ..inference.pipelines import LABEL_ALONE, PHOTO_TEMPLATES, Prompts, check_templates, templates_of
from ..utils.errors import CorpusError, InputError, LanguageTagError, requires
from ..utils.language_matching import did_you_mean_language
from ..utils.languages import normalize_language, normalize_languages
from .ranking import QueryRanks, embedding_ranks, percent_within

logger = logging.getLogger(__name__)

Numbers = dict[str, Any]
Labels = dict[str, dict[int, str]]  # language -> class index -> label, without classes that have none

IMAGENET_CLASSES = 1000
_WORDNET_ID = re.compile(r"n\d{8}")
_CLASS = "class"  # the column with the names of the classes in a table of labels

# Babel-ImageNet uses BabelNet's names of languages, which follow Wikipedia where it deviates from BCP 47. Two of the
# names are tags of other languages: ALS is Alemannic (the tag als is Tosk Albanian), NRM is Norman (nrm is Narom).
_BABELNET = {
    "ALS": "gsw",
    "BAT_SMG": "sgs",
    "BE_X_OLD": "be-tarask",
    "EML": "egl",
    "FIU_VRO": "vro",
    "NRM": "nrf",
    "ROA_RUP": "rup",
    "SIMPLE": "en-simple",
    "ZH_CLASSICAL": "lzh",
    "ZH_MIN_NAN": "nan",
}


@dataclass(frozen=True)
class ClassifiedImages:
    """Image files [N], the class index of each [N], and the names of the classes [C]."""

    images: list[Path]
    targets: np.ndarray
    classes: list[str]

    @classmethod
    def of_folder(cls, folder: str | Path) -> "ClassifiedImages":
        """Reads a folder with a subfolder for each class, sorted by name, the usual layout of ImageNet's validation
        images. Hidden folders are ignored; unreadable images are skipped, with a warning that names them."""
        inside = Path(folder).glob("*") if Path(folder).is_dir() else ()
        folders = sorted(path for path in inside if path.is_dir() and not is_system_name(path.name))
        if not folders:
            raise CorpusError(f"{folder}: expected a folder with a subfolder of images for each class")
        files, skipped = [], dict[str, str]()
        for each in folders:
            of_class = dict[str, str]()
            files.append(readable_images(each, of_class))
            if not files[-1]:
                why = f". {skipped_line(of_class, 0)}" if of_class else ""
                raise CorpusError(f"{each}: no images of the class {each.name!r}{why}")
            skipped |= {f"{each.name}/{name}": reason for name, reason in of_class.items()}
        if skipped:
            logger.warning("%s", skipped_line(skipped, sum(map(len, files))))
        targets = np.repeat(np.arange(len(folders)), [len(found) for found in files])
        return cls([file for found in files for file in found], targets, [each.name for each in folders])

    def query_ranks(self, ranks: np.ndarray, rows: np.ndarray | None = None) -> QueryRanks:
        """The ranks [n] of the correct classes of all images, or of some `rows` [n], for comparing models."""
        chosen = list(range(len(self.images)) if rows is None else rows.tolist())
        files = [f"{row} {self.images[row].name}" for row in chosen]
        return QueryRanks.of_labels([self.classes[self.targets[row]] for row in chosen], files, ranks)

    def targets_among(self, classes: Sequence[str]) -> np.ndarray:
        """Returns for each image the index of its class in another list of classes, matched by name, [N]."""
        indices = {name: index for index, name in enumerate(classes)}
        if missing := [name for name in self.classes if name not in indices]:
            raise CorpusError(f"the training images have no class {missing[0]!r} ({len(missing)} classes are missing)")
        return np.array([indices[name] for name in self.classes])[self.targets]


def read_labels(
    file: str | Path, classes: Sequence[str], languages: str | list[str] | tuple[str, ...] | None = None
) -> Labels:
    """Reads the labels of `classes`, listed by index: language -> class index -> label, without languages that have
    none. The file is JSON, `{"de": {"cat": "Katze", "dog": "Hund"}, …}`; a TSV file with the header `class`, `en`,
    `de` and so on, whose cells may be empty; or Babel-ImageNet's `babel_imagenet-298.json`, `{"DE": [[0, 2, …],
    ["Schleie", …]], …}`, with the indices of ImageNet's classes."""
    path = Path(file)
    wanted = None if languages is None else normalize_languages(languages)
    table: dict[str, Any] = _table(path) if path.suffix == ".tsv" else read_json(path, dict)
    labels: Labels = {}
    for name, given in table.items():
        try:
            tag = normalize_language(_BABELNET.get(name, name) if isinstance(given, list) else name)
        except LanguageTagError as error:
            raise LanguageTagError(f"{path}: {error}") from None
        if tag in labels:
            raise CorpusError(f"{path}: {name}: the labels in {tag!r} occur twice")
        labels[tag] = _labels(given, classes, f"{path}: {name}") if wanted is None or tag in wanted else {}
    for language in wanted or ():
        if language not in labels:
            near = did_you_mean_language(language, list(labels))
            raise CorpusError(f"{path}: no labels in {language!r}{near or ', only in ' + ', '.join(labels)}")
    found = {language: labels[language] for language in wanted or labels if labels[language]}
    if not found:
        raise CorpusError(f"{path}: no class has a label")
    return found


def _table(file: Path) -> dict[str, dict[str, str]]:
    """Reads a table: language -> class -> label, without empty cells."""
    labels: dict[str, dict[str, str]] = {}
    names, rows = table_rows(file)
    for line, cells in rows:
        record = dict(zip(names, cells, strict=True))
        name = record.pop(_CLASS, None)
        if not name:
            raise CorpusError(f"{file} line {line}: there is no class; the header must begin with {_CLASS!r}")
        for language, label in record.items():
            column = labels.setdefault(language, {})
            if name in column:
                raise CorpusError(f"{file} line {line}: the class {name!r} occurs twice")
            if label and not label.isspace():
                column[name] = label
    return labels


def _labels(given: Any, classes: Sequence[str], place: str) -> dict[int, str]:
    """The labels of one language, by the names of the classes or in the form of Babel-ImageNet."""
    indices = {name: index for index, name in enumerate(classes)}
    if isinstance(given, dict):
        if unknown := [name for name in given if name not in indices]:
            raise CorpusError(f"{place}: there are no images of the class {unknown[0]!r}")
        pairs = [(indices[name], label) for name, label in given.items()]
    else:
        if not isinstance(given, list) or list(map(type, given)) != [list, list] or len(given[0]) != len(given[1]):
            raise CorpusError(
                f'{place}: expected labels by class, such as {{"cat": "Katze"}}, or two lists of the same length'
            )
        if len(classes) != IMAGENET_CLASSES and all(map(_WORDNET_ID.fullmatch, classes)):
            raise CorpusError(
                f"{place}: the labels use the indices of ImageNet's {IMAGENET_CLASSES:,} classes, but the folder has "
                f"{len(classes):,} classes; use labels by name"
            )
        pairs = list(zip(*given, strict=True))
        for index, _ in pairs:
            if type(index) is not int or not 0 <= index < len(classes):
                raise CorpusError(f"{place}: there is no class {index!r} among {len(classes):,}")
        if len(set(given[0])) < len(pairs):
            raise CorpusError(f"{place}: a class occurs twice")
    for _, label in pairs:
        if not isinstance(label, str) or not label or label.isspace():
            raise CorpusError(f"{place}: {label!r} is not a label of a class")
    return dict(sorted(pairs))


def read_prompts(file: str | Path) -> Prompts:
    """Reads prompts as in Babel-ImageNet's JSON of translated prompts: `{"de": ["ein Foto von {}.", …], …}`."""
    prompts: dict[str, list[str]] = {}
    for tag, templates in read_json(Path(file), dict).items():
        if not isinstance(templates, list) or not all(isinstance(template, str) for template in templates):
            raise InputError(f'{file}: {tag}: expected a list of templates, such as ["a photo of a {{}}."]')
        prompts.setdefault(normalize_language(tag), []).extend(templates)
    check_templates((template for templates in prompts.values() for template in templates), str(file))
    return prompts


# ---- Prompts of zero-shot classification: templates in which `{}` is replaced by the label of a class ----
#
#     photo   one template for each of some forty languages, such as "This is a photo of {}." (`pipelines`)
#     clip    the 80 English templates with which CLIP classifies ImageNet (Radford et al. 2021), which ETCL's paper
#             had translated by machine (Lee et al. 2022, appendix A.4)
#     label   no template: the text is only the label
#
# Languages without a template use only the labels. An English sentence around a foreign label would mix languages;
# Babel-ImageNet's published results follow the same rule (Geigle et al. 2024).

PHOTO, CLIP, LABEL = PROMPT_SETS = ("photo", "clip", "label")


def prompt_set(name: str) -> Prompts:
    if name not in PROMPT_SETS:
        raise InputError(f"there are no prompts named {name!r}; choose one of {', '.join(PROMPT_SETS)}")
    if name == CLIP:
        return json.loads(Path(__file__).with_name("clip_prompts.json").read_text("utf-8"))
    return PHOTO_TEMPLATES if name == PHOTO else {}


# ---- Classification ----


def evaluate_classification(
    embedder: Embedder,
    data: ClassifiedImages,
    labels: Labels,
    *,
    prompts: Prompts | str = PHOTO,
    image_embeddings: np.ndarray | None = None,
    ranks: dict[str, QueryRanks] | None = None,
) -> dict[str, Numbers]:
    """Classifies images, by their embeddings [N, d] if given, by the labels of their classes, language by language.
    `prompts` are the templates of each language, or the name of one of `PROMPT_SETS`; languages without a template use
    only the labels, with a warning. `ranks` receives the rank of each image's class, by language. Returns for each
    language `top1` and `top5`, the accuracy in percent (`top5` only for more than five classes); `n_classes` and
    `n_images`, of classes with a label; `n_templates`, 0 if only labels are used; and `n_equal_labels`, the number of
    classes that share their label, whose images are never classified correctly."""
    given = prompt_set(prompts) if isinstance(prompts, str) else prompts
    templates = {language: templates_of(language, given) for language in labels}
    if prompts != LABEL and (missing := [language for language in labels if not templates[language]]):
        logger.warning("no template in %s: only the labels are used", ", ".join(missing))
    if image_embeddings is None:
        image_embeddings = embedder.encode_image(data.images)
    results = {}
    for language, named in labels.items():
        texts, used = list(named.values()), templates[language] or [LABEL_ALONE]
        classes = class_embeddings(embedder, texts, used, language)
        row_of = {index: row for row, index in enumerate(named)}
        rows = np.flatnonzero(np.isin(data.targets, list(named)))
        right = [[row_of[index]] for index in data.targets[rows].tolist()]
        found = embedding_ranks(classes, image_embeddings[rows], right).text_to_image  # the images are the queries
        if ranks is not None:
            ranks[language] = data.query_ranks(found, rows)
        results[language] = {f"top{k}": percent_within(found, k) for k in (1, 5) if k == 1 or len(named) > k}
        counts = {"n_classes": len(named), "n_images": len(rows), "n_templates": len(templates[language])}
        results[language] |= counts
        if equal := sum(count for count in Counter(texts).values() if count > 1):
            results[language]["n_equal_labels"] = equal
    return results


def class_embeddings(embedder: Embedder, labels: Sequence[str], templates: Sequence[str], language: str) -> np.ndarray:
    """The embeddings of classes, [C, d], of unit length: for each class, the normalized mean of the unit embeddings of
    its texts, one for each template, in which `{}` is replaced by the label."""
    texts = [template.replace(LABEL_ALONE, label) for label in labels for template in templates]
    embeddings = embedder.encode_text(texts, language=language)
    means = embeddings.reshape(len(labels), len(templates), -1).mean(1)  # [C * T, d] -> [C, d]
    return means / np.linalg.norm(means, axis=1, keepdims=True).clip(min=np.finfo(np.float32).tiny)


# The groups of ETCL's paper (Lee et al. 2022, section 4.1), in addition to all languages.
ETCL_GROUPS: Mapping[str, Sequence[str]] = {
    "well-resourced": ("en", "de", "fr", "cs", "ja", "zh", "ru", "pl", "tr"),
    "under-resourced": ("uz", "ga", "be", "mg", "ceb"),
}
# The groups of Babel-ImageNet's paper (Geigle et al. 2024): the largest number of ImageNet classes with a label.
_BABEL_IMAGENET_GROUPS = {"low": 333, "mid": 667, "high": IMAGENET_CLASSES}


def language_groups(labels: Labels, n_classes: int) -> dict[str, Sequence[str]]:
    """Returns the papers' groups of languages: ETCL's `well-resourced` and `under-resourced`; for ImageNet's 1,000
    classes also Babel-ImageNet's `low`, `mid` and `high`, by the number of classes with a label, without English."""
    groups, least = dict(ETCL_GROUPS), 0
    for name, most in _BABEL_IMAGENET_GROUPS.items() if n_classes == IMAGENET_CLASSES else ():
        groups[name] = [tag for tag, named in labels.items() if tag != "en" and least < len(named) <= most]
        least = most
    return groups


def group_means(results: Mapping[str, Numbers], groups: Mapping[str, Sequence[str]]) -> Numbers:
    """Returns the mean `top1` and `top5` over the `languages` of each group of `language_groups`, and of `all`."""
    means: Numbers = {}
    for name, languages in {"all": list(results), **groups}.items():
        if present := [language for language in languages if language in results]:
            each = [results[language] for language in present]
            measures = [measure for measure in ("top1", "top5") if all(measure in numbers for numbers in each)]
            means[name] = {measure: float(np.mean([one[measure] for one in each])) for measure in measures}
            means[name]["languages"] = present
    return means


def neighbor_accuracy(
    train: np.ndarray,
    train_targets: np.ndarray,
    test: np.ndarray,
    test_targets: np.ndarray,
    *,
    neighbors: int,
    ranks: list[int] | None = None,
) -> Numbers:
    """Classifies images [N, d] by a vote of the nearest labelled images, by cosine, without texts; targets are classes
    [N]. Returns `top1` in percent, `neighbors`, `n_train` and `n_images`. ETCL's paper (appendix A.3) uses the class
    of the nearest image, `neighbors=1`. If classes tie, the lowest index wins, as in scikit-learn. `ranks` receives
    for each classified image 1 if its class was predicted correctly, otherwise 2."""
    with requires("scikit-learn"):
        from sklearn.neighbors import KNeighborsClassifier

    if not 1 <= neighbors <= len(train):
        raise InputError(f"there are only {len(train):,} images for neighbors={neighbors:,}")
    classifier = KNeighborsClassifier(neighbors, metric="cosine", algorithm="brute")
    found = np.where(classifier.fit(train, train_targets).predict(test) == test_targets, 1, 2)
    if ranks is not None:
        ranks += found.tolist()
    counts = {"neighbors": neighbors, "n_train": len(train), "n_images": len(test)}
    return {"top1": percent_within(found, 1)} | counts
