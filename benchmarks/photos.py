"""The methods side by side on photographs: the same frozen towers, the same data, several seeds; what each costs, and
what it finds in the language of the captions, in those with translations, and in those without any data.

    python benchmarks/photos.py --photos TRAIN --validation VALIDATION --translations TRANSLATIONS \
        --image google/efficientnet-b0 --text intfloat/multilingual-e5-small \
        --english-text sentence-transformers/all-MiniLM-L6-v2 --translated de fr --seeds 1 2 3

TRAIN and VALIDATION are folders of images with captions (`load_captions`), TRANSLATIONS are sentences in English and
other languages (`load_translations`). Languages of VALIDATION other than English and `--translated` are not trained on
in any way. Runs that are there are not repeated.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rows import Experiment, spread

METRIC = "t2i_r10"  # a text finds its image among the first ten, in percent
NATIVE = "en"
ROWS = {
    "locked": "`locked`: English captions",
    "mural": "`mural`: and translations",
    "etcl": "`etcl`: and captions of the other languages, in triplets",
    "smalr": "`smalr`: captions of the trained languages",
    "mla/clip": "`mla/clip`: English captions; the base of the next two",
    "mla/mla": "`mla/mla`: translations, captions of the other languages",
    "mla/student": "`mla/student`: the same",
    "rc3/pretrain": "`rc3/pretrain`: translations, captions of the trained languages; the base of the next",
    "rc3/itr": "`rc3/itr`, which reads every pair: captions of the trained languages",
}
COSTS = "cost.json"  # of a run, in the folder of its results


@dataclass(frozen=True)
class Photos(Experiment):
    """The recipes of `photos` on given data and towers."""

    given: Any = field(default=None)

    def settings_of(self, row: str, seed: int) -> list[str]:
        given = self.given
        pairs = [[NATIVE, tag] for tag in given.translated]
        own = {
            "locked": {**self._towers(given.text), **self._captions()},
            "mural": {**self._towers(given.text), **self._captions(), **self._translations(pairs)},
            "etcl": {
                **self._towers(given.text),
                **self._captions(),
                **self._translations(pairs),
                "train.triplet.source": given.photos,
                "train.triplet.pairs": pairs,
            },
            "smalr": {
                "backbone": given.image,
                **{f"train.{task}.source": given.photos for task in ("text_text", "image_text")},
                **{f"train.{task}.languages": [NATIVE, *given.translated] for task in ("text_text", "image_text")},
            },
            "mla/clip": {**self._towers(given.english_text), **self._captions()},
            "mla/mla": {**self._learner(seed), "multilingual_tokenizer.from_pretrained": given.text},
            "mla/student": {**self._learner(seed), "text_model.from_pretrained": given.text},
            "rc3/pretrain": {
                "backbone": given.image,
                "model.overrides.languages": [NATIVE, *given.translated],
                "train.parallel.source": given.translations,
                "train.parallel.languages": [NATIVE, *given.translated],
                **{f"train.{task}.source": given.photos for task in ("strict", "weak")},
                **{f"train.{task}.languages": [NATIVE, *given.translated] for task in ("strict", "weak")},
            },
            "rc3/itr": {
                "backbone": given.image,
                "model.from_pretrained": self.folder("rc3/pretrain", seed),
                "train.photos.source": given.photos,
                "train.photos.languages": [NATIVE, *given.translated],
                "test.photos.source": given.validation,
                "test.photos.languages": [NATIVE, *given.translated],
            },
        }[row]
        settings = own if row.startswith("rc3") else own | {"validation.source": given.validation}
        return [f"{name}={value}" for name, value in settings.items()]

    def _towers(self, text: str) -> dict[str, Any]:
        return {"model.image": self.given.image, "model.text": text}

    def _captions(self) -> dict[str, Any]:
        return {"train.image_text.source": self.given.photos}

    def _translations(self, pairs: list[list[str]]) -> dict[str, Any]:
        return {"train.text_text.source": self.given.translations, "train.text_text.pairs": pairs}

    def _learner(self, seed: int) -> dict[str, Any]:
        return {
            "model.from_pretrained": self.folder("mla/clip", seed),
            "model.overrides.languages": self.given.translated,
            "train.text_text.source": self.given.translations,
            "train.text_text.pairs": [[tag, NATIVE] for tag in self.given.translated],
            "train.image_text.source": self.given.photos,
            "train.image_text.languages": self.given.translated,
        }

    def run(self, command: list[str], output: Path) -> None:
        """Trains in a process of its own, and writes down what that takes."""
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), command)
        per_gigabyte = 2**30 if sys.platform == "darwin" else 2**20
        costs = {"minutes": (usage.ru_utime + usage.ru_stime) / 60, "gigabytes": usage.ru_maxrss / per_gigabyte}
        (output / COSTS).write_text(json.dumps(costs))

    def report(self, row: str, seed: int) -> dict[str, Any] | None:
        """The results on the photographs that were not trained on."""
        report = super().report(row, seed)
        return report and next(iter(report.values()))

    def costs(self, row: str, seeds: list[int], name: str) -> list[float]:
        """What the runs that are there have taken."""
        files = [self.folder(row, seed) / COSTS for seed in seeds]
        return [json.loads(file.read_text())[name] for file in files if file.is_file()]


def trained_parameters(folder: Path, row: str) -> int:
    """The number of parameters that the last stage of a row's recipe changed."""
    from transformers import AutoModel

    import babelens  # noqa: F401  (registers the models)
    from babelens.trainers.tower_training import TrainedTowers, checked_training
    from babelens.training.schema import load_recipe

    model = AutoModel.from_pretrained(folder)
    towers = load_recipe(f"photos/{row}").all_stages[-1].training.get("towers")
    TrainedTowers(model, checked_training(towers))
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def table(photos: Photos, rows: list[str], seeds: list[int]) -> str:
    """A row for each method: what it costs, and the mean recall and its deviation over the seeds in each group of
    languages. Minutes are processor time of the seed that took longest, whose features were not there yet."""
    translated = photos.given.translated
    measured = [tag for row in rows for report in photos.reports(row, seeds)[:1] for tag in report]
    others = [tag for tag in dict.fromkeys(measured) if tag not in (NATIVE, *translated)]
    groups = {NATIVE: [NATIVE], ", ".join(translated): translated}
    groups |= {f"{', '.join(others)}: no data": others} if others else {}
    titles = ["", "trained", "minutes", "memory", *groups]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in rows:
        reports = photos.reports(row, seeds)
        if not reports:
            continue
        first = next(seed for seed in seeds if photos.report(row, seed))
        trained = f"{trained_parameters(photos.folder(row, first), row) / 1e6:.2f} M"
        minutes = max(photos.costs(row, seeds, "minutes"), default=float("nan"))
        memory = max(photos.costs(row, seeds, "gigabytes"), default=float("nan"))
        found = [
            spread([statistics.fmean(report[tag][METRIC] for tag in tags) for report in reports])
            if all(tag in report for report in reports for tag in tags)
            else "cannot read"
            for tags in groups.values()
        ]
        lines.append("| " + " | ".join([ROWS[row], trained, f"{minutes:.1f}", f"{memory:.1f} GB", *found]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("photos", "validation", "translations", "image", "text", "english-text"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--translated", nargs="+", default=["de", "fr"], help="languages with translations")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--output", type=Path, default=Path("runs/photos"))
    given = parser.parse_args()
    photos = Photos(given.output, "photos/{}", given=given)
    for seed in given.seeds:
        for row in given.rows:
            photos.train(row, seed)
            print(table(photos, given.rows, given.seeds), flush=True)
    print(f"{os.cpu_count()} cores, {sys.version.split()[0]}", subprocess.getoutput("lscpu | grep 'Model name'"))


if __name__ == "__main__":
    main()
