"""RC3's heads for the downstream tasks (Zhou et al. 2023, section 3 and appendix B).

    generation      p(y_t | y_<t, x, v) = softmax(E h_t + b)     of the decoder's states h_t
    classification  p(c | x, v) = softmax(W VtR + b)             of the encoder's first state, VtR
    retrieval       p(k | x, v) = softmax_k(w . VtR_k + b)       over the candidates of a question

The last two heads come from IGLUE (Bugliarello et al. 2022), whose data and protocol the paper follows. Every model
holds `self.model = Rc3Model`, so weights of the pre-training load by name and only the head is new.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GenerationMixin, PreTrainedModel, initialization as init
from transformers.modeling_outputs import Seq2SeqLMOutput, SequenceClassifierOutput
from transformers.utils import can_return_tuple

from ..configuration.configuration_rc3 import Rc3Config
from ..utils.errors import InputError, LanguageTagError
from .modeling_common import initialized_by_itself
from .modeling_rc3 import Rc3EncoderOutput, Rc3Model, Rc3PreTrainedModel

# The logit of [CLS] and [SEP'], which only the encoder uses: a softmax gives exactly 0, also in half precision, and
# its sum with others stays finite.
_NEVER = -1e4


class WordBias(nn.Module):
    """Holds the bias of the words' logits; torchao cannot read tensors that belong to the model itself."""

    final_logits_bias: Tensor

    def __init__(self, config: Rc3Config) -> None:
        super().__init__()
        self.never = [config.cls_token_id, config.image_separator_token_id]
        self.register_buffer("final_logits_bias", torch.empty(1, config.vocab_size))
        self.reset_parameters()
        initialized_by_itself(self)

    def reset_parameters(self) -> None:
        bias = torch.zeros_like(self.final_logits_bias)
        bias[0, self.never] = _NEVER
        init.copy_(self.final_logits_bias, bias)


class Rc3ForConditionalGeneration(Rc3PreTrainedModel, GenerationMixin):
    """Writes a text in a language, given a text and an image: multi-modal translation, or captions.

    Examples:
        >>> model = AutoModelForImageTextToText.from_pretrained("runs/rc3-translation")
        >>> inputs = processor(images=images, text=captions, language="en", return_tensors="pt")
        >>> processor.batch_decode(model.generate(**inputs, language="de"))
    """

    auto_classes = ("AutoModelForSeq2SeqLM", "AutoModelForImageTextToText")
    _tied_weights_keys = {"lm_head.weight": "model.shared.weight"}
    _keys_to_ignore_on_load_missing = ("final_logits_bias",)

    def __init__(self, config: Rc3Config) -> None:
        super().__init__(config)
        self.model = Rc3Model(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.word_bias = WordBias(config)
        self.post_init()

    @property
    def final_logits_bias(self) -> Tensor:
        """mBART's bias, which is added to the logits [1, vocabulary]."""
        return self.word_bias.final_logits_bias

    def _adopt(self, source: PreTrainedModel) -> None:
        if hasattr(source, "final_logits_bias"):
            self.final_logits_bias[:, : source.config.vocab_size] += source.final_logits_bias
        self.generation_config = copy.deepcopy(source.generation_config)
        # mBART-50 starts with </s> and then forces the language; here, texts start with the language of the call.
        self.generation_config.decoder_start_token_id = self.generation_config.forced_bos_token_id = None

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> nn.Module:
        embeddings = super().resize_token_embeddings(new_num_tokens, *args, **kwargs)
        added = embeddings.weight.shape[0] - self.final_logits_bias.shape[1]
        self.word_bias.final_logits_bias = F.pad(self.final_logits_bias, (0, added))
        return embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        region_features: Tensor | None = None,
        region_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        pixel_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        encoder_outputs: Rc3EncoderOutput | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Computes the logits of the next token, [N, U, vocabulary], for inputs as in `Rc3Model.forward`. `labels` [N,
        U] are `words </s>`, -100 at padding, and the loss is the mean cross-entropy over the tokens."""
        if decoder_input_ids is None:
            raise InputError("decoder_input_ids are needed: they start with the target language's token")
        output = self.model(
            *(input_ids, attention_mask, region_features, region_mask, pixel_values, pixel_mask),
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            use_cache=False if labels is not None else use_cache,
            **kwargs | {"return_dict": True},
        )
        logits = self.lm_head(output.last_hidden_state) + self.final_logits_bias
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        states = {name: value for name, value in output.items() if name != "last_hidden_state"}
        return Seq2SeqLMOutput(loss=loss, logits=logits, **states)

    def generate(
        self, inputs: Tensor | None = None, *args: Any, language: str | Sequence[str] | None = None, **kwargs: Any
    ) -> Any:
        """Generates texts as transformers does, in the `language` of one tag for all rows, or of a tag for each row;
        `decoder_start_token_id` or `decoder_input_ids` can be given instead."""
        if language is not None:
            tags = [language] if isinstance(language, str) else language
            tokens = [self.config.language_token_id(tag) for tag in tags]
            kwargs["decoder_start_token_id"] = tokens[0] if isinstance(language, str) else tokens
        elif kwargs.get("decoder_input_ids") is None:  # then transformers would start with <s>
            configs = [kwargs.get("generation_config"), *args[:1], self.generation_config]
            starts = [kwargs.get("decoder_start_token_id")]
            starts += [config.decoder_start_token_id for config in configs if config is not None]
            start = next((each for each in starts if each is not None), None)
            if start is None:
                raise InputError("the language to write is missing: give language='de', or decoder_start_token_id")
            known = self.config.language_token_ids
            if unknown := set(torch.as_tensor(start).flatten().tolist()) - {*known}:
                raise LanguageTagError(
                    f"decoder_start_token_id={unknown.pop()} is not the token of a language: {list(known)}"
                )
        return super().generate(inputs, *args, **kwargs)


class Rc3EncoderTaskModel(Rc3PreTrainedModel):
    """Base class of the tasks whose head reads VtR. The decoder is kept, so the weights are those of the pre-training,
    but it receives no gradient."""

    model: Rc3Model

    def __init__(self, config: Rc3Config) -> None:
        super().__init__(config)
        self.model = Rc3Model(config)
        self.dropout = nn.Dropout(config.dropout)

    def post_init(self) -> None:
        super().post_init()
        # Otherwise, processes that train together would wait for its gradients: DDP cannot search for unused
        # parameters with gradient checkpointing. The encoder does use the embedding that they share.
        unused = [f"model.decoder.{name}" for name, _ in self.model.decoder.named_parameters()]
        self._ddp_params_and_buffers_to_ignore = [name for name in unused if not name.endswith("embed_tokens.weight")]


@dataclass
class Rc3RetrievalOutput(SequenceClassifierOutput):
    """Output of `Rc3ForImageTextRetrieval`: how well the text and the image of each row fit, `scores` [N], also with
    one row for each question, `logits` [N / candidates, candidates]."""

    scores: Tensor | None = None


class Rc3ForImageTextRetrieval(Rc3EncoderTaskModel):
    """Scores how well a text and an image fit; trained to find the right candidate (Flickr30K, MSCOCO).

    Examples:
        >>> model = AutoModelForMultipleChoice.from_pretrained("runs/rc3-retrieval")
        >>> inputs = processor(images=images, text=captions, language="de", return_tensors="pt")
        >>> model(**inputs).scores  # [N]
    """

    auto_classes = ("AutoModelForMultipleChoice",)

    def __init__(self, config: Rc3Config) -> None:
        super().__init__(config)
        self.scorer = nn.Linear(config.d_model, 1)
        self.post_init()

    @property
    def sentence_module(self) -> str | None:
        """Runs the model in sentence-transformers, which gives it pixels but no region features."""
        return "inference.rc3_pipelines.CrossEncoderModule" if self.config.has_patches else None

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
        """Scores N texts with their images; inputs are as in `Rc3Encoder.forward`. A question has `candidates`
        consecutive rows, by default 4 with labels, as in IGLUE (the right pair, another caption, another image, a hard
        caption); `labels` [N / candidates] are the indices of the right ones."""
        visual = region_features, region_mask, pixel_values, pixel_mask
        encoded = self.model.encode(input_ids, attention_mask, *visual, **kwargs)
        scores = self.scorer(self.dropout(encoded.pooler_output))[:, 0]  # [N]
        size = candidates or (1 if labels is None else 4)
        if scores.shape[0] % size:
            raise InputError(f"{scores.shape[0]} rows cannot be divided into questions of {size} candidates")
        logits = scores.reshape(-1, size)
        return Rc3RetrievalOutput(
            loss=None if labels is None else F.cross_entropy(logits.float(), labels),
            logits=logits,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
            scores=scores,
        )


class Rc3ForClassification(Rc3EncoderTaskModel):
    """Base class of the tasks with labels; subclasses may define another head and loss."""

    # Labels that apply if the configuration has none, and other settings of the configuration that the task needs.
    default_labels: ClassVar[tuple[str, ...]]
    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, config: Rc3Config) -> None:
        config = copy.deepcopy(config)  # other models may be built from it
        for name, value in self.settings.items():
            setattr(config, name, value)
        if not config.id2label:
            config.id2label = dict(enumerate(self.default_labels))
            config.label2id = {label: i for i, label in config.id2label.items()}
        super().__init__(config)
        self.classifier = self.new_head(config)
        self.post_init()

    def new_head(self, config: Rc3Config) -> nn.Module:
        """Returns the head that maps VtR to logits."""
        return nn.Linear(config.d_model, config.num_labels)

    def objective(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns the mean cross-entropy of labels [N]."""
        return F.cross_entropy(logits.float(), labels)

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
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Computes logits [N, labels]; inputs are as in `Rc3Encoder.forward`."""
        visual = region_features, region_mask, pixel_values, pixel_mask
        encoded = self.model.encode(input_ids, attention_mask, *visual, **kwargs)
        logits = self.classifier(self.dropout(encoded.pooler_output))
        return SequenceClassifierOutput(
            loss=None if labels is None else self.objective(logits, labels),
            logits=logits,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )


class Rc3ForVisualEntailment(Rc3ForClassification):
    """Classifies whether an image entails a text (XVNLI), `logits` [N, 3]."""

    auto_classes = ("AutoModelForSequenceClassification",)
    default_labels = ("contradiction", "neutral", "entailment")


class Rc3ForVisualReasoning(Rc3ForClassification):
    """Classifies whether a text is true of two images, which the processor pairs (MaRVL, NLVR2), `logits` [N, 2]."""

    # transformers has no closer Auto class for labelling a statement about two images.
    auto_classes = ("AutoModelForImageClassification",)
    default_labels = ("false", "true")
    settings: ClassVar[dict[str, Any]] = {"images_per_text": 2}


class Rc3ForVisualQuestionAnswering(Rc3ForClassification):
    """Classifies which of the known answers is right (xGQA, with GQA's 1842 answers)."""

    auto_classes = ("AutoModelForVisualQuestionAnswering",)
    default_labels = tuple(f"LABEL_{i}" for i in range(1842))

    def new_head(self, config: Rc3Config) -> nn.Module:
        width = 2 * config.d_model
        return nn.Sequential(
            nn.Linear(config.d_model, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, config.num_labels)
        )

    def objective(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns the mean over rows of the summed binary cross-entropies with scores [N, answers] from 0 to 1."""
        if not ((labels >= 0) & (labels <= 1)).all():
            raise InputError("the scores of answers (labels) must be between 0 and 1")
        loss = F.binary_cross_entropy_with_logits(logits.float(), labels.float())
        return loss * logits.shape[1]


TASK_MODELS: tuple[type[Rc3PreTrainedModel], ...] = (
    Rc3ForConditionalGeneration,
    Rc3ForVisualEntailment,
    Rc3ForVisualReasoning,
    Rc3ForVisualQuestionAnswering,
    Rc3ForImageTextRetrieval,
)
