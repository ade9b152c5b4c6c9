"""Translations of the captions of photographs, by translators that learn from the translations of other photographs:
what stands in for the paper's, by Google, in the experiment of SMALR on photographs (`photo_smalr.py`).

    pip install eflomal
    python benchmarks/photo_translations.py --train TRAIN --others TEST VALIDATION --translations TRANSLATIONS \
        --output translations.jsonl

TRAIN, TEST and VALIDATION are folders of photographs with captions, and TRANSLATIONS is a JSON file of
{image_id: {language: sentence}}, whose sentences translate each other. A translator knows phrases and their
frequencies (Koehn et al. 2003, without reordering) and which word follows which. Photographs of TRAIN are divided into
two halves; what one half teaches translates the captions of the other, so that no caption is translated by what has
seen a translation for its photograph. A text of which no word is known stays as it is. The first half also translates
those of the other folders, between any two languages; how alike its translations are to those by people is printed
(chrF and BLEU).
"""

import argparse
import json
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import datasets
import eflomal
from sacrebleu.metrics import BLEU, CHRF

from babelens.processing.word_tokenizers import split_words

# Table 4 of the paper, for the captions of training.
TRAINED = [("en", "de"), ("en", "fr"), ("en", "cs"), ("de", "en"), ("fr", "en"), ("cs", "en")]
LONGEST = 4  # words of a phrase
OPTIONS = 8  # translations of a phrase
BEAM = 6
LM, WORD, PHRASE, BACKWARD = 0.7, 0.4, -0.3, 0.5  # weights; only these were tried
START, END = "<s>", "</s>"

Phrase = tuple[str, ...]
Links = set[tuple[int, int]]


class LanguageModel:
    """How probable a word is after another, by captions; of pairs that were not seen, by the word alone."""

    def __init__(self, sentences: Iterable[Phrase]) -> None:
        self.words: Counter[str] = Counter()
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.before: Counter[str] = Counter()
        for sentence in sentences:
            whole = (START, *sentence, END)
            self.words.update(whole[1:])
            self.pairs.update(pairwise(whole))
            self.before.update(whole[:-1])
        self.followers = Counter(first for first, _ in self.pairs)
        self.total = sum(self.words.values())
        self._known: dict[tuple[str, str], float] = {}

    def __call__(self, first: str, second: str) -> float:
        """The logarithm, by Witten and Bell's interpolation."""
        if (pair := (first, second)) not in self._known:
            alone = (self.words[second] + 0.1) / (self.total + 0.1 * len(self.words))
            unseen = self.followers[first]
            seen = self.pairs[pair] + unseen * alone
            self._known[pair] = math.log(seen / (self.before[first] + unseen) if unseen else alone)
        return self._known[pair]


def aligned(sources: Sequence[Phrase], targets: Sequence[Phrase]) -> list[Links]:
    """Which words translate which: the links of both directions, grown from those in which they agree."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("source", "target", "forward", "reverse")]
        for file, sentences in zip(files, (sources, targets), strict=False):
            file.write_text("".join(" ".join(each) + "\n" for each in sentences), encoding="utf-8")
        with files[0].open(encoding="utf-8") as source, files[1].open(encoding="utf-8") as target:
            names = {"links_filename_fwd": str(files[2]), "links_filename_rev": str(files[3])}
            eflomal.Aligner().align(source, target, **names)
        ways = [[_links(line) for line in file.read_text().split("\n")[: len(sources)]] for file in files[2:]]
    return [_grown(forward, reverse) for forward, reverse in zip(*ways, strict=True)]


def _links(line: str) -> Links:
    return {(int(a), int(b)) for a, b in (each.split("-") for each in line.split())}


def _grown(forward: Links, reverse: Links) -> Links:
    links, union = forward & reverse, forward | reverse
    grew = True
    while grew:
        grew = False
        for a, b in sorted(union - links):
            near = any((a + i, b + j) in links for i in (-1, 0, 1) for j in (-1, 0, 1))
            is_free = all(a != other for other, _ in links) or all(b != other for _, other in links)
            if near and is_free:
                links.add((a, b))
                grew = True
    return links


def phrases(source: Phrase, target: Phrase, links: Links) -> Iterable[tuple[Phrase, Phrase]]:
    """Every two phrases whose words are linked to each other and to nothing else."""
    for first in range(len(source)):
        for last in range(first, min(first + LONGEST, len(source))):
            reached = [b for a, b in links if first <= a <= last]
            if not reached:
                continue
            begin, end = min(reached), max(reached)
            if end - begin > LONGEST or any(begin <= b <= end and not first <= a <= last for a, b in links):
                continue
            linked = {b for _, b in links}
            for start in range(begin, -1, -1):
                if start != begin and start in linked:
                    break
                for stop in range(end, len(target)):
                    if (stop != end and stop in linked) or stop - start > LONGEST:
                        break
                    yield source[first : last + 1], target[start : stop + 1]


class PhraseTranslator:
    """Translates phrase by phrase, in the order of the source, and leaves out words that it does not know.

    Args:
        sources, targets: sentences, in words, that translate each other.
        model: of the target language.
    """

    def __init__(self, sources: Sequence[Phrase], targets: Sequence[Phrase], model: LanguageModel) -> None:
        self.model = model
        found: Counter[tuple[Phrase, Phrase]] = Counter()
        for source, target, links in zip(sources, targets, aligned(sources, targets), strict=True):
            found.update(phrases(source, target, links))
        totals: Counter[Phrase] = Counter()
        reverse: Counter[Phrase] = Counter()
        for (source, target), count in found.items():
            totals[source] += count
            reverse[target] += count
        options: defaultdict[Phrase, list[tuple[float, Phrase]]] = defaultdict(list)
        for (source, target), count in found.items():
            forward, backward = (count - 0.5) / totals[source], (count - 0.5) / reverse[target]
            inner = sum(model(a, b) for a, b in pairwise(target))
            score = math.log(forward) + BACKWARD * math.log(backward) + LM * inner + WORD * len(target) + PHRASE
            options[source].append((score, target))
        self.options = {source: sorted(each, reverse=True)[:OPTIONS] for source, each in options.items()}

    def translate(self, words: Phrase) -> str:
        """The most probable translation that a beam search finds; empty when no word is known."""
        model, options = self.model, self.options
        known = [word for word in words if (word,) in options]
        # Of each number of words that are translated: the last word -> (score, the translation before it).
        beams: list[dict[str, tuple[float, Phrase]]] = [{} for _ in range(len(known) + 1)]
        beams[0][START] = (0.0, ())
        for place in range(len(known)):
            best = sorted(beams[place].items(), key=lambda each: -each[1][0])[:BEAM]
            for stop in range(place + 1, min(place + LONGEST, len(known)) + 1):
                beam = beams[stop]
                for own, target in options.get(tuple(known[place:stop]), ()):
                    end = target[-1]
                    for last, (score, before) in best:
                        new = score + own + LM * model(last, target[0])
                        if end not in beam or beam[end][0] < new:
                            beam[end] = new, before + target
        ended = ((score + LM * model(last, END), whole) for last, (score, whole) in beams[-1].items())
        return " ".join(max(ended, default=(0.0, ()))[1])


class Half:
    """The translators that some photographs teach, each when it is first asked for.

    Args:
        translations: of each photograph, the sentences that translate each other, by their languages.
        captions: of the same photographs, as (language, text); the models of languages read them as well.
    """

    def __init__(self, translations: Sequence[dict[str, str]], captions: Iterable[tuple[str, str]]) -> None:
        self.sentences = {tag: [words_of(each[tag], tag) for each in translations] for tag in translations[0]}
        said = {tag: list(sentences) for tag, sentences in self.sentences.items()}
        for tag, text in captions:
            said[tag].append(words_of(text, tag))
        self.models = {tag: LanguageModel(sentences) for tag, sentences in said.items()}
        self._translators: dict[tuple[str, str], PhraseTranslator] = {}

    def translate(self, text: str, source: str, target: str) -> str:
        if (pair := (source, target)) not in self._translators:
            sentences = self.sentences[source], self.sentences[target]
            self._translators[pair] = PhraseTranslator(*sentences, self.models[target])
        return self._translators[pair].translate(words_of(text, source)) or text


def words_of(text: str, language: str) -> Phrase:
    return tuple(split_words(text.lower(), language))


def captions_of(folder: str) -> dict[str, list[tuple[str, str]]]:
    """The captions of each photograph of a folder, as (language, text)."""
    corpus = datasets.load_dataset(folder, split="train").select_columns(["image_id", "captions"])
    return {row["image_id"]: [(each["language"], each["text"]) for each in row["captions"]] for row in corpus}


def compare(half: Half, translations: Sequence[dict[str, str]]) -> None:
    """Prints how alike translations are to those by people, in words without case and punctuation."""
    print("| from | to | chrF | BLEU |\n|---|---|--:|--:|")
    for source in translations[0]:
        for target in translations[0]:
            if source != target:
                found = [half.translate(each[source], source, target) for each in translations]
                right = [[" ".join(words_of(each[target], target)) for each in translations]]
                scores = [metric.corpus_score(found, right).score for metric in (CHRF(), BLEU(tokenize="none"))]
                print(f"| {source} | {target} | {scores[0]:.1f} | {scores[1]:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("train", "translations", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--others", nargs="+", default=[])
    parser.add_argument("--compare", action="store_true", help="Compare only; write no translations.")
    given = parser.parse_args()
    translations = json.loads(Path(given.translations).read_text(encoding="utf-8"))
    train = captions_of(given.train)
    halves = []
    for start in (0, 1):
        own = [*train][start::2]
        halves.append(Half([translations[each] for each in own], [pair for each in own for pair in train[each]]))
    languages = list(halves[0].sentences)
    others = {folder: captions_of(folder) for folder in given.others}
    for folder, found in others.items():
        print(f"{folder}, {len(found)} photographs")
        compare(halves[0], [translations[each] for each in found])
    if given.compare:
        return
    pairs = [(source, target) for source in languages for target in languages if source != target]
    texts = [(halves[1 - row % 2], TRAINED, train[each]) for row, each in enumerate(train)]
    texts += [(halves[0], pairs, captions) for found in others.values() for captions in found.values()]
    with Path(given.output).open("w", encoding="utf-8") as file:
        for half, wanted, captions in texts:
            for source, text in captions:
                row = {target: half.translate(text, source, target) for first, target in wanted if first == source}
                file.write(json.dumps({source: text, **row}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
