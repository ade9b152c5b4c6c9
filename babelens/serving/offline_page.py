"""A search without a server: a folder with a page, small images, and what the page needs to search them.

    index.html, page.js, page.css, icon.svg     the page; it is opened as a file, or put on any static server
    search.js                                   the vectors of all images, 8 bits a value, the names of their files;
                                                and the vectors of the native words of all glossaries
    images/                                     small images
    languages/TAG.js                            the map and the glossary of each language, loaded when it is chosen

Texts are read by a model of ridge regression without a text encoder: the vectors of a text's character n-grams are
summed, which takes a page a few lines of JavaScript (`offline/ngrams.js`) and no runtime. Two things make it small:

- An embedding of a text lies in the span of the mean and of the model's first directions. Images are turned into that
  span: with a width of 128, products with texts of 127 directions stay what they are.
- A text sums some hundred vectors, whose errors of rounding cancel out: two bits a value are enough, with a factor for
  each row and each column. The four levels are those of Lloyd and Max for a normal distribution.
"""

import base64
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..configuration.errors import ArgumentError, ModelKindError, UnknownLanguageError
from ..configuration.identity import file_digest
from ..configuration.languages import normalize_languages
from ..configuration.locks import check_new, new_folder
from ..inference.embedder import Embedder
from ..inference.image_index import ImageIndex
from ..modeling.modeling_dual_encoder import normalize
from ..modeling.modeling_ridge import RidgeMaps, RidgeModel
from ..processing.glossary import Glossary, words_of
from ..processing.images import open_image
from ..processing.processing_ridge import RidgeProcessor
from ..trainers.ridge import learn

logger = logging.getLogger(__name__)

WIDTH = 128
LEVELS = (-1.51, -0.4528, 0.4528, 1.51)  # as in ngrams.js
_SHARED = ("page.css", "icon.svg")
_SCRIPTS = ("static/strings.js", "static/languages.js", "offline/glossary.js", "offline/ngrams.js", "offline/page.js")
_PIXELS = 320  # the longer side of an image


@dataclass(frozen=True)
class OfflinePage:
    """What was written.

    Args:
        folder: the folder; its `index.html` is the page.
        images: the number of different images; files with the same content are one.
        languages: the languages of queries.
        bytes: the size of all files.
        width: the number of values of an embedding.
        glossaries: the languages that have one.
        skipped: why images were left out.
    """

    folder: Path
    images: int
    languages: tuple[str, ...]
    bytes: int
    width: int
    glossaries: tuple[str, ...]
    skipped: tuple[str, ...]


def export_offline(
    source: str | Path,
    output: str | Path,
    images: str | Path,
    *,
    languages: Sequence[str] = (),
    native_texts: Sequence[str] = (),
    width: int = WIDTH,
    title: str = "",
    **loading: Any,
) -> OfflinePage:
    """Writes a page that searches the images of a folder without a server.

    Args:
        source: a model of `babelens acquire --way ridge` without a text encoder.
        output: a new folder.
        images: the folder of images.
        languages: those of queries; by default all that the model has learned.
        native_texts: sentences in the native language of the model, from which the page learns to read it, and texts
            that are translated word by word; the page does not have its text tower.
        width: number of values of an embedding; of a text, the mean and `width - 1` directions are kept.
        title: of the page.
        loading: what `Embedder.from_pretrained` takes, such as `trust_remote_code`.

    Raises:
        ArgumentError: if the folder exists, or for a width below 2.
        BadImageError: for an image that cannot be read.
        CorpusError: if there is no image, or for fewer than ten native sentences.
        ModelKindError: for a model whose texts a page cannot read.
        UnknownLanguageError: for a language that the model has not learned.

    Examples:
        >>> export_offline("clip-uk", "page", "photos").languages
        ('uk',)
    """
    output = Path(output)
    check_new(output)
    if width < 2:
        raise ArgumentError(f"width={width}: an embedding of a page has at least 2 values")
    embedder = Embedder.from_pretrained(source, device="cpu", **loading)
    model, processor = embedder.model, embedder.processor
    if not isinstance(model, RidgeModel) or not isinstance(processor, RidgeProcessor) or model.text_model is not None:
        raise ModelKindError(
            f"{source} reads texts by a neural network, which is too large for a page: teach the languages by "
            "`babelens acquire` without --text-encoder, which reads their characters alone"
        )
    index = ImageIndex.of_folder(embedder, Path(images))
    wanted = normalize_languages(list(languages)) or list(model.config.languages)
    native = processor.native_language
    if native_texts:
        learned = learn(model, processor, {native: (list(native_texts), list(native_texts))}, glossaries=False)
        if warning := replace(learned[native], zero_shot=None).warning(native):  # the page lacks the native model
            logger.warning("%s", warning)
        wanted = [native, *(tag for tag in wanted if tag != native)]
    known = list(model.config.languages)
    if missing := [tag for tag in wanted if tag not in known]:
        hint = f"; sentences in {native} teach it: --texts" if native in missing else ""
        raise UnknownLanguageError(f"{source} has not learned {', '.join(missing)} by its characters{hint}")
    basis = _basis(model.maps, width)
    kept = {tag: read for tag in wanted if (read := _glossary(model, processor, tag))}
    words = native_words(glossary for glossary, _ in kept.values())
    vectors_of_words = None
    if words:
        met = word_frequencies(model, processor, {tag: glossary for tag, (glossary, _) in kept.items()}, words)
        vectors_of_words = word_vectors(embedder, model.maps, words, met, native_texts, len(basis) - 1)
    glossaries = tuple(kept)
    if words and native_texts:  # native texts consist of the same words
        kept[native] = Glossary({word: word for word in words}), 1.0
    with new_folder(output) as folder:
        (folder / "languages").mkdir()
        for tag in wanted:
            arguments: list[Any] = [tag, _base64(_packed(_rows(model.maps, 1 + known.index(tag), len(basis) - 1)))]
            if tag in kept:
                glossary, weight = kept[tag]
                arguments += [weight, packed_glossary(glossary, words)]
            call = f"learned({', '.join(json.dumps(each, ensure_ascii=False) for each in arguments)});\n"
            (folder / "languages" / f"{tag}.js").write_text(call, encoding="utf-8")
        different = _different(index.paths)
        described = _write_images(
            folder, {index.paths[row]: copies for row, copies in different.items()}, Path(images)
        )
        vectors, scales = _in_bytes(index.embeddings[list(different)] @ basis.numpy().T)
        search: dict[str, Any] = {
            "title": title,
            "model": Path(source).name,
            "languages": wanted,
            "space": _space(model.maps, basis),
            "images": [each | {"scale": float(scale)} for each, scale in zip(described, scales, strict=True)],
            "vectors": _base64(vectors.tobytes()),
        }
        if vectors_of_words is not None:
            values, factors = _in_bytes(vectors_of_words.numpy())
            search |= {"words": words, "wordVectors": _base64(values.tobytes())}
            search["wordScales"] = [float(f"{factor:.4g}") for factor in factors]
        (folder / "search.js").write_text(f"const SEARCH = {json.dumps(search)};\n", encoding="utf-8")
        _write_page(folder)
        size = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
    skipped = tuple(index.skipped.values())
    return OfflinePage(output, len(described), tuple(wanted), size, len(basis), glossaries, skipped)


def _glossary(model: RidgeModel, processor: RidgeProcessor, language: str) -> tuple[Glossary, float] | None:
    """The glossary by which texts in a language are read, and its weight; None without one."""
    glossary = processor.glossary_of(language)
    weights = list(model.config.gloss_weights)
    weight = weights[1 + list(model.config.languages).index(language)] if weights else 0.0
    return (glossary, weight) if glossary is not None and weight > 0 else None


def _basis(maps: RidgeMaps, width: int) -> Tensor:
    """Unit vectors [width, d] whose span holds the embeddings of texts: the first directions, and what they leave of
    the mean."""
    directions = maps.directions.float()[: width - 1]
    left = maps.mean.float() - directions.T @ (directions @ maps.mean.float())
    return torch.cat([directions, normalize(left[None])])


def _space(maps: RidgeMaps, basis: Tensor) -> dict[str, Any]:
    """What the page needs to embed a text."""
    return {
        "rows": maps.ngrams.shape[1],
        "shortest": maps.shortest,
        "longest": maps.longest,
        "directions": len(basis) - 1,
        "mean": [round(value, 7) for value in (basis @ maps.mean.float()).tolist()],
        "radius": float(maps.radius),
    }


def _rows(maps: RidgeMaps, index: int, directions: int) -> Tensor:
    """The vectors [rows, directions] of a language's n-grams, with the importance of each."""
    factors, importance = maps.factors[index, :directions].float(), maps.importance[index].float()
    return importance[:, None] * maps.ngrams[index, :, :directions].float() * factors


def _packed(rows: Tensor) -> bytes:
    """The vectors of n-grams [rows, k] in two bits a value, four of them in a byte, the first one lowest; before them
    stand a float32 for each column and a whole number of 16 bits for each row, by which they are multiplied."""
    scale = rows.square().mean(1).sqrt()  # [rows]
    unit = rows / scale.clamp(min=1e-12)[:, None]
    spread = unit[scale > 0].square().mean(0).sqrt() if scale.any() else torch.ones(rows.shape[1])
    levels = torch.tensor(LEVELS)
    codes = torch.bucketize(unit / spread.clamp(min=1e-12), (levels[1:] + levels[:-1]) / 2).flatten().to(torch.uint8)
    codes = torch.nn.functional.pad(codes, (0, -len(codes) % 4)).view(-1, 4)
    step = scale.max().clamp(min=1e-12) / 65535
    whole = (scale / step).round().numpy().astype("<u2")
    shifted = (codes << torch.tensor([0, 2, 4, 6], dtype=torch.uint8)).sum(1, dtype=torch.uint8)
    return (spread * step).numpy().astype("<f4").tobytes() + whole.tobytes() + shifted.numpy().tobytes()


def _in_bytes(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors [n, width] as whole numbers of 8 bits, and the factor of each [n]."""
    scales = np.maximum(np.abs(vectors).max(1), 1e-12) / 127
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


def _different(paths: Sequence[Path]) -> dict[int, int]:
    """The position of each file, and of several with the same content of the first, with the number of the others."""
    alike: dict[str, list[int]] = {}
    for position, path in enumerate(paths):
        alike.setdefault(file_digest(path), []).append(position)
    return {positions[0]: len(positions) - 1 for positions in alike.values()}


def _write_images(folder: Path, chosen: Mapping[Path, int], images: Path) -> list[dict[str, Any]]:
    """Writes small images, without what their files say about place and time, and returns their names, and the numbers
    of their copies."""
    (folder / "images").mkdir()
    described = []
    for number, (path, copies) in enumerate(chosen.items()):
        small = open_image(path.read_bytes())
        small.thumbnail((_PIXELS, _PIXELS), reducing_gap=2.0)
        name = f"images/{number}.webp"
        small.save(folder / name, "WEBP", quality=80)
        described.append({"file": path.relative_to(images).as_posix(), "thumbnail": name, "copies": copies})
    return described


def _write_page(folder: Path) -> None:
    """Writes the page, with its modules in one script: browsers load no modules from files."""
    own = files(__package__)
    for name in _SHARED:
        (folder / name).write_bytes((own / "static" / name).read_bytes())
    (folder / "index.html").write_bytes((own / "offline" / "page.html").read_bytes())
    scripts = [(own / name).read_text(encoding="utf-8") for name in _SCRIPTS]
    joined = re.sub(r"^import .*\n|^export ", "", "\n".join(scripts), flags=re.MULTILINE)
    (folder / "page.js").write_text(joined, encoding="utf-8")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


# ---- Glossaries ----
# A text that is translated word by word is read by the native model's text tower, which is too large for a page. Such
# a text is a bag of words, though, all of them words of the glossaries: a vector for each, learned by ridge regression
# from what the tower makes of them, gives the direction of its embedding well enough, and takes 127 bytes a word. The
# tower is asked for each word alone, for random phrases of them, in which each is as frequent as in the sentences that
# the languages were learned from, and for sentences in its language, if there are some. Frequencies matter: by phrases
# in which all words are alike, 0.89 of what the whole model finds was found, and by these 0.94.

_PHRASES, _PHRASES_A_WORD = 8000, 50  # at most
_LONGEST = 8  # words of a phrase
_A_SENTENCE = 5.0  # phrases as which a sentence counts
_AT_ONCE = 4096  # words whose n-grams are looked up
_STRENGTH = 1.0
_STEPS = 200  # of conjugate gradients; some sixty are taken
_MOST_SHARED = 35  # characters that a word shares with the one before; one digit to the base of 36
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def native_words(glossaries: Iterable[Glossary]) -> list[str]:
    """All native words of some glossaries, sorted."""
    return sorted(set().union(*(each.native_words for each in glossaries)))


def word_frequencies(
    model: RidgeModel, processor: RidgeProcessor, glossaries: Mapping[str, Glossary], words: Sequence[str]
) -> np.ndarray:
    """How frequent native words were in the sentences that languages were learned from.

    The importance of a row tells in how many of a language's sentences its n-grams were. A word was in no more than
    its rarest n-gram, and a native word is as frequent as all words that are translated by it.

    Args:
        model: the model.
        processor: its processor.
        glossaries: the glossary of each language.
        words: native words.

    Returns:
        Frequencies [words], whose sum is 1, the mean of all languages.
    """
    places = {word: place for place, word in enumerate(words)}
    found = np.zeros(len(words))
    for language, glossary in glossaries.items():
        entries = [(word, native.lower().split()) for word, native in glossary.entries.items() if native]
        importance = model.maps.importance[1 + list(model.config.languages).index(language)].float()
        own = np.zeros(len(words))
        for start in range(0, len(entries), _AT_ONCE):
            some = entries[start : start + _AT_ONCE]
            rows, kept = model.maps.rows_of(processor.characters([word for word, _ in some], language))
            rarest = importance[rows].masked_fill(~kept, 0).amax(1)
            for (_, natives), share in zip(some, rarest.neg().exp().tolist(), strict=True):
                for each in natives:
                    own[places[each]] += share
        found += own / own.sum()
    return found / found.sum()


def word_vectors(
    embedder: Embedder,
    maps: RidgeMaps,
    words: Sequence[str],
    frequencies: np.ndarray,
    sentences: Sequence[str],
    directions: int,
) -> Tensor:
    """Learns vectors of native words. The direction of a text translated word by word is that of their sum, in which a
    word that occurs n times counts log(1 + n) times.

    Args:
        embedder: the model, which embeds native texts.
        maps: its maps.
        words: native words.
        frequencies: of the words [words], whose sum is 1.
        sentences: native sentences from which is learned, too; none are needed.
        directions: how many of the directions of the maps are kept.

    Returns:
        Vectors [words, directions].
    """
    random = np.random.default_rng(0)
    sizes = random.integers(2, _LONGEST + 1, min(_PHRASES, _PHRASES_A_WORD * len(words)))
    drawn = np.split(random.choice(len(words), sizes.sum(), p=frequencies), np.cumsum(sizes)[:-1])
    phrases = [[words[place] for place in phrase] for phrase in drawn]
    read = [*words, *map(" ".join, phrases), *sentences]
    bags = [[word] for word in words] + phrases + [words_of(each) for each in sentences]
    embeddings = embedder.encode_text(read, language=embedder.processor.native_language)
    targets = maps.direction_of(torch.from_numpy(embeddings))[:, :directions]
    places = {word: place for place, word in enumerate(words)}
    for bag in bags:
        for word in bag:
            places.setdefault(word, len(places))
    seen = Counter(word for bag in bags for word in set(bag))
    importance = torch.tensor([math.log((1 + len(bags)) / (1 + seen[word])) + 1 for word in places])
    lengths = torch.ones(len(bags))
    lengths[len(bags) - len(sentences) :] = _A_SENTENCE**0.5
    features = _features(bags, places, importance, lengths)
    return (_ridge(features, lengths[:, None] * targets) * importance[:, None])[: len(words)]


def _features(bags: Sequence[Sequence[str]], places: Mapping[str, int], importance: Tensor, lengths: Tensor) -> Tensor:
    """Bags of words as rows of a sparse matrix [bags, words], of these lengths [bags]."""
    rows, columns, values = [], [], []
    for row, bag in enumerate(bags):
        counts = {places[word]: math.log1p(count) for word, count in Counter(bag).items()}
        weights = torch.tensor(list(counts.values())) * importance[list(counts)]
        rows += [row] * len(counts)
        columns += list(counts)
        values += (lengths[row] * weights / weights.norm().clamp(min=1e-12)).tolist()
    size = (len(bags), len(places))
    return torch.sparse_coo_tensor(torch.tensor([rows, columns]), values, size, check_invariants=True).coalesce()


def _ridge(features: Tensor, targets: Tensor) -> Tensor:
    """Solves (X'X + λ) W = X'Y by conjugate gradients, column by column at once."""
    across = features.t().coalesce()
    left = torch.sparse.mm(across, targets)
    found, step, size = torch.zeros_like(left), left.clone(), left.square().sum(0)
    enough = 1e-10 * size
    for _ in range(_STEPS):
        if bool((size <= enough).all()):
            break
        image = torch.sparse.mm(across, torch.sparse.mm(features, step)) + _STRENGTH * step
        length = size / (step * image).sum(0).clamp(min=1e-30)
        found, left = found + length * step, left - length * image
        before, size = size, left.square().sum(0)
        step = left + size / before.clamp(min=1e-30) * step
    return found


def packed_glossary(glossary: Glossary, words: Sequence[str]) -> str:
    """A glossary as lines in the order of its words: how many characters a word shares with the one before (a digit to
    the base of 36), the others, a tab, and the positions of its native words, in lower case, among `words`, to the
    base of 36.

    Examples:
        >>> packed_glossary(Glossary({"hund": "dog", "hunde": "dogs", "im": ""}), ["a", "dog", "dogs"])
        '0hund\\t1\\n4e\\t2\\n0im\\t'
    """
    places = {word: place for place, word in enumerate(words)}
    lines, before = [], ""
    for word in sorted(glossary.entries):
        shared = 0
        while shared < min(len(word), len(before), _MOST_SHARED) and word[shared] == before[shared]:
            shared += 1
        native = " ".join(_base36(places[each]) for each in glossary.entries[word].lower().split())
        lines.append(f"{_DIGITS[shared]}{word[shared:]}\t{native}")
        before = word
    return "\n".join(lines)


def _base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, last = divmod(number, 36)
        digits = _DIGITS[last] + digits
    return digits
