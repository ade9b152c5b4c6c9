"""Fine-tunes a pre-trained RC³ on one of its five tasks, and evaluates it in every language of the test data.

    python examples/finetune_rc3.py --task visual-entailment --model_name_or_path runs/rc3 \
        --train_data xvnli-train --eval_data xvnli-test --output_dir runs/xvnli --do_train --do_eval

Tasks with labels (`visual-entailment`, `visual-question-answering`, `visual-reasoning`) take data sets with the
columns `text`, `language`, `label` and `image`, or `left_image` and `right_image`: a folder that `save_to_disk` wrote,
parquet files, an image folder or a Hub id. `babelens.data` reads the published files of IGLUE into that form:
`load_xvnli("train.jsonl", language="en", images="flickr30k").save_to_disk("xvnli-train")`. `image-text-retrieval` and
`translation` take images with captions. Every argument can come from a JSON file, which is then the only argument.
An interrupted run continues from its last checkpoint when the same command is given again.
"""

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from datasets import ClassLabel, Dataset, load_dataset, load_from_disk
from transformers import AutoConfig, AutoProcessor, HfArgumentParser, PreTrainedModel, set_seed

from babelens import (
    BabelensError,
    Rc3ForConditionalGeneration,
    Rc3ForImageTextRetrieval,
    Rc3ForVisualEntailment,
    Rc3ForVisualQuestionAnswering,
    Rc3ForVisualReasoning,
    Rc3TaskTrainer,
    Rc3TaskTrainingArguments,
    newest_checkpoint,
    open_regions,
)
from babelens.data import TaskData, load_captions

logger = logging.getLogger(__name__)

TRANSLATION = "translation"
MODELS: dict[str, Any] = {
    "visual-entailment": Rc3ForVisualEntailment,
    "visual-question-answering": Rc3ForVisualQuestionAnswering,
    "visual-reasoning": Rc3ForVisualReasoning,
    "image-text-retrieval": Rc3ForImageTextRetrieval,
    TRANSLATION: Rc3ForConditionalGeneration,
}
OF_CAPTIONS = ("image-text-retrieval", TRANSLATION)  # tasks whose data are images with captions


@dataclass
class ModelArguments:
    """Which model is fine-tuned on which task."""

    model_name_or_path: str = field(
        metadata={"help": "A pre-trained RC³, or a model of the task to go on with: a folder or Hub id."}
    )
    task: Literal[
        "visual-entailment", "visual-question-answering", "visual-reasoning", "image-text-retrieval", "translation"
    ] = field(metadata={"help": "The task to fine-tune on."})
    regions: str | None = field(
        default=None,
        metadata={"help": "File or folder of region features by image_id, for models that read regions."},
    )


@dataclass
class DataArguments:
    """Which data the model is fine-tuned and evaluated on."""

    train_data: str | None = field(default=None, metadata={"help": "Data to train on; see the top of this file."})
    eval_data: str | None = field(default=None, metadata={"help": "Data to evaluate on, in the same form."})
    train_split: str | None = field(default=None, metadata={"help": "Split of --train_data, where there are several."})
    eval_split: str | None = field(default=None, metadata={"help": "Split of --eval_data."})
    train_languages: list[str] | None = field(
        default=None, metadata={"help": "Languages to train on, such as 'en', the paper's choice; default: all."}
    )
    eval_languages: list[str] | None = field(default=None, metadata={"help": "Languages to evaluate; default: all."})
    source_language: str | None = field(default=None, metadata={"help": "For translation: the language to read."})
    target_language: str | None = field(default=None, metadata={"help": "For translation: the language to write."})


def parse_arguments() -> tuple[ModelArguments, DataArguments, Rc3TaskTrainingArguments]:
    """Reads the command line, or the JSON file that it names; what is wrong with it is one sentence and status 2."""
    usage = "%(prog)s --help | CONFIG.json | --task TASK --model_name_or_path MODEL --train_data DATA --do_train ..."
    parser = HfArgumentParser((ModelArguments, DataArguments, Rc3TaskTrainingArguments), usage=usage)
    try:
        if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
            model_args, data_args, training_args = parser.parse_json_file(sys.argv[1])
        else:
            model_args, data_args, training_args = parser.parse_args_into_dataclasses()
        if training_args.do_train and not data_args.train_data:
            raise ValueError("--do_train needs --train_data")
        if training_args.do_eval and not data_args.eval_data:
            raise ValueError("--do_eval needs --eval_data")
        if model_args.task == TRANSLATION and not (data_args.source_language and data_args.target_language):
            raise ValueError("--task translation needs --source_language and --target_language")
    except (BabelensError, OSError, ValueError) as error:
        parser.error(str(error))
    return model_args, data_args, training_args


def read_data(task: str, source: str, split: str | None) -> Dataset:
    """Reads the data of a task."""
    if task in OF_CAPTIONS:
        return load_captions(source, split=split)
    if (Path(source) / "state.json").is_file():
        dataset = load_from_disk(source)
    elif source.endswith(".parquet"):
        dataset = load_dataset("parquet", data_files=source, split="train")
    else:
        dataset = load_dataset(source, split=split or "train")
    if "label" in dataset.features and not isinstance(dataset.features["label"], ClassLabel):
        dataset = dataset.class_encode_column("label")
    return dataset


def task_model(model_args: ModelArguments, train_data: Dataset | None) -> PreTrainedModel:
    """Loads the model; a new model of a task with labels takes them from the training data, in order."""
    model_class, source = MODELS[model_args.task], model_args.model_name_or_path
    is_of_task = model_class.__name__ in (AutoConfig.from_pretrained(source).architectures or [])
    if is_of_task or train_data is None or "label" not in train_data.features:
        return model_class.from_pretrained(source)
    names = train_data.features["label"].names
    return model_class.from_pretrained(
        source, id2label=dict(enumerate(names)), label2id={name: index for index, name in enumerate(names)}
    )


def main() -> None:
    model_args, data_args, training_args = parse_arguments()
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        level=logging.INFO if training_args.should_log else logging.WARNING,
    )
    set_seed(training_args.seed)

    # ---- Data ----
    pairs = None
    if data_args.source_language and data_args.target_language:
        pairs = [(data_args.source_language, data_args.target_language)]
    train_data = eval_data = None
    with training_args.main_process_first(desc="reading the data"):
        if training_args.do_train and data_args.train_data:
            train_data = read_data(model_args.task, data_args.train_data, data_args.train_split)
        if data_args.eval_data:
            eval_data = read_data(model_args.task, data_args.eval_data, data_args.eval_split)

    # ---- Model ----
    model = task_model(model_args, train_data)
    regions = None
    if model_args.regions:
        sizes = {"region_size": model.config.region_size, "max_regions": model.config.max_regions}
        regions = open_regions(model_args.regions, **sizes)

    # ---- Training and evaluation ----
    trainer = Rc3TaskTrainer(
        model=model,
        args=training_args,
        processing_class=AutoProcessor.from_pretrained(model_args.model_name_or_path),
        train_dataset=None if train_data is None else TaskData(train_data, data_args.train_languages, pairs),
        eval_dataset=None if eval_data is None else TaskData(eval_data, data_args.eval_languages, pairs),
        regions=regions,
    )
    if training_args.do_train:
        checkpoint = training_args.resume_from_checkpoint or newest_checkpoint(training_args.output_dir)
        if checkpoint:
            logger.info("Training goes on from %s", checkpoint)
        result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        trainer.save_model()  # and the processor, and the code that loads both without this package
        trainer.save_state()
        trainer.log_metrics("train", result.metrics)
        trainer.save_metrics("train", result.metrics)
    if training_args.do_eval:
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)
    if training_args.push_to_hub:
        trainer.push_to_hub(tags=["rc3", model_args.task])


if __name__ == "__main__":
    try:
        main()
    except (BabelensError, OSError) as error:  # what the user can mend; anything else keeps its traceback
        sys.exit(f"error: {error}")
