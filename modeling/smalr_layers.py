"""Layers of SMALR: the sentence encoder, the image branch, and what aligns the languages in training (Burns et al.
2020, section 3)."""

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..configuration.configuration_smalr import SmalrConfig
from .modeling_common import initialized_by_itself


class SentenceEncoder(nn.Module):
    """A GRU whose state at the last word goes through a linear layer (EmbN on MULE)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gru = initialized_by_itself(nn.GRU(width, width, batch_first=True))
        self.projection = nn.Linear(width, width)

    def forward(self, words: PackedSequence) -> tuple[Tensor, PackedSequence]:
        """Maps the words of N texts [.., width] to [N, width], and returns the states at all words too."""
        states, last = self.gru(words)
        return self.projection(last[-1]), states


class ImageBranch(nn.Module):
    """Two layers on the features of an image (the Embedding Network of Wang et al. 2018)."""

    def __init__(self, config: SmalrConfig, feature_size: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(feature_size, config.image_hidden_size)
        self.norm = nn.BatchNorm1d(config.image_hidden_size)
        self.dropout = nn.Dropout(config.image_dropout)
        self.projection = nn.Linear(config.image_hidden_size, config.hidden_size)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Maps features [N, F] to embeddings [N, width] and hidden states [N, image_hidden_size]."""
        hidden = self.norm(self.hidden(features)).relu()
        return self.projection(self.dropout(hidden)), hidden


class LanguageAlignment(nn.Module):
    """Parameters that align the languages in training (sections 3.2 and 3.3).

    Two layers reconstruct masked words, one for each of the two representations; all pairs of languages share them. A
    linear layer classifies languages.
    """

    def __init__(self, config: SmalrConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.fill_sentence = nn.Linear(2 * width, 2 * width)
        self.fill_text = nn.Linear(2 * width, 2 * width)
        self.classifier = nn.Linear(width, len(config.languages))
