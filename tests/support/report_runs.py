"""A run as `babelens train` leaves it, with invented results in languages of six scripts."""

import dataclasses

import numpy as np
from PIL import Image

from babelens.data.batching.retrieval_sets import RetrievalSet
from babelens.evaluation.found_images import GalleryRow, TextsRow
from babelens.evaluation.query_ranks import QueryRanks, of_captions
from babelens.evaluation.ranking import RetrievalRanks
from babelens.model_cards.base_models import BaseModel
from babelens.model_cards.facts import DataSource, TrainingRun
from babelens.workflows.reporting import write_evaluation

QUERIES = {
    "en": "a red car </script><script>console.error('read as code')</script> <img src=x onerror=console.error('run')>",
    "ar": "الساعة الثامنة مساء",
    "hi": "क्षत्रिय चूहेदानी में",
    "he": "מכונית אדומה",
    "ja": "赤い車",
    "el": "κόκκινο αυτοκίνητο",
    "sw": "gari jekundu la zamani sana linalosimama nyumbani",
}
N_IMAGES = 40
EVIL = "<img src=x onerror=console.error('run')>"


def ranks_of(seed, index):
    random = np.random.default_rng([seed, index])
    found = RetrievalRanks(random.geometric(0.2, N_IMAGES), random.geometric(0.2, N_IMAGES))
    ids = [str(image) for image in range(N_IMAGES)]
    queries = RetrievalSet("en", [], ids, ids, ids, [[image] for image in range(N_IMAGES)], np.arange(N_IMAGES))
    return found.recalls(), QueryRanks.of(queries, found)


def gallery():
    random = np.random.default_rng(0)
    images = [Image.fromarray(random.integers(0, 256, (200, 90, 3), dtype=np.uint8)) for _ in range(3)]
    return [
        GalleryRow(
            text, language, images, [0.5, 0.4, 0.3], [False, language != "sw", False], rank=2, gloss="red & car"
        )
        for language, text in QUERIES.items()
    ] + [
        TextsRow(images[0], language, [text, "<b>other</b>"], [0.5, 0.4], [language != "sw", False], rank=4)
        for language, text in QUERIES.items()
    ]


def card(name):
    run = TrainingRun(
        command=f"babelens train recipe.yaml --output {'long/' * 30}{name} <b>",
        hyperparameters={EVIL: EVIL, "learning_rate": 0.001, "per_device_train_batch_size": 64},
        steps=40,
        seconds=90.0,
        loss=1.25,
        hardware="2 CPU cores",
        versions="babelens 1, torch 2",
    )
    data = DataSource(
        name=f"Photos & more {EVIL}",
        license="CC-BY-4.0",
        role=f"images {EVIL}",
        attribution=f"Ann {EVIL}",
        url="javascript:x()",
    )
    return {
        "model_name": name,
        "method": "mural",
        "image_languages": ["en", "he"],
        "pair_languages": ["ar", "hi", "ja"],
        "unseen_languages": ["el", "sw"],
        "parameters": 1_234_567,
        "license": "cc-by-4.0",
        "license_name": None,
        "training_data": [dataclasses.asdict(data)],
        "base_models": [dataclasses.asdict(BaseModel(name=f"clip {EVIL}", license="cc-by-nc-4.0"))],
        "run": dataclasses.asdict(run),
    }


def log(seed):
    random = np.random.default_rng(seed)
    entries = [
        {"step": step, "loss": 3 - step / 20 + random.random() / 5, "learning_rate": 1e-3 * (1 - step / 40)}
        for step in range(2, 41, 2)
    ]
    evaluations = [{"step": step, "eval_mean_recall": step, "eval_mean_recall_en": step + 1} for step in (20, 40)]
    return [*entries, {"step": 40, "loss": float("nan"), "grad_norm": 0.1}, *evaluations]


def write_run(folder, seed):
    measured = {language: ranks_of(seed, index) for index, language in enumerate(QUERIES)}
    write_evaluation(
        folder,
        "validation",
        {language: recalls for language, (recalls, _) in measured.items()},
        of_captions({language: ranks for language, (_, ranks) in measured.items()}),
        gallery(),
        ["Images by Ann"],
    )
    logs = [{"stage": "", "log": log(seed)}]
    write_evaluation(folder, "facts", {"card": card(folder.name), "memory": {"process": 1.5}, "logs": logs})
    write_evaluation(folder, "tokenizer", {"en": 0.0})
    (folder / "README.md").write_text("---\nlicense: mit\nlanguage: [en, sw]\n---\n")
    return folder
