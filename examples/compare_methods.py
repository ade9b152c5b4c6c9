"""Trains MURAL, ETCL and MLA on one corpus with babelens' trainers, and prints one table.

    python examples/tutorial.py      # leaves its images, captions and translations in runs/tutorial
    python examples/compare_methods.py --captions runs/tutorial/train --translations runs/tutorial/en-es.tsv \
        --eval_captions runs/tutorial/test

MURAL learns captions and translations at once. ETCL goes on from it with triplets: an image, a caption and its
translation. MLA begins with a model of English captions alone, keeps it as it is, and acquires the other languages of
the translations. All see the same data and take the same number of steps; ETCL has MURAL's steps before its own.
"""

import argparse
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import set_seed

from babelens import (
    ContrastiveTrainingArguments,
    Embedder,
    EtclModel,
    EtclProcessor,
    EtclTrainer,
    MlaModel,
    MlaProcessor,
    MlaTrainer,
    MlaTrainingArguments,
    MuralImageProcessor,
    MuralModel,
    MuralProcessor,
    MuralTrainer,
    load_preset,
    train_wordpiece,
)
from babelens.data import languages_of, load_captions, load_translations
from babelens.evaluation import evaluate_retrieval


def texts_of(*corpora: Dataset) -> list[str]:
    """All captions of some corpora."""
    return [caption["text"] for corpus in corpora for row in corpus["captions"] for caption in row]


def new_mural(processor: MuralProcessor) -> MuralModel:
    """A small MURAL with random weights."""
    text = {"vocab_size": len(processor.tokenizer), "num_hidden_layers": 1}
    vision = {"embedding_size": 16, "hidden_sizes": [32, 64, 128], "depths": [1, 1, 1]}
    return MuralModel(load_preset("mural-tiny", text_config=text, vision_config=vision))


def settings(output: Path, steps: int, rate: float, **more: Any) -> dict[str, Any]:
    """The training arguments that all methods share."""
    return {
        "output_dir": str(output),
        "max_steps": steps,
        "per_device_train_batch_size": 30,
        "learning_rate": rate,
        "optim": "adamw_torch",
        "warmup_steps": steps // 10,
        "logging_steps": steps,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        **more,
    }


def train_all(captions: Dataset, translations: Dataset, output: Path, steps: int) -> dict[str, tuple[Any, Any]]:
    """The trained models with their processors, by the names of their methods."""
    images = MuralImageProcessor(size={"height": 36, "width": 36}, crop_size={"height": 32, "width": 32})
    processor = MuralProcessor(images, train_wordpiece(texts_of(captions, translations), vocab_size=300))
    trained: dict[str, tuple[Any, Any]] = {}

    def contrastive(name: str, trainer: Any, model: Any, reads: Any, data: dict[str, Dataset], **more: Any) -> None:
        arguments = ContrastiveTrainingArguments(**settings(output / name, steps, 2e-3, **more))
        trainer(model, arguments, processing_class=reads, train_dataset=data).train()
        trained[name] = (model, reads)

    both = {"image_text": captions, "text_text": translations}
    contrastive("MURAL", MuralTrainer, new_mural(processor), processor, both, task_weights={"text_text": 0.3})

    triplets = {"triplet": captions, "text_text": translations}
    start = EtclModel.from_mural(trained["MURAL"][0])
    reads = EtclProcessor(processor.image_processor, processor.tokenizer)
    contrastive("ETCL", EtclTrainer, start, reads, triplets)

    english = new_mural(processor)
    english_captions = {"image_text": captions}
    contrastive("English", MuralTrainer, english, processor, english_captions, languages=["en"])
    learned = [tag for tag in languages_of(translations) if tag != "en"]
    tokenizer = train_wordpiece(texts_of(translations), vocab_size=300)
    mla = MlaModel.from_native(
        english,
        languages=learned,
        vocab_size=len(tokenizer),
        sep_token_id=tokenizer.sep_token_id,
        embedding_size=64,
        acquirer_size=64,
    )
    mla_reads = MlaProcessor.for_native(english.config, processor, tokenizer, languages=learned)
    arguments = settings(output / "MLA", steps, 3e-3)
    MlaTrainer(
        mla,
        MlaTrainingArguments(**arguments),
        processing_class=mla_reads,
        train_dataset={"text_text": translations},
        cache_dir=str(output / "features"),
    ).train()
    return trained | {"MLA": (mla, mla_reads)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", required=True, help="images with captions in English and other languages")
    parser.add_argument("--translations", required=True, help="a table of translations, English among them")
    parser.add_argument("--eval_captions", required=True, help="other images with captions")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/methods"))
    parser.add_argument("--max_steps", type=int, default=300)
    given = parser.parse_args()
    set_seed(0)

    captions, translations = load_captions(given.captions), load_translations(given.translations)
    test = load_captions(given.eval_captions)
    models = train_all(captions, translations, given.output_dir, given.max_steps)

    languages = [*languages_of(test)]
    print("text → image R@1, in percent; – is a language that the model cannot read")
    print("method   " + "".join(f"{tag:>8}" for tag in languages))
    for name, (model, processor) in models.items():
        known = getattr(processor, "languages", None)
        readable = [tag for tag in languages if known is None or tag in ("en", *known)]
        results = evaluate_retrieval(Embedder(model, processor), test, readable)
        cells = [f"{results[tag]['t2i_r1']:8.1f}" if tag in results else f"{'–':>8}" for tag in languages]
        print(f"{name:<9}" + "".join(cells))


if __name__ == "__main__":
    main()
