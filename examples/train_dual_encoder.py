"""Trains MURAL, ALIGN or ETCL on images with captions and on translations, from a preset or from a trained model.

    python examples/train_dual_encoder.py --preset mural-tiny --image_size 64 --vocab_size 8000 \
        --captions photos --translations sentences.tsv --eval_captions photos-test \
        --output_dir runs/mural --do_train --do_eval --max_steps 2000 --learning_rate 1e-3

ALIGN is MURAL without translations. ETCL trains on triplets, an image with its captions in two languages, and usually
continues from a MURAL: `--method etcl --model_name_or_path runs/mural`. Every argument, and dictionaries such as
`task_weights`, can come from a JSON file, which is then the only argument. An interrupted run continues from
its last checkpoint when the same command is given again.
"""

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset
from transformers import (
    AutoModel,
    AutoProcessor,
    AutoTokenizer,
    HfArgumentParser,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    set_seed,
)

from babelens import (
    BabelensError,
    ContrastiveTrainingArguments,
    Embedder,
    EtclModel,
    EtclProcessor,
    EtclTrainer,
    MuralImageProcessor,
    MuralModel,
    MuralProcessor,
    MuralTrainer,
    load_preset,
    newest_checkpoint,
    train_wordpiece,
)
from babelens.data import languages_of, load_captions, load_translations
from babelens.evaluation import evaluate_retrieval

logger = logging.getLogger(__name__)

MURAL = (MuralModel, MuralProcessor, MuralTrainer)
METHODS = {"mural": MURAL, "align": MURAL, "etcl": (EtclModel, EtclProcessor, EtclTrainer)}
RESIZE = 346 / 289  # side of an image before and after it is cropped (MURAL, section 3.2)


@dataclass
class ModelArguments:
    """Which model is trained."""

    method: Literal["mural", "align", "etcl"] = field(
        default="mural", metadata={"help": "How to train: 'mural', 'align' (without translations) or 'etcl'."}
    )
    preset: str | None = field(
        default=None, metadata={"help": "Train a new model of this size, such as mural-tiny, align-base or etcl-base."}
    )
    model_name_or_path: str | None = field(
        default=None,
        metadata={
            "help": "Go on training this model, a folder or Hub id: one of the method, an ALIGN of transformers or, "
            "for ETCL, a MURAL."
        },
    )
    tokenizer_name: str | None = field(
        default=None, metadata={"help": "Tokenizer of a new model, a folder or Hub id; default: one is trained."}
    )
    vocab_size: int = field(
        default=16_000, metadata={"help": "Word pieces of the tokenizer that is trained on the training texts."}
    )
    image_size: int = field(default=289, metadata={"help": "Side in pixels of the images that a new model reads."})

    def __post_init__(self) -> None:
        if (self.preset is None) == (self.model_name_or_path is None):
            raise ValueError("give either --preset, for a new model, or --model_name_or_path, to go on training one")
        model_class = METHODS[self.method][0]
        if self.preset and not isinstance(load_preset(self.preset), model_class.config_class):
            raise ValueError(f"--preset {self.preset} is not a preset of --method {self.method}")


@dataclass
class DataArguments:
    """Which data the model is trained and evaluated on."""

    captions: str | None = field(
        default=None,
        metadata={"help": "Images with captions: a folder with a metadata.jsonl, parquet files or a Hub id."},
    )
    translations: str | None = field(
        default=None,
        metadata={"help": "Translations: a TSV file with a header of language tags, a JSON lines file or a Hub id."},
    )
    eval_captions: str | None = field(
        default=None, metadata={"help": "Images with captions to evaluate retrieval on, in the forms of --captions."}
    )
    train_split: str | None = field(default=None, metadata={"help": "Split of --captions, where there are several."})
    eval_split: str | None = field(default=None, metadata={"help": "Split of --eval_captions."})
    caption_language: str | None = field(
        default=None, metadata={"help": "Language of captions that are plain texts, such as 'en'."}
    )
    image_column: str | None = field(default=None, metadata={"help": "Column of images, if it is not called 'image'."})
    caption_column: str | None = field(
        default=None, metadata={"help": "Column of captions, if it is not called 'caption', 'captions' or 'text'."}
    )
    language_column: str | None = field(
        default=None, metadata={"help": "Column with the language of each row's captions."}
    )
    max_train_samples: int | None = field(default=None, metadata={"help": "Train on so many images at most."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Evaluate on so many images at most."})


def parse_arguments() -> tuple[ModelArguments, DataArguments, ContrastiveTrainingArguments]:
    """Reads the command line, or the JSON file that it names; what is wrong with it is one sentence and status 2."""
    usage = "%(prog)s --help | CONFIG.json | --output_dir DIR --preset NAME --captions DATA --do_train ..."
    parser = HfArgumentParser((ModelArguments, DataArguments, ContrastiveTrainingArguments), usage=usage)
    try:
        if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
            model_args, data_args, training_args = parser.parse_json_file(sys.argv[1])
        else:
            model_args, data_args, training_args = parser.parse_args_into_dataclasses()
        if model_args.method == "align" and data_args.translations:
            raise ValueError("--method align has no --translations; --method mural trains on them")
        if training_args.do_train and not data_args.captions:
            raise ValueError("--do_train needs --captions")
        if training_args.do_eval and not data_args.eval_captions:
            raise ValueError("--do_eval needs --eval_captions")
        if model_args.preset and not training_args.do_train:
            raise ValueError("--preset makes a new model, which needs --do_train")
    except (BabelensError, OSError, ValueError) as error:
        parser.error(str(error))
    return model_args, data_args, training_args


def read_captions(source: str, split: str | None, data_args: DataArguments, limit: int | None) -> Dataset:
    """Reads images with captions, at most `limit` images."""
    corpus = load_captions(
        source,
        split=split,
        language=data_args.caption_language,
        image_column=data_args.image_column,
        caption_column=data_args.caption_column,
        language_column=data_args.language_column,
    )
    return corpus if limit is None else corpus.select(range(min(limit, len(corpus))))


def new_processor(model_args: ModelArguments, corpora: dict[str, Dataset]) -> ProcessorMixin:
    """Makes the processor of a new model, with the tokenizer that was named or one that reads the training texts."""
    resized, cropped = round(RESIZE * model_args.image_size), model_args.image_size
    image_processor = MuralImageProcessor(
        size={"height": resized, "width": resized}, crop_size={"height": cropped, "width": cropped}
    )
    tokenizer: PreTrainedTokenizerBase
    if model_args.tokenizer_name:
        tokenizer = AutoTokenizer.from_pretrained(model_args.tokenizer_name)
    else:
        texts = (caption["text"] for corpus in corpora.values() for row in corpus["captions"] for caption in row)
        try:
            tokenizer = train_wordpiece(texts, model_args.vocab_size)
        except ValueError as error:
            raise BabelensError(f"--vocab_size: {error}") from error
    return METHODS[model_args.method][1](image_processor, tokenizer)


def model_and_processor(
    model_args: ModelArguments, corpora: dict[str, Dataset], checkpoint: Path | None
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Makes a new model, or loads the one to go on from: the checkpoint's, or the one that was named."""
    model_class, processor_class, _ = METHODS[model_args.method]
    if model_args.preset and checkpoint is None:
        processor = new_processor(model_args, corpora)
        config = load_preset(model_args.preset, text_config={"vocab_size": len(processor.tokenizer)})
        return model_class(config), processor
    start = checkpoint or model_args.model_name_or_path
    model, processor = AutoModel.from_pretrained(start), AutoProcessor.from_pretrained(start)
    if model.config.model_type == "align":
        model = MuralModel.from_native(model)
    if model_class is EtclModel and isinstance(model, MuralModel):
        model = EtclModel.from_native(model)
    if not isinstance(model, model_class):
        raise BabelensError(f"--model_name_or_path {start} is {type(model).__name__}, not {model_class.__name__}")
    return model, processor_class(processor.image_processor, processor.tokenizer)


def retrieval_metrics(trainer: Any, corpus: Dataset) -> dict[str, float]:
    """Evaluates retrieval in each language: `eval_t2i_r1_de` and the like, in percent."""
    args = trainer.args
    embedder = Embedder(trainer.model, trainer.processing_class, batch_size=args.per_device_eval_batch_size)
    results = evaluate_retrieval(embedder, corpus, args.eval_languages or list(languages_of(corpus)))
    metrics = {f"eval_{name}_{tag}": value for tag, numbers in results.items() for name, value in numbers.items()}
    return metrics | {"eval_mean_recall": sum(numbers["mean_recall"] for numbers in results.values()) / len(results)}


def main() -> None:
    model_args, data_args, training_args = parse_arguments()
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        level=logging.INFO if training_args.should_log else logging.WARNING,
    )
    set_seed(training_args.seed)

    # ---- Data: a task has a corpus, from which the trainer takes its examples ----
    corpora: dict[str, Dataset] = {}
    eval_corpus = None
    with training_args.main_process_first(desc="reading the data"):
        if training_args.do_train and data_args.captions:
            main_task = "triplet" if model_args.method == "etcl" else "image_text"
            corpora[main_task] = read_captions(
                data_args.captions, data_args.train_split, data_args, data_args.max_train_samples
            )
            if data_args.translations:
                corpora["text_text"] = load_translations(data_args.translations)
        if data_args.eval_captions:
            eval_corpus = read_captions(
                data_args.eval_captions, data_args.eval_split, data_args, data_args.max_eval_samples
            )

    # ---- Model, and what reads its inputs ----
    checkpoint = None
    if training_args.do_train:
        checkpoint = training_args.resume_from_checkpoint or newest_checkpoint(training_args.output_dir)
    if checkpoint:
        logger.info("Training goes on from %s", checkpoint)
    model, processor = model_and_processor(model_args, corpora, checkpoint)

    # ---- Training ----
    trainer = METHODS[model_args.method][2](
        model=model,
        args=training_args,
        processing_class=processor,
        train_dataset=corpora or None,
        eval_dataset=eval_corpus,
    )
    if training_args.do_train:
        result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        trainer.save_model()  # and the processor, and the code that loads both without this package
        trainer.save_state()
        trainer.log_metrics("train", result.metrics)
        trainer.save_metrics("train", result.metrics)

    # ---- Evaluation ----
    if training_args.do_eval:
        metrics = retrieval_metrics(trainer, eval_corpus)
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)

    if training_args.push_to_hub:
        languages = sorted({tag for corpus in corpora.values() for tag in languages_of(corpus)})
        trainer.push_to_hub(language=languages, tags=[model_args.method])


if __name__ == "__main__":
    try:
        main()
    except (BabelensError, OSError) as error:  # what the user can mend; anything else keeps its traceback
        sys.exit(f"error: {error}")
