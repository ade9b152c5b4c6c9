"""Masked language modelling, to train a multilingual BERT where no pre-trained one is available (Devlin et al.
2019)."""

from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerBase,
    set_seed,
)

from ..processing.text_inputs import note_cut_texts, overlong
from .precision import PrecisionTrainingArguments
from .whole_checkpoints import WholeCheckpointTrainer, check_numbers


class MaskedLanguageModel(nn.Module):
    """A BERT that computes logits at masked positions only, because logits of a whole vocabulary are expensive.

    Shape: `input_ids`, `attention_mask`, `labels` [N, T]; labels are -100 at positions that are not masked.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.model = BertForMaskedLM(config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> dict[str, Tensor]:
        states = self.model.bert(input_ids, attention_mask).last_hidden_state
        masked = labels != -100
        logits = self.model.cls(states[masked])  # [number of masked positions, vocabulary]
        return {"loss": nn.functional.cross_entropy(logits.float(), labels[masked])}


def train_masked_language(
    config: BertConfig, tokenizer: PreTrainedTokenizerBase, texts: list[str], args: PrecisionTrainingArguments
) -> BertModel:
    """Trains a new text encoder to predict 15 % of the word pieces of each text from the others.

    Args:
        config: the configuration of the encoder, with the vocabulary of `tokenizer`.
        tokenizer: the tokenizer, which truncates texts at its `model_max_length`.
        texts: the texts to train on; each is one example.
        args: training arguments.

    Returns:
        The encoder without its prediction head.

    Raises:
        TrainingSetupError: for an argument that is NaN or infinite.
    """
    check_numbers(args)
    set_seed(args.seed)
    model = MaskedLanguageModel(config)
    encoded = tokenizer(texts, truncation=True)
    note_cut_texts(overlong(texts, encoded), f"{tokenizer.model_max_length} tokens")
    examples = [{"input_ids": ids} for ids in encoded["input_ids"]]
    collator = DataCollatorForLanguageModeling(tokenizer, seed=args.seed)
    WholeCheckpointTrainer(model, args, train_dataset=examples, data_collator=collator).train()
    return model.model.bert
