"""Teaches a frozen dual encoder, such as a CLIP, one more language, from translations and, if there are any, captions.

    python examples/acquire_language.py --model_name_or_path openai/clip-vit-base-patch32 \
        --language uk --translations en-uk.tsv --output_dir runs/clip-uk --max_steps 10000

This is MLA (Zhang et al. 2022): the model itself stays as it is, and small acquirers in its text tower learn to give
a text the embedding of its English translation. The result is an adapter of PEFT or, with `--save_as model`, a model
for `AutoModel`. `--model_name_or_path` may name such a result as well: it then acquires another language or, for the
second stage of the paper, goes on with the same one, on captions at a learning rate of 3e-6. Every argument can also
be given in a JSON file, which is then the only argument. An interrupted run continues from its last checkpoint when
the same command is given again.
"""

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoModel, AutoTokenizer, HfArgumentParser, PreTrainedModel, ProcessorMixin, set_seed

from babelens import (
    BabelensError,
    Embedder,
    MlaModel,
    MlaProcessor,
    MlaTrainer,
    MlaTrainingArguments,
    newest_checkpoint,
    save_adapter,
    train_wordpiece,
)
from babelens.data import load_captions, load_translations, translation_pairs
from babelens.evaluation import evaluate_retrieval
from babelens.processing.processing_mla import closing_token_id

logger = logging.getLogger(__name__)

COMPARED = 1000  # native texts at most whose embeddings are compared before and after training


@dataclass
class ModelArguments:
    """Which model acquires which language, and what becomes of it."""

    model_name_or_path: str = field(
        metadata={"help": "The model that acquires the language: a folder or Hub id of a dual encoder or an adapter."}
    )
    language: str = field(metadata={"help": "The language to acquire, a BCP-47 tag such as 'uk' or 'sr-Latn'."})
    native_language: str = field(default="en", metadata={"help": "The language that a plain dual encoder reads."})
    vocabulary: str = field(
        default="google-bert/bert-base-multilingual-cased",
        metadata={
            "help": "Model whose tokenizer and word-piece embeddings the first acquired language starts with. "
            "Languages that are acquired later share them."
        },
    )
    vocab_size: int | None = field(
        default=None, metadata={"help": "Train a tokenizer with so many word pieces on the translations instead."}
    )
    acquirer_size: int = field(default=256, metadata={"help": "Width of the acquirers' hidden layer."})
    save_as: Literal["adapter", "model"] = field(
        default="adapter",
        metadata={"help": "What --output_dir holds: 'adapter' of PEFT, or the whole 'model' for AutoModel."},
    )


@dataclass
class DataArguments:
    """Which data the language is acquired from and evaluated on."""

    translations: str = field(
        metadata={"help": "Translations into the native language: a TSV file with a header of language tags, …"}
    )
    captions: str | None = field(
        default=None,
        metadata={
            "help": "Images with captions in the language, trained on in every step in addition to the translations."
        },
    )
    eval_captions: str | None = field(
        default=None, metadata={"help": "Images with captions in both languages to evaluate retrieval on."}
    )


def parse_arguments() -> tuple[ModelArguments, DataArguments, MlaTrainingArguments]:
    """Reads the command line, or the JSON file that it names; what is wrong with it is one sentence and status 2."""
    usage = "%(prog)s --help | CONFIG.json | --model_name_or_path MODEL --language TAG --translations FILE ..."
    parser = HfArgumentParser((ModelArguments, DataArguments, MlaTrainingArguments), usage=usage)
    try:
        if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
            model_args, data_args, training_args = parser.parse_json_file(sys.argv[1])
        else:
            model_args, data_args, training_args = parser.parse_args_into_dataclasses()
        if training_args.push_to_hub and model_args.save_as == "adapter":
            raise ValueError("--push_to_hub needs --save_as model; `babelens push` publishes an adapter")
        if training_args.languages:
            raise ValueError("--languages: one language is acquired at a time, which --language names")
    except (BabelensError, OSError, ValueError) as error:
        parser.error(str(error))
    return model_args, data_args, training_args


def wrapped(
    native: PreTrainedModel, native_processor: ProcessorMixin, model_args: ModelArguments, translations: Dataset
) -> tuple[MlaModel, MlaProcessor]:
    """Makes an MLA model of a plain dual encoder, with the vocabulary of all languages that it will acquire."""
    table = None
    if model_args.vocab_size:
        texts = (caption["text"] for row in translations["captions"] for caption in row)
        try:
            tokenizer = train_wordpiece(texts, model_args.vocab_size)
        except ValueError as error:
            raise BabelensError(f"--vocab_size: {error}") from error
    else:
        tokenizer = AutoTokenizer.from_pretrained(model_args.vocabulary)
        table = AutoModel.from_pretrained(model_args.vocabulary, dtype=torch.float32).get_input_embeddings().weight
    options = {"native_language": model_args.native_language}
    model = MlaModel.from_native(
        native,
        table=table,
        acquirer_size=model_args.acquirer_size,
        vocab_size=len(tokenizer),
        embedding_size=native.config.text_config.hidden_size,
        sep_token_id=closing_token_id(tokenizer),
        **options,
    )
    return model, MlaProcessor.for_native(native.config, native_processor, tokenizer, **options)


def learner(
    base: Embedder, language: str, model_args: ModelArguments, translations: Dataset
) -> tuple[MlaModel, MlaProcessor]:
    """Makes room for the language in the base model, which is wrapped where it has acquired none before.

    Raises:
        BabelensError: when an adapter is asked for of a base model that has acquired languages already.
    """
    model, processor = base.model, base.processor
    if not isinstance(model, MlaModel):
        model, processor = wrapped(model, processor, model_args, translations)
    elif model_args.save_as == "adapter":
        raise BabelensError(
            f"{model_args.model_name_or_path} has acquired languages already: another one needs --save_as model"
        )
    # The languages of a model share an embedding: only the first one may still change it.
    model.config.train_embedding = not set(model.config.languages) - {language}
    if language not in model.config.languages:
        model.add_language(language)
        processor.languages = list(model.config.languages)
    return model, processor


def save(trainer: MlaTrainer, language: str, model_args: ModelArguments) -> None:
    """Saves the whole model, or the language as an adapter with the tokenizer that reads its texts."""
    if model_args.save_as == "model":
        trainer.save_model()  # and the processor, and the code that loads both without this package
    elif trainer.is_world_process_zero():
        name, folder = model_args.model_name_or_path, trainer.args.output_dir
        base = str(Path(name).resolve()) if Path(name).is_dir() else name
        save_adapter(trainer.model, language, folder, base_model=base)
        trainer.processing_class.multilingual_tokenizer.save_pretrained(folder)


def main() -> None:
    model_args, data_args, training_args = parse_arguments()
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        level=logging.INFO if training_args.should_log else logging.WARNING,
    )
    set_seed(training_args.seed)

    # ---- Model and data ----
    base = Embedder.from_pretrained(model_args.model_name_or_path, dtype=torch.float32)
    native_language = getattr(base.model.config, "native_language", model_args.native_language)
    with training_args.main_process_first(desc="reading the data"):
        translations = load_translations(
            data_args.translations, languages=[native_language, model_args.language], on_incomplete="skip"
        )
        captions = load_captions(data_args.captions, languages=model_args.language) if data_args.captions else None
    pairs = translation_pairs(translations, [(model_args.language, native_language)])
    language = pairs[0]["language_a"]  # as babelens writes the tag
    native_texts = [pair["text_b"] for pair in pairs[:COMPARED]]
    before = base.encode_text(native_texts, language=native_language)  # [N, d]
    model, processor = learner(base, language, model_args, translations)

    # ---- Training ----
    training_args.languages = [language]
    trainer = MlaTrainer(
        model=model,
        args=training_args,
        processing_class=processor,
        train_dataset={"text_text": translations} | ({"image_text": captions} if captions else {}),
    )
    checkpoint = training_args.resume_from_checkpoint or newest_checkpoint(training_args.output_dir)
    if checkpoint:
        logger.info("Training goes on from %s", checkpoint)
    result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    save(trainer, language, model_args)
    trainer.save_state()
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)

    # ---- Evaluation: the native language is what it was, and the new one finds images ----
    embedder = Embedder(model, processor, batch_size=base.batch_size)
    after = embedder.encode_text(native_texts, language=native_language)  # [N, d]
    metrics = {"eval_native_change": float(np.abs(after - before).max())}
    if data_args.eval_captions:
        results = evaluate_retrieval(embedder, load_captions(data_args.eval_captions), [native_language, language])
        metrics |= {f"eval_{name}_{tag}": value for tag, numbers in results.items() for name, value in numbers.items()}
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)
    if training_args.push_to_hub:
        trainer.push_to_hub(language=[native_language, *model.config.languages], tags=["mla"])


if __name__ == "__main__":
    try:
        main()
    except (BabelensError, OSError) as error:  # what the user can mend; anything else keeps its traceback
        sys.exit(f"error: {error}")
