"""SMALR's promises about its size (Burns et al. 2020, section 5), kept by models of the paper's sizes without weights.

The paper gives the words of English alone, 25,126. Those of ten languages together follow from another of its numbers:
words make up 93 % of MULE. 15,000 latent tokens are taken to be in use after the first stage.
"""

import pytest
import torch

from babelens import CrossLingualConsistency, CrossLingualConsistencyConfig, SmalrModel, load_preset
from babelens.configuration.configuration_smalr import SMALR_LANGUAGES
from babelens.modeling.modeling_dual_encoder import count_parameters

VOCABULARIES = [25_126, *[31_500] * 9]


def counts(**settings):
    """Trained parameters, and those needed at test time."""
    with torch.device("meta"):
        model = SmalrModel(load_preset("smalr-base", vocabulary_sizes=VOCABULARIES, **settings))
    needed = count_parameters(model.text_model) + count_parameters(model.image_branch)
    fills = [model.alignment.fill_sentence, model.alignment.fill_text]  # which learn nothing without masked words
    unused = [] if model.config.mask_weight else fills
    return count_parameters(model) - sum(map(count_parameters, unused)), needed


def test_ten_languages_in_twenty_million_parameters():
    trained, needed = counts(latent_tokens=15_000)
    consistency = CrossLingualConsistency(CrossLingualConsistencyConfig(languages=SMALR_LANGUAGES))
    assert trained < 20e6
    assert needed + count_parameters(consistency) == pytest.approx(7.1e6, rel=0.1)
    mule, mule_needed = counts(specific_words=None, latent_tokens=0, mask_weight=0.0, word_size=300)
    assert mule > 5 * trained
    assert 1 - mule_needed / mule == pytest.approx(0.93, abs=0.005)
