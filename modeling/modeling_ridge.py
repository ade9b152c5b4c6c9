"""Languages for a frozen dual encoder in closed form: ridge regression from the characters of a text, and a text
encoder's features, to the embedding that the dual encoder gives its translation.

A text x is its character n-grams, hashed into rows with tf-idf weights φ(x), and, where the model has a frozen
multilingual text encoder, its pooled features ψ(x) without their mean μ in the language. Each language has a linear
map W. With the mean m of embeddings, their mean distance r from it, and the directions D in which they vary most,

    e(x) = m + r · D · u/‖u‖,    u = W (φ(x), (ψ(x) − μ)/‖ψ(x) − μ‖)

Predictions are scaled to the distance r, because a regression shrinks them towards the mean. With a glossary, the
direction of the native embedding of the word-by-word translation is added to u/‖u‖. The native model embeds images and
native texts. All languages share a map for texts whose language is not stated (`und`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple, logging

from ..configuration.configuration_mla import RidgeConfig, VectorSpaceConfig, feature_width
from ..configuration.configuration_two_tower import text_width
from ..utils.errors import InputError
from .modeling_common import initialized_by_itself, is_exporting
from .modeling_dual_encoder import normalize, pool_text
from .modeling_mla import MlaPreTrainedModel, new_native_model

logger = logging.get_logger(__name__)

_ROWS_AT_ONCE = 64  # texts; each one reads a row of the map for each of its n-grams
_SPACE = ord(" ")
# Characters that mean as much as several letters of other scripts: kana and ideographs, Hangul, rare ideographs.
_CJK = (0x2E80, 0x9FFF), (0xAC00, 0xD7AF), (0x20000, 0x3FFFF)
# A prime below 2^31, so that products of two remainders stay below 2^63, and two constants that mix the characters.
_PRIME, _FACTOR, _SALT = 2_147_483_647, 1_000_003, 7_919


def hashed_ngrams(characters: Tensor, rows: int, shortest: int, longest: int, cjk: int = 0) -> tuple[Tensor, Tensor]:
    """Hashes the n-grams, of `shortest` to `longest` characters, of texts [N, C] to one of `rows`, inside words or
    with the space next to them, as in scikit-learn's `char_wb`; scripts without spaces are one long word. N-grams with
    a Chinese, Japanese or Korean character have 1 to `cjk` characters, unless that is 0. Texts are code points
    that begin and end with a space, padded with 0 on the right. Returns the row of each n-gram [N, J], and whether it
    is one [N, J]: some of the J positions are padding, lie across words, or are only spaces."""
    is_space, is_cjk = characters == _SPACE, torch.zeros_like(characters, dtype=torch.bool)
    for first, last in _CJK if cjk else ():
        is_cjk = is_cjk | ((characters >= first) & (characters <= last))
    places, kept = [], []
    for size in range(1 if cjk else shortest, longest + 1):
        count = characters.shape[1] - size + 1
        if count < 1:
            break
        hashed = torch.full_like(characters[:, :count], size * _SALT)
        valid, has_cjk = characters[:, size - 1 :] > 0, is_cjk[:, :count]
        for offset in range(size):
            hashed = (hashed * _FACTOR + characters[:, offset : offset + count]) % _PRIME
            has_cjk = has_cjk | is_cjk[:, offset : offset + count]
            if 0 < offset < size - 1:
                valid = valid & ~is_space[:, offset : offset + count]
        if size <= 2:
            valid = valid & ~(is_space[:, :count] & is_space[:, size - 1 :])
        if size < shortest:
            valid = valid & has_cjk
        if size > cjk:
            valid = valid & ~has_cjk
        places.append(hashed % rows)
        kept.append(valid)
    if not places:
        return characters[:, :0], is_space[:, :0]
    return torch.cat(places, 1), torch.cat(kept, 1)


def ngram_weights(places: Tensor, kept: Tensor, importance: Tensor) -> Tensor:
    """Returns the weights of `hashed_ngrams` [N, J], tf-idf with sublinear counts: log(1 + count) times the importance
    of the row, for each text [N, rows] or for all [1, rows]. Summed by row, the weights of a text have length 1."""
    ones = kept.to(importance.dtype)
    counts = torch.zeros(places.shape[0], importance.shape[1], dtype=ones.dtype, device=ones.device)
    counts = counts.scatter_add(1, places, ones).gather(1, places).clamp(min=1)  # [N, J]
    factors = importance.expand(places.shape[0], -1).gather(1, places)
    whole = counts.log1p() * factors * ones  # of a row
    length = (whole.square() / counts).sum(1, keepdim=True).sqrt()
    return whole / counts / length.clamp(min=1e-6)


def centered(features: Tensor, mean: Tensor) -> Tensor:
    """Returns pooled features [N, W] without the mean [W] of their language, with length 1: the mean is a large part
    of a pooled feature, and says nothing about the text."""
    return normalize(features.float() - mean)


class VectorSpaceModel(PreTrainedModel):
    """The native model of texts whose targets were vectors of a table, or of a library that embeds native inputs."""

    config_class = VectorSpaceConfig
    base_model_prefix = ""
    main_input_name = "input_ids"

    def __init__(self, config: VectorSpaceConfig) -> None:
        super().__init__(config)
        self.logit_scale = nn.Parameter(torch.zeros(()))
        self.post_init()

    def get_text_features(self, **inputs: Any) -> Any:
        source = self.config.source or "what made the vectors"
        raise InputError(f"native texts and images are embedded by {source}, not by this model")

    get_image_features = get_text_features


AutoModel.register(VectorSpaceConfig, VectorSpaceModel, exist_ok=True)


class RidgeMaps(nn.Module):
    """The maps of all languages, in float32 in any model; the first is shared, for texts whose language is not stated.
    Those of n-grams are whole numbers of 8 bits with a factor for each direction: 1.5 MB a language."""

    mean: Tensor  # [d], of all targets
    radius: Tensor  # [], their distance from it
    directions: Tensor  # [rank, d]
    importance: Tensor  # [1 + languages, rows], as of all that follow
    ngrams: Tensor  # [.., rows, rank], int8
    factors: Tensor  # [.., rank]
    encoder_mean: Tensor  # [.., W]
    encoder_map: Tensor  # [.., W, rank]

    def __init__(self, config: RidgeConfig) -> None:
        super().__init__()
        count, width = 1 + len(config.languages), feature_width(config.base_config)
        self.sizes = config.shortest_ngram, config.longest_ngram, config.longest_cjk_ngram
        shapes: dict[str, tuple[int, ...]] = {"mean": (width,), "radius": (), "directions": (config.rank, width)}
        shapes |= {"importance": (count, config.ngram_rows), "ngrams": (count, config.ngram_rows, config.rank)}
        shapes["factors"] = (count, config.rank)
        if config.text_config is not None:
            pooled = text_width(config.text_config, config.text_pooling)
            shapes |= {"encoder_mean": (count, pooled), "encoder_map": (count, pooled, config.rank)}
        for name, shape in shapes.items():
            dtype = torch.int8 if name == "ngrams" else torch.float32
            self.register_buffer(name, torch.empty(shape, dtype=dtype))
        self.reset_parameters()
        initialized_by_itself(self)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves the maps with the model, and keeps them in float32 when the model is cast (`model.half()`)."""

        def moved(values: Tensor) -> Tensor:
            found = fn(values)
            return found if found.dtype == values.dtype else values.to(found.device)

        return super()._apply(moved, recurse)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Sets all maps to zero: every text is embedded as the mean."""
        for name in ("radius", "importance", "factors"):
            init.ones_(getattr(self, name))
        init.copy_(self.directions, torch.eye(*self.directions.shape))
        for name in ("mean", "ngrams", "encoder_mean", "encoder_map"):
            if hasattr(self, name):
                init.zeros_(getattr(self, name))

    def _by_language(self) -> list[tuple[str, Tensor]]:
        names = ("importance", "ngrams", "factors", "encoder_mean", "encoder_map")
        return [(name, getattr(self, name)) for name in names if hasattr(self, name)]

    @property
    def has_shared(self) -> bool:
        """True if the map of texts whose language is not stated has been solved for."""
        return any(bool(values[0].any()) for name, values in self._by_language() if name in ("ngrams", "encoder_map"))

    @torch.no_grad()
    def add(self, count: int) -> None:
        """Adds maps for this number of languages after the present ones, which stay as they are."""
        for name, kept in self._by_language():
            setattr(self, name, torch.cat([kept, kept.new_zeros(count, *kept.shape[1:])]))

    @torch.no_grad()
    def set_map(self, index: int, values: Mapping[str, Tensor]) -> None:
        """Sets the map of the language at a position to a result of `rounded`."""
        for name, value in values.items():
            getattr(self, name)[index] = value

    @staticmethod
    def rounded(importance: Tensor, ngrams: Tensor, encoder: tuple[Tensor, Tensor] | None) -> dict[str, Tensor]:
        """Returns the map of one language as it is kept: importance [rows] and map [rows, rank] of n-grams, rounded to
        8 bits, mean [W] and map [W, rank] of the encoder's pooled features."""
        factors = ngrams.abs().amax(0).clamp(min=1e-12) / 127
        values = {"importance": importance, "factors": factors, "ngrams": (ngrams / factors).round().to(torch.int8)}
        if encoder is not None:
            values["encoder_mean"], values["encoder_map"] = encoder
        return values

    def rows_of(self, characters: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the rows [N, J] of the n-grams of texts, and whether each is one [N, J]."""
        return hashed_ngrams(characters, self.importance.shape[1], *self.sizes)

    def weighted_ngrams(self, characters: Tensor, importance: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the rows [N, J] of the n-grams of texts, and their weights [N, J]."""
        places, kept = self.rows_of(characters)
        return places, ngram_weights(places, kept, importance)

    def forward(
        self,
        indices: Tensor,
        characters: Tensor,
        pooled: Tensor | None,
        gloss: Tensor | None = None,
        gloss_weights: Tensor | None = None,
    ) -> Tensor:
        """Embeds texts by the maps at `indices` [N], from code points [N, C], features of the text encoder [N, W] if
        there is one, and native embeddings of word-by-word translations [N, d] with weights [N]. -> [N, d]"""
        if is_exporting():  # a graph has no branches
            found = self._read(indices, characters, pooled)
        else:
            found = self.directions.new_empty(len(indices), len(self.directions), dtype=torch.float32)
            for index in indices.unique():
                for rows in (indices == index).nonzero()[:, 0].split(_ROWS_AT_ONCE):
                    found[rows] = self._read(index[None], characters[rows], None if pooled is None else pooled[rows])
        found = normalize(found)
        if gloss is not None and gloss_weights is not None:
            both = normalize(found + gloss_weights[:, None] * self.direction_of(gloss))
            found = torch.where(gloss_weights[:, None] > 0, both, found)  # other texts keep every bit
        return self.mean.float() + self.radius.float() * found @ self.directions.float()

    def _read(self, indices: Tensor, characters: Tensor, pooled: Tensor | None) -> Tensor:
        """Applies the map of each text [N], or one map to all of them [1]. -> [N, rank]"""
        places, weights = self.weighted_ngrams(characters, self.importance[indices].float())
        rows = self.ngrams[indices[:, None], places].float()  # [N, J, rank]
        found = torch.einsum("nj,njr->nr", weights, rows) * self.factors[indices].float()
        if pooled is None:
            return found
        features = centered(pooled, self.encoder_mean[indices].float())
        maps = self.encoder_map[indices].float().expand(features.shape[0], -1, -1)
        return found + torch.bmm(features[:, None], maps)[:, 0]

    def direction_of(self, embeddings: Tensor) -> Tensor:
        """The directions [N, rank], of length 1, in which embeddings [N, d] deviate from the mean of all."""
        return normalize((normalize(embeddings.float()) - self.mean.float()) @ self.directions.float().T)


class RidgeModel(MlaPreTrainedModel):
    """A frozen dual encoder, with a linear map into its space for each acquired language.

    Examples:
        >>> inputs = processor(text=["he motokā whero"], language="mi", return_tensors="pt")
        >>> model.get_text_features(**inputs).pooler_output  # [1, d]
    """

    maps: RidgeMaps
    text_model: PreTrainedModel | None
    config_class = RidgeConfig
    auto_classes = ("AutoModel", "AutoModelForZeroShotImageClassification")
    parts = {"native model": "native_model", "text encoder": "text_model"}  # the maps are buffers

    def __init__(self, config: RidgeConfig) -> None:
        super().__init__(config)
        # Without this package, the class of `base` is a second copy, which `AutoModel` does not know.
        vectors = getattr(config.base_config, "model_type", None) == VectorSpaceConfig.model_type
        self.native_model = (VectorSpaceModel._from_config if vectors else new_native_model)(config.base_config)
        self.text_model = None if config.text_config is None else self.new_text_encoder()
        self.maps = RidgeMaps(config)
        self.requires_grad_(False)
        self.post_init()

    @classmethod
    def from_native(
        cls, native_model: PreTrainedModel, text_model: PreTrainedModel | None = None, **options: Any
    ) -> Self:
        """Makes a model without acquired languages; `options` are keys of `RidgeConfig`."""
        text_config = None if text_model is None else text_model.config
        options = {"longest_cjk_ngram": 2} | options
        with init.no_init_weights():  # which are those of the models, but for the maps
            model = cls(RidgeConfig(base_config=native_model.config, text_config=text_config, **options))
        model.take_native(native_model)
        if text_model is not None and model.text_model is not None:
            model.take_text_encoder(text_model)
        return model.eval()

    def learned_parts(self) -> list[nn.Module]:
        return [] if self.text_model is None else [self.text_model]

    def frozen_parts(self) -> list[nn.Module]:
        return [self.native_model, *self.learned_parts()]

    def set_trainable(self, part: str, languages: Sequence[str] | None = None, *, temperature: bool = False) -> None:
        raise ValueError(f"trainable={part!r}: the maps of a ridge model are solved for (babelens.trainers.ridge)")

    def get_input_embeddings(self) -> nn.Module:
        return (self.text_model or self.native_model).get_input_embeddings()

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        language_ids: Tensor | None = None,
        character_ids: Tensor | None = None,
        gloss_ids: Tensor | None = None,
        gloss_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds texts in any language; `pooler_output` [N, d] is not normalized. `input_ids` [N, T] are of the native
        tokenizer in native rows, else of the text encoder's. `language_ids` [N] are 0 for the native language, 1 for a
        language that is not stated, and the position of an acquired one plus 2. `RidgeProcessor` makes `character_ids`
        [N, C], code points with 0 at padding, and `gloss_ids` [N, T2], texts translated word by word for the native
        tokenizer, whose mask is 0 in rows without a translation."""
        if input_ids is None:
            raise InputError("a ridge model needs texts: input_ids")
        if character_ids is None:
            if language_ids is not None and language_ids.any():
                raise InputError("texts of acquired languages need character_ids: the processor makes them")
            # transformers' own pipelines have only the native model's tokenizer.
            return self.native_model.get_text_features(input_ids=input_ids, attention_mask=attention_mask)
        if language_ids is None:
            raise InputError("character_ids need language_ids: the processor makes both")
        if self.config.gloss_weights and (gloss_ids is None or gloss_attention_mask is None):
            raise InputError(
                "this model needs gloss_ids and gloss_attention_mask, which the processor makes of glossary.tsv: get "
                "the model again if that file is missing"
            )
        native, indices = language_ids == 0, language_ids - 1
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if is_exporting():  # a graph has no branches: every row is read in both ways
            ids = torch.where(native[:, None], input_ids, 0), torch.where(native[:, None], 0, input_ids)
            own = self.embed_native_texts(ids[0], mask)
            pooled, indices = self.encoder_features(ids[1], mask), indices.clamp(min=0)
            glosses = self._glosses(indices, gloss_ids, gloss_attention_mask)
            found = self.maps(indices, character_ids, pooled, *glosses).to(own)
            return BaseModelOutputWithPooling(pooler_output=torch.where(native[:, None], own, found))
        if gloss_attention_mask is not None:
            self._warn_of_unread(indices, gloss_attention_mask)
        width = feature_width(self.config.base_config)
        embeddings = torch.empty(len(input_ids), width, device=input_ids.device, dtype=self.dtype)
        if native.any():
            embeddings[native] = self.embed_native_texts(input_ids[native], mask[native])
        if not native.all():
            other = ~native
            pooled = self.encoder_features(input_ids[other], mask[other])
            given = (None if each is None else each[other] for each in (gloss_ids, gloss_attention_mask))
            glosses = self._glosses(indices[other], *given)
            embeddings[other] = self.maps(indices[other], character_ids[other], pooled, *glosses).to(self.dtype)
        return BaseModelOutputWithPooling(pooler_output=embeddings)

    def _glosses(
        self, indices: Tensor, ids: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Returns native embeddings [N, d] of word-by-word translations, and weights [N], 0 where no word is known."""
        if ids is None or mask is None or not self.config.gloss_weights:
            return None, None
        read = mask.any(1)
        weights = torch.tensor(list(self.config.gloss_weights), device=ids.device)[indices]
        weights = torch.where(read, weights, 0.0)
        if is_exporting():  # fully masked attention is NaN, and 0 · NaN is NaN
            return self.embed_native_texts(ids, torch.where(read[:, None], mask, 1)), weights
        chosen = weights > 0
        if not chosen.any():
            return None, None
        found = self.embed_native_texts(ids[chosen], mask[chosen])
        embeddings = found.new_ones(len(ids), found.shape[1])
        embeddings[chosen] = found
        return embeddings, weights

    def _warn_of_unread(self, indices: Tensor, mask: Tensor) -> None:
        """Warns of words in a glossary that have no weight: somebody may have written them."""
        weights = self.config.gloss_weights
        for index in indices[mask.any(1) & (indices > 0)].unique().tolist():
            if not weights or not weights[index]:
                logger.warning_once(
                    "glossary.tsv has words of %s, which are not read: gloss_weights in config.json gives them no "
                    "weight (where a glossary helped, it is 0.125 to 4)",
                    self.config.languages[index - 1],
                )

    @torch.no_grad()
    def encoder_features(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor | None:
        """Returns the pooled features of texts [N, W]; None without a text encoder."""
        if self.text_model is None:
            return None
        length = input_ids.shape[1] if is_exporting() else int(attention_mask.sum(-1).max())
        ids, mask = input_ids[:, :length], attention_mask[:, :length]
        output = self.text_model(input_ids=ids, attention_mask=mask, return_dict=True)
        return pool_text(output, ids, mask, self.config).float()
