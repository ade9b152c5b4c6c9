"""RC3's cross-encoder, which scores how well a text and an image fit (Zhou et al. 2023, section 3), and what it shares
with the other heads that read the encoder's output alone."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from ..configuration.configuration_rc3 import Rc3Config
from ..utils.errors import InputError
from .modeling_rc3 import Rc3Model, Rc3PreTrainedModel
from .modeling_rc3_encoder import visual_inputs, without_decoder_inputs


class Rc3EncoderTaskModel(Rc3PreTrainedModel):
    """Base class of the tasks that read the encoder's output alone.

    The decoder is kept, so that the weights are those of the pre-training, but it receives no gradient.
    """

    model: Rc3Model

    def post_init(self) -> None:
        super().post_init()
        # Otherwise, processes that train together would wait for its gradients, because DDP's search for unused
        # parameters is not possible with gradient checkpointing. The encoder does use the embedding that they share.
        unused = [f"model.decoder.{name}" for name, _ in self.model.decoder.named_parameters()]
        self._ddp_params_and_buffers_to_ignore = [name for name in unused if not name.endswith("embed_tokens.weight")]


def checked_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean cross-entropy of logits [N, C] and labels [N]."""
    if labels.shape != logits.shape[:1]:
        raise InputError(f"labels {list(labels.shape)} for logits {list(logits.shape)}: one for each row is needed")
    if not (known := (labels >= 0) & (labels < logits.shape[1])).all():
        row = int((~known).nonzero()[0])
        raise InputError(f"labels[{row}]={int(labels[row])}; there are labels 0 to {logits.shape[1] - 1}")
    return F.cross_entropy(logits.float(), labels)


@dataclass
class Rc3RetrievalOutput(SequenceClassifierOutput):
    """Output of `Rc3ForImageTextRetrieval`.

    Args:
        logits ([N / candidates, candidates]): the scores, one row for each question.
        scores ([N]): how well the text and the image of a row fit.
    """

    scores: Tensor | None = None


class Rc3ForImageTextRetrieval(Rc3EncoderTaskModel):
    """Scores how well a text and an image fit; trained to find the right one of several candidates (Flickr30K,
    MSCOCO).

    Examples:
        >>> model = AutoModelForMultipleChoice.from_pretrained("runs/rc3-retrieval")
        >>> inputs = processor(images=images, text=captions, language="de", return_tensors="pt")
        >>> model(**inputs).scores  # [N]
    """

    auto_classes = ("AutoModelForMultipleChoice",)

    def __init__(self, config: Rc3Config) -> None:
        super().__init__(config)
        self.model = Rc3Model(config)
        self.dropout = nn.Dropout(config.dropout)
        self.scorer = nn.Linear(config.d_model, 1)
        self.post_init()

    @property
    def sentence_module(self) -> str | None:
        """What runs the model in sentence-transformers, which has pixels for it and no region features."""
        return "CrossEncoderModule" if self.config.has_patches else None

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
        """Scores N texts with their images; inputs are those of `Rc3Encoder.forward`.

        Like transformers' models for multiple choice, it also takes questions with their candidates: `input_ids` [N,
        C, T], and [N, C, …] for all other inputs.

        Args:
            labels ([N / candidates]): index of the right candidate of each question; the loss is the cross-entropy.
            candidates: number of consecutive rows that answer one question. The default is C for questions, else 4
                with labels, as in IGLUE (the right pair, another caption, another image, a hard caption), else 1.
            kwargs: arguments of transformers; inputs of a decoder have no effect.

        Returns:
            Scores, logits and loss.
        """
        visual = visual_inputs(region_features, region_mask, pixel_values, pixel_mask)
        inputs: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask, **visual}
        if input_ids is not None and input_ids.dim() == 3:
            inputs, candidates = _rows_of_questions(inputs, candidates)
        encoded = self.model.encode(**inputs, **without_decoder_inputs(kwargs))
        scores = self.scorer(self.dropout(encoded.pooler_output))[:, 0]  # [N]
        size = candidates or (1 if labels is None else 4)
        if scores.shape[0] % size:
            raise InputError(f"{scores.shape[0]} rows cannot be divided into questions of {size} candidates")
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
    """Turns inputs of questions with candidates into rows, [N, C, …] -> [N C, …]; also returns C."""
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
