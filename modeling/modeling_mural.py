"""MURAL: multimodal, multitask representations across languages (Jain et al. 2021); ALIGN is MURAL without the
text-text task.

MURAL has an image tower and a text tower. The text tower's state at [CLS] goes through one of two linear heads, one
for matching images with texts and one for matching translations (section 3.1).
"""

from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import AlignModel, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_mural import MuralConfig
from ..configuration.configuration_two_tower import image_width
from ..configuration.strict_config import IMAGE_TEXT, TEXT_TEXT
from ..utils.errors import ModelKindError, ModelMismatchError
from .losses.contrastive import symmetric_contrastive_loss
from .modeling_dual_encoder import DualEncoderOutput
from .modeling_two_tower import TwoTowerModel

ALIGN_LABEL_SMOOTHING = 0.1  # of Jia et al. 2021, section 5, and a constant in transformers' AlignModel


class MuralModel(TwoTowerModel):
    """MURAL, a dual encoder with a text head for each task; with the task `image_text` alone, it is ALIGN.

    Examples:
        >>> model = AutoModel.from_pretrained("runs/mural")
        >>> inputs = processor(images=images, text=captions, language="de", return_tensors="pt")
        >>> logits = model(**inputs).logits_per_image  # [n_images, n_texts]
    """

    config_class = MuralConfig
    auto_classes = ("AutoModel", "AutoModelForZeroShotImageClassification")

    def __init__(self, config: MuralConfig) -> None:
        super().__init__(config)
        heads = [IMAGE_TEXT] if config.shared_text_head else config.tasks
        self.text_heads = nn.ModuleDict({task: self.new_text_head() for task in heads})
        self.post_init()

    @classmethod
    def from_align(cls, align: AlignModel) -> "MuralModel":
        """Makes a `MuralModel` without a text-text task from the weights of a transformers `AlignModel`.

        It is trained further with the label smoothing that `AlignModel` has.

        Raises:
            ModelKindError: if it is a model of another kind.
            ModelMismatchError: if its texts and images have different widths.
        """
        if align.config.model_type != "align":
            raise ModelKindError(
                f"a {align.config.model_type!r} model is no AlignModel; MuralModel.from_towers takes the towers of "
                "any dual encoder, with new linear layers"
            )
        if (width := image_width(align.config.vision_config)) != align.config.projection_dim:
            raise ModelMismatchError(
                f"this AlignModel projects texts to projection_dim={align.config.projection_dim}, and its images, "
                f"which it does not project, are {width} wide, so that it cannot compare them; "
                f"MuralModel.from_towers(align, align, projection_dim={align.config.projection_dim}) takes its "
                "towers, with new linear layers for both"
            )
        config = MuralConfig(
            tasks=[IMAGE_TEXT],
            text_config=align.config.text_config,
            vision_config=align.config.vision_config,
            temperature_init_value=align.config.temperature_init_value,
            label_smoothing=ALIGN_LABEL_SMOOTHING,
        )
        model = cls(config)
        head = f"text_heads.{IMAGE_TEXT}"
        weights = {name.replace("text_projection", head): value for name, value in align.state_dict().items()}
        # ALIGN reads the state at [CLS], and never uses its tanh pooler.
        model.load_state_dict(
            {name: value for name, value in weights.items() if not name.startswith("text_model.pooler")}
        )
        return model.train(align.training)

    @classmethod
    def from_mural(cls, mural: PreTrainedModel, **options: object) -> "MuralModel":
        """Makes a `MuralModel` with the weights of a trained one that has other tasks: an ALIGN gets a text head for
        translations, drawn as in a new model (appendix A.1).

        Args:
            mural: a `MuralModel`.
            options: keys of `MuralConfig` that replace those of the model: `tasks`, and those of the losses.

        Raises:
            ModelKindError: if it is a model of another kind.

        Examples:
            >>> model = MuralModel.from_mural(align, tasks=["image_text", "text_text"])
        """
        if mural.config.model_type != "mural":
            raise ModelKindError(f"a MURAL goes on from a MURAL or ALIGN; this one is {mural.config.model_type!r}")
        config = MuralConfig.from_dict(mural.config.to_dict() | options)
        model = cls(config)
        own = model.state_dict()
        model.load_state_dict(own | {name: value for name, value in mural.state_dict().items() if name in own})
        return model.train(mural.training)

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        task: str = IMAGE_TEXT,
        text_features: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds texts.

        Args:
            input_ids ([N, T]): token ids, as the processor makes them.
            attention_mask ([N, T]): 0 at padding.
            task: name of the head; `"text_text"` gives the space in which translations are compared.
            text_features ([N, W]): pooled features of the text tower that were computed before, instead.
            kwargs: keyword arguments of the text tower.

        Returns:
            The text tower's output; `pooler_output` [N, d] holds the embeddings, which are not normalized.

        Raises:
            ArgumentError: for a keyword that the text tower does not have.
            InputError: if there are neither texts nor features, or features of another width.
            ValueError: if the model has no head for the task.
        """
        return self.embed_text(input_ids, attention_mask, self._head(task), text_features, **kwargs)

    def _head(self, task: str) -> nn.Module:
        if task not in self.config.tasks:
            raise ValueError(f"this model has no head for {task!r}; its tasks are {list(self.config.tasks)}")
        return self.text_heads[IMAGE_TEXT if self.config.shared_text_head else task]

    def training_head(self, has_images: bool, has_translations: bool) -> nn.Module:
        """Returns the head of the task that the inputs of a batch call for.

        Raises:
            ValueError: if there are both images and translations, or the model has no head for the task.
        """
        if has_images and has_translations:
            raise ValueError("give images or translations, not both: each task has its own text head")
        return self._head(TEXT_TEXT if has_translations else IMAGE_TEXT)

    def contrastive_objective(
        self, output: DualEncoderOutput, *, positives: Tensor | None = None, tile_size: int | None = None
    ) -> Tensor:
        """Computes L_i2t + L_t2i on image-text pairs, or L_l2r + L_r2l on translation pairs (section 3.1).

        Arguments are those of `DualEncoderPreTrainedModel`.

        Raises:
            ValueError: if the output has no texts, or neither images nor translations.
        """
        return self.mean_over_widths(partial(self._objective, positives=positives, tile_size=tile_size), output)

    def _objective(self, output: DualEncoderOutput, *, positives: Tensor | None, tile_size: int | None) -> Tensor:
        if output.text_embeds is None or (output.image_embeds is None and output.paired_text_embeds is None):
            raise ValueError("a loss needs texts and their images (pixel_values) or translations (paired_input_ids)")
        options = {"positives": positives, "tile_size": tile_size}
        if output.paired_text_embeds is not None:
            left, right = output.text_embeds, output.paired_text_embeds
            options["margin"] = self.config.text_text_margin
            return symmetric_contrastive_loss(left, right, self.config.text_text_temperature, **options)
        return self.image_text_loss(output, output.text_embeds, label_smoothing=self.config.label_smoothing, **options)


__all__ = ["MuralModel"]
