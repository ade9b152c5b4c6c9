"""RC3's heads trained by transformers' own `Trainer`, for separate processes."""

from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

import babelens
from babelens import Rc3Config
from tests.contracts import TINY_RC3, visio_textual_batch

LABELS = {
    "Rc3ForVisualEntailment": torch.tensor([0, 1, 2, 0]),
    "Rc3ForImageTextRetrieval": torch.tensor([1]),
    "Rc3ForVisualQuestionAnswering": torch.eye(4),
}


def train(folder: Path, model_class: str, **settings: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    options = {"dropout": 0.0, "id2label": dict(enumerate("abcd"))} if "Answering" in model_class else {"dropout": 0.0}
    model = getattr(babelens, model_class)(Rc3Config(**TINY_RC3 | options))
    arguments = TrainingArguments(
        folder,
        max_steps=2,
        per_device_train_batch_size=1,
        remove_unused_columns=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        **settings,
    )
    batch = visio_textual_batch() | {"labels": LABELS[model_class]}
    trainer = Trainer(model, arguments, train_dataset=[batch] * 4, data_collator=lambda examples: dict(examples[0]))
    trainer.train()
    return {name: value.detach().clone().numpy() for name, value in model.state_dict().items()}
