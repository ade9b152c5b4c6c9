"""RC3's cross-encoder, which tells how well a text and an image fit (Zhou et al. 2023, section 3), and what all of
RC3's heads share that are decided from the encoder."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from ..configuration.configuration_rc3 import Rc3Config
from ..configuration.errors import InputError
from .modeling_rc3 import Rc3Model, Rc3PreTrainedModel, without_decoder_inputs
from .visual_inputs import visual_inputs


class Rc3EncoderTaskModel(Rc3PreTrainedModel):
    """A task that is decided by the encoder. The decoder stays, so that the weights are those of the pre-training, but
    no gradient reaches it."""

    model: Rc3Model

    def post_init(self) -> None:
        super().post_init()
        # Else processes that train together wait for its gradients; that they look for what is not used is not
        # possible where gradients are checkpointed. The embedding, which the encoder shares, comes first by its name.
        unused = [f"model.decoder.{name}" for name, _ in self.model.decoder.named_parameters()]
        self._ddp_params_and_buffers_to_ignore = [name for name in unused if not name.endswith("embed_tokens.weight")]


def checked_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of logits [N, C] and labels [N].

    Raises:
        InputError: for a label outside of 0 to C - 1, or another number of labels than rows.
    """
    if labels.shape != logits.shape[:1]:
        raise InputError(f"labels {list(labels.shape)} for logits {list(logits.shape)}: one for each row is needed")
    if not (known := (labels >= 0) & (labels < logits.shape[1])).all():
        row = int((~known).nonzero()[0])
        raise InputError(f"labels[{row}]={int(labels[row])}; there are labels 0 to {logits.shape[1] - 1}")
    return F.cross_entropy(logits.float(), labels)


@dataclass
class Rc3RetrievalOutput(SequenceClassifierOutput):
    """
    Args, beside transformers':
        logits ([N / candidates, candidates]): the scores by question.
        scores ([N]): how well a row's text and image fit.
    """

    scores: Tensor | None = None


class Rc3ForImageTextRetrieval(Rc3EncoderTaskModel):
    """How well a text and an image fit; trained to tell which of several candidates is right (Flickr30K, MSCOCO)."""

    auto_classes = ("AutoModelForMultipleChoice",)

    def __init__(self, config: Rc3Config) -> None:
        super().__init__(config)
        self.model = Rc3Model(config)
        self.dropout = nn.Dropout(config.dropout)
        self.scorer = nn.Linear(config.d_model, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        region_features: Tensor | None = None,
        region_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        pixel_mask: Tensor | None = None,
        labels: Tensor | None = None,
        candidates: int | None = None,
        **kwargs: Any,
    ) -> Rc3RetrievalOutput:
        """Scores of N texts with their images, inputs as in `Rc3Encoder.forward`.

        As transformers' models for multiple choice do, it also takes questions with their candidates: `input_ids` [N,
        C, T], and C of all other inputs.

        Args:
            candidates: how many rows, one after the other, answer one question; default: C of questions, else 4 with
                labels, as in IGLUE (the right pair, another caption, another image, a hard caption), else 1.
            labels ([N / candidates]): which of them is right; the loss is the cross-entropy over them.
            kwargs: transformers' own; inputs of a decoder are of no effect.

        Raises:
            InputError: for a label that is no candidate, or rows that do not come in questions of `candidates`.
            InputError: for questions of which an input has another number of candidates.
        """
        visual = visual_inputs(region_features, region_mask, pixel_values, pixel_mask)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, **visual}
        if input_ids is not None and input_ids.dim() == 3:
            inputs, candidates = _rows_of_questions(inputs, candidates)
        encoded = self.model.encode(**inputs, **without_decoder_inputs(kwargs))
        scores = self.scorer(self.dropout(encoded.pooler_output))[:, 0]  # [N]
        size = candidates or (1 if labels is None else 4)
        if scores.shape[0] % size:
            raise InputError(f"{scores.shape[0]} rows are no questions of {size} candidates each")
        logits = scores.reshape(-1, size)
        return Rc3RetrievalOutput(
            loss=None if labels is None else checked_cross_entropy(logits, labels),
            logits=logits,
            scores=scores,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )


def _rows_of_questions(
    inputs: dict[str, Tensor | None], candidates: int | None
) -> tuple[dict[str, Tensor | None], int]:
    """Inputs of questions with candidates as rows, [N, C, …] -> [N C, …], and C."""
    assert inputs["input_ids"] is not None
    questions, size = inputs["input_ids"].shape[:2]
    if candidates not in (None, size):
        raise InputError(f"input_ids [{questions}, {size}, …] are questions of {size}, not {candidates} candidates")
    for name, value in inputs.items():
        if value is not None and value.shape[:2] != (questions, size):
            raise InputError(
                f"{name} {list(value.shape)} does not fit input_ids [{questions}, {size}, …]: every candidate of a "
                "question needs its own"
            )
    return {name: None if value is None else value.flatten(0, 1) for name, value in inputs.items()}, size


__all__ = ["Rc3ForImageTextRetrieval"]
