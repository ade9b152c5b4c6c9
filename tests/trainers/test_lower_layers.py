"""The frozen lower layers of text towers of many kinds, which pass known states on instead of computing them."""

import copy
import pickle

import pytest
import torch
from transformers import (
    AlbertConfig,
    BertConfig,
    CLIPTextConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    EuroBertConfig,
    FNetConfig,
    LongformerConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
    T5Config,
    UMT5Config,
    XLMConfig,
    XLMRobertaConfig,
)

from babelens.modeling.towers import build_tower, keep_frozen_parts_still
from babelens.trainers.lower_layers import LowerLayers, TextStates, frozen_lower_layers
from babelens.trainers.tower_training import TowerTraining, trained_weights

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 50,
}
KINDS = [
    BertConfig(**SIZES),
    XLMRobertaConfig(**SIZES),
    RobertaConfig(**SIZES),
    DistilBertConfig(dim=16, n_layers=3, n_heads=2, hidden_dim=32, vocab_size=50),
    MPNetConfig(**SIZES),
    ElectraConfig(**SIZES, embedding_size=8),
    DebertaV2Config(**SIZES, relative_attention=True, position_buckets=4),
    CLIPTextConfig(**SIZES),
    # Its layers differ: every second one attends to the neighbors alone.
    ModernBertConfig(**SIZES, pad_token_id=0, global_attn_every_n_layers=2, local_attention=4),
]
WHOLE = [
    T5Config(d_model=16, d_ff=32, num_layers=3, num_heads=2, d_kv=8, vocab_size=50),  # the first layer's positions
    FNetConfig(**{name: SIZES[name] for name in SIZES if name != "num_attention_heads"}),  # it reads padding
    LongformerConfig(**SIZES, attention_window=2),  # its states are padded to a multiple of the window
    # Positions of texts longer than four tokens depend on the longest text of the batch.
    EuroBertConfig(
        **SIZES,
        num_key_value_heads=2,
        pad_token_id=0,
        max_position_embeddings=4,
        rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 100.0},
    ),
]
IDS = torch.tensor([[9, 10, 2, 0, 0], [5, 6, 7, 8, 2]])
MASK = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
WIDER = torch.nn.functional.pad(IDS, (0, 1)), torch.nn.functional.pad(MASK, (0, 1))
BATCHES = [(IDS[:1, :3], MASK[:1, :3]), (IDS, MASK), WIDER]


def half_frozen(config, layers):
    torch.manual_seed(0)
    tower = build_tower(config, pooler=False)
    with torch.no_grad():  # as new, weights are so small that attention is the same everywhere
        for weight in tower.parameters():
            weight.mul_(5 if weight.dim() > 1 else 1)
    trained = trained_weights(tower, TowerTraining(train="upper", layers=layers))
    for name, weight in tower.named_parameters():
        weight.requires_grad_(name in trained)
    return tower


def kind(config):
    return config.model_type


def reader(tower):
    """What a model reads of texts: their mean state."""

    def read(input_ids, attention_mask):
        states = tower(input_ids=input_ids, attention_mask=attention_mask, return_dict=True).last_hidden_state
        return (states * attention_mask[..., None]).sum(1)

    return read


def width(tower):
    lower = LowerLayers(tower, frozen_lower_layers(tower))
    with torch.no_grad():
        return lower.width_of_states(reader(tower), BATCHES)


@pytest.mark.parametrize("config", KINDS, ids=kind)
@pytest.mark.parametrize("layers", [1, 2])
def test_outputs_and_gradients_are_those_of_the_whole_tower(config, layers):
    tower = half_frozen(config, layers).eval()
    assert frozen_lower_layers(tower) == 3 - layers
    lower = LowerLayers(tower, 3 - layers)
    assert width(tower) == 16
    assert lower.are_still(reader(keep_frozen_still(tower)), (IDS, MASK))
    tower.eval()
    with lower.recorded(), torch.no_grad():
        tower(input_ids=IDS, attention_mask=MASK)

    def states_of(tokens):
        padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in tokens], batch_first=True)
        with lower.recorded() as found, torch.no_grad():
            tower(input_ids=padded, attention_mask=(padded > 0).long())
        return found[0]

    states = TextStates([[9, 10, 2], [5, 6, 7, 8, 2], [11, 2]], 16, torch.float32)
    states.states = states.computed(states_of, 3, "states")
    run = []
    for layer in lower.layers:
        layer.register_forward_pre_hook(lambda layer, args: run.append(layer))
        dense = next(part for part in layer.modules() if isinstance(part, torch.nn.Linear))
        dense.register_forward_pre_hook(lambda *args: run.append("computed"))
    expected, expected_gradients = outputs_and_gradients(tower)
    assert run.count("computed") == len(lower.layers)
    run.clear()
    with lower.skipped(states.of, always=True):
        found, gradients = outputs_and_gradients(tower)
    assert run == lower.layers
    assert torch.equal(found, expected)
    assert gradients.keys() == expected_gradients.keys() != set()
    for name, gradient in gradients.items():
        assert torch.equal(gradient, expected_gradients[name]), name


def outputs_and_gradients(tower):
    tower.zero_grad()
    output = tower(input_ids=IDS, attention_mask=MASK).last_hidden_state[MASK.bool()]
    output.square().mean().backward()
    return output, {name: weight.grad for name, weight in tower.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("config", WHOLE, ids=kind)
def test_towers_with_shared_positions_run_as_a_whole(config):
    tower = half_frozen(config, 1).eval()
    assert frozen_lower_layers(tower) == 2 and width(tower) is None


def keep_frozen_still(tower):
    keep_frozen_parts_still(tower.train())
    return tower


def test_a_pooling_that_reads_padding_needs_all_layers():
    tower = half_frozen(BertConfig(**SIZES), 1).eval()

    def last(input_ids, attention_mask):
        return tower(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state[:, -1]

    assert LowerLayers(tower, 2).width_of_states(last, BATCHES) is None


@pytest.mark.parametrize(
    "config",
    [
        # Dropout beside the layers, on what the frozen embeddings give.
        UMT5Config(d_model=16, d_ff=32, num_layers=3, num_heads=2, d_kv=8, vocab_size=50, dropout_rate=0.5),
        # A normalization of positions, which all layers share.
        DebertaV2Config(**SIZES, relative_attention=True, norm_rel_ebd="layer_norm", pos_att_type=["c2p", "p2c"]),
    ],
    ids=kind,
)
def test_states_that_change_from_step_to_step_are_not_kept(config):
    tower = keep_frozen_still(half_frozen(config, 1))
    assert not LowerLayers(tower, 2).are_still(reader(tower), (IDS, MASK))
    before = torch.get_rng_state()
    LowerLayers(tower, 2).are_still(reader(tower), (IDS, MASK))
    assert torch.equal(torch.get_rng_state(), before)


def test_which_layers_are_below_all_that_is_trained():
    bert = BertConfig(**SIZES)
    assert [frozen_lower_layers(half_frozen(bert, layers)) for layers in (1, 2, 3)] == [2, 1, 0]
    tower = build_tower(bert, pooler=False)
    assert frozen_lower_layers(tower) == 0
    tower.requires_grad_(False)
    tower.embeddings.LayerNorm.bias.requires_grad_(True)
    assert frozen_lower_layers(tower) == 0
    # One layer that runs several times, and layers that are no single modules.
    assert frozen_lower_layers(half_frozen(AlbertConfig(**SIZES, embedding_size=8), 1)) == 0
    assert frozen_lower_layers(half_frozen(XLMConfig(emb_dim=16, n_layers=3, n_heads=2, n_words=50), 1)) == 0


def test_the_states_do_not_depend_on_the_layers_above():
    lower = LowerLayers(half_frozen(BertConfig(**SIZES), 1), 2)
    names = lower.weights().keys()
    assert "embeddings.word_embeddings.weight" in names and "encoder.layer.1.output.dense.weight" in names
    assert not any(name.startswith("encoder.layer.2.") for name in names)


def test_unknown_texts_run_through_all_layers():
    tower = half_frozen(BertConfig(**SIZES), 1).eval()
    lower, asked = LowerLayers(tower, 2), []
    expected = tower(input_ids=IDS, attention_mask=MASK).last_hidden_state

    def unknown(ids, mask):
        asked.append(ids)

    with lower.skipped(unknown, always=True):
        assert torch.equal(tower(input_ids=IDS, attention_mask=MASK).last_hidden_state, expected)
    assert len(asked) == 1
    with lower.skipped(unknown):  # evaluation reads all texts as they will be read afterwards
        tower(input_ids=IDS, attention_mask=MASK)
    assert len(asked) == 1


def test_the_layers_are_as_before_after_an_error():
    tower = half_frozen(BertConfig(**SIZES), 1).eval()
    lower = LowerLayers(tower, 2)
    mine = lower.layers[0].forward
    lower.layers[0].forward = mine  # as libraries place one of their own
    with lower.skipped(lambda ids, mask: torch.zeros(1, 1, 7), always=True), pytest.raises(RuntimeError):
        tower(input_ids=IDS, attention_mask=MASK)
    assert lower.layers[0].__dict__["forward"] is mine
    assert "forward" not in lower.layers[1].__dict__
    assert not tower._forward_hooks and not tower._forward_pre_hooks
    tower(input_ids=IDS, attention_mask=MASK)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_layers_are_as_before_after_an_interruption(error):
    tower = half_frozen(BertConfig(**SIZES), 1).eval()
    lower = LowerLayers(tower, 2)
    expected = tower(input_ids=IDS, attention_mask=MASK).last_hidden_state

    def interrupt(*args):
        raise error

    handle = lower.above[0].register_forward_pre_hook(interrupt)
    with pytest.raises(error), lower.skipped(lambda ids, mask: torch.zeros(2, 5, 16), always=True):
        tower(input_ids=IDS, attention_mask=MASK)
    handle.remove()
    assert not any("forward" in layer.__dict__ for layer in lower.layers)
    assert torch.equal(tower(input_ids=IDS, attention_mask=MASK).last_hidden_state, expected)


def test_copies_of_the_tower_run_all_their_layers():
    tower = half_frozen(BertConfig(**SIZES), 1).eval()
    expected = tower(input_ids=IDS, attention_mask=MASK).last_hidden_state
    lower = LowerLayers(tower, 2)
    with lower.skipped(lambda ids, mask: torch.zeros(2, 5, 16), always=True):
        copies = [copy.deepcopy(tower), pickle.loads(pickle.dumps(tower))]
    for each in copies:
        assert torch.equal(each(input_ids=IDS, attention_mask=MASK).last_hidden_state, expected)


@pytest.mark.parametrize("asked", ["output_hidden_states", "output_attentions"])
def test_all_layers_run_where_their_own_states_are_read(asked):
    tower = half_frozen(BertConfig(**SIZES, attn_implementation="eager"), 1).eval()
    lower, known = LowerLayers(tower, 2), []
    with lower.skipped(lambda ids, mask: known.append(ids), always=True):
        tower(input_ids=IDS, attention_mask=MASK, **{asked: True})
        setattr(tower.config, asked, True)
        tower(input_ids=IDS, attention_mask=MASK)
        assert not known
        tower(input_ids=IDS, attention_mask=MASK, **{asked: False})
        assert len(known) == 1


def test_states_are_found_by_the_tokens_of_a_text():
    states = TextStates([[4, 5], [6], [4, 5], [], [7, 8, 9]], 2, torch.float32)
    assert states.size == 6 * 2 * 4  # equal texts are kept once
    assert states.of(IDS, MASK) is None
    read = []

    def states_of(tokens):
        read.append([ids.tolist() for ids in tokens])
        padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in tokens], batch_first=True)
        return padded[..., None].expand(-1, -1, 2).float()

    states.states = states.computed(states_of, 2, "states")
    assert read == [[[7, 8, 9], [4, 5]], [[6]]]
    ids, mask = torch.tensor([[6, 1], [4, 5]]), torch.tensor([[1, 0], [1, 1]])
    assert states.of(ids, mask)[..., 0].tolist() == [[6, 0], [4, 5]]
    assert states.of(torch.tensor([[6, 1], [5, 4]]), mask) is None  # another text
    assert states.of(ids.flip(1), mask.flip(1)) is None  # padded on the left
    assert states.of(ids, mask * torch.tensor([[0], [1]])) is None  # a text without a token
