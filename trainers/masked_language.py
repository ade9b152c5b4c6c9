"""Masked language modelling: how a multilingual BERT comes to be where none can be had (Devlin et al. 2019)."""

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
from .finiteness import check_numbers
from .precision import PrecisionTrainingArguments
from .whole_checkpoints import WholeCheckpointTrainer


class MaskedGuessing(nn.Module):
    """A BERT that guesses at masked places only: over a whole vocabulary, guessing is what costs most.

    Shape: `input_ids`, `attention_mask`, `labels` [N, T]; a label of -100 is none.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.model = BertForMaskedLM(config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> dict[str, Tensor]:
        states = self.model.bert(input_ids, attention_mask).last_hidden_state
        masked = labels != -100
        guesses = self.model.cls(states[masked])  # [number of masked places, vocabulary]
        return {"loss": nn.functional.cross_entropy(guesses.float(), labels[masked])}


def train_masked_language(
    config: BertConfig, tokenizer: PreTrainedTokenizerBase, texts: list[str], args: PrecisionTrainingArguments
) -> BertModel:
    """A new text encoder, trained to guess 15 % of the word pieces from the others.

    Args:
        config: of the encoder, for the vocabulary of `tokenizer`.
        tokenizer: cuts texts at its `model_max_length`.
        texts: one example each; a word that is masked is guessed from the rest of it.
        args: transformers' training arguments.

    Returns:
        The encoder without the head that guesses.

    Raises:
        TrainingSetupError: for an argument that is NaN or infinite.
    """
    check_numbers(args)
    set_seed(args.seed)
    guessing = MaskedGuessing(config)
    encoded = tokenizer(texts, truncation=True)
    note_cut_texts(overlong(texts, encoded), f"{tokenizer.model_max_length} tokens")
    examples = [{"input_ids": ids} for ids in encoded["input_ids"]]
    collator = DataCollatorForLanguageModeling(tokenizer, seed=args.seed)
    WholeCheckpointTrainer(guessing, args, train_dataset=examples, data_collator=collator).train()
    return guessing.model.bert
