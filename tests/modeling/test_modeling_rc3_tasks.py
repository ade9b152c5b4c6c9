import inspect

import pytest
import torch
from torch import nn
from transformers import AutoModelForImageTextToText, AutoModelForSeq2SeqLM, AutoModelForVisualQuestionAnswering

import babelens
from babelens.modeling.modeling_rc3_tasks import TASK_MODELS
from babelens.utils.errors import InputError, LanguageTagError
from tests import contracts

DECODER = {
    "decoder_input_ids": torch.tensor([[7, 12, 13], [6, 14, 1], [8, 15, 16], [7, 17, 18]]),
    "decoder_attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1]]),
    "labels": torch.tensor([[12, 13, 2], [14, 2, -100], [15, 16, 2], [17, 18, 2]]),
}


def batch_of(model_class):
    return contracts.visio_textual_batch(images=2 if model_class is babelens.Rc3ForVisualReasoning else 1)


def with_labels(model, model_class):
    labels = {
        babelens.Rc3ForConditionalGeneration: DECODER,
        babelens.Rc3ForVisualEntailment: {"labels": torch.tensor([2, 0, 1, 1])},
        babelens.Rc3ForVisualReasoning: {"labels": torch.tensor([1, 0, 0, 1])},
        babelens.Rc3ForVisualQuestionAnswering: {"labels": torch.rand(4, model.config.num_labels)},
        babelens.Rc3ForImageTextRetrieval: {"labels": torch.tensor([3])},
    }
    return batch_of(model_class) | labels[model_class]


@pytest.fixture(params=TASK_MODELS, ids=lambda cls: cls.__name__)
def model_class(request):
    return request.param


@pytest.fixture
def model(make_rc3, model_class):
    return make_rc3(model_class)[0]


class Published(contracts.PublishedModelContract):
    factory = "make_rc3"

    def answers(self, model, batch):
        return contracts.answers(model, batch)

    @pytest.fixture
    def batch(self):
        return batch_of(self.options.get("model_class"))


class TestPublishedModel(contracts.ConfigContract, Published):
    pass


class TestPublishedGeneration(Published):
    options = {"model_class": babelens.Rc3ForConditionalGeneration}
    auto_classes = (AutoModelForSeq2SeqLM, AutoModelForImageTextToText)


class TestPublishedQuestionAnswering(Published):
    options = {"model_class": babelens.Rc3ForVisualQuestionAnswering, "num_labels": 7}
    auto_classes = (AutoModelForVisualQuestionAnswering,)


def test_a_pre_trained_model_loads_for_a_task(make_rc3, model_class, tmp_path):
    before, _ = make_rc3(babelens.Rc3ForPreTraining)
    before.save_pretrained(tmp_path)
    model, info = model_class.from_pretrained(tmp_path, output_loading_info=True)
    weights = dict(before.base_model.state_dict())
    contracts.assert_equal(dict(model.model.state_dict()), weights)
    assert all(name.startswith(("classifier.", "scorer.")) for name in info["missing_keys"])
    model.save_pretrained(tmp_path / "task")
    contracts.assert_equal(dict(babelens.Rc3Model.from_pretrained(tmp_path / "task").state_dict()), weights)


def test_a_loss_reaches_every_parameter_that_the_task_reads(make_rc3, model_class):
    model = make_rc3(model_class)[0].train()
    model(**with_labels(model, model_class)).loss.backward()
    untouched = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    if model_class is babelens.Rc3ForConditionalGeneration:
        assert not untouched
    else:  # decided from the encoder alone
        assert untouched == {name for name, _ in model.named_parameters() if name.startswith("model.decoder.")}


@torch.no_grad()
@pytest.mark.parametrize(
    ("model_class", "labels"),
    [
        (babelens.Rc3ForVisualEntailment, {0: "contradiction", 1: "neutral", 2: "entailment"}),
        (babelens.Rc3ForVisualReasoning, {0: "false", 1: "true"}),
    ],
)
def test_labels_are_decided_from_the_first_state(model, model_class, labels):
    inputs = with_labels(model, model_class)
    output = model(**inputs)
    assert model.config.id2label == labels and model.config.label2id == {name: i for i, name in labels.items()}
    first = model.model.encode(**batch_of(model_class)).last_hidden_state[:, 0]
    logits = first.double() @ model.classifier.weight.double().T + model.classifier.bias.double()
    torch.testing.assert_close(output.logits.double(), logits, rtol=1e-5, atol=1e-5)
    right = logits.exp()[torch.arange(4), inputs["labels"]] / logits.exp().sum(1)
    torch.testing.assert_close(output.loss.double(), -right.log().mean(), rtol=1e-5, atol=1e-5)
    assert model(**batch_of(model_class)).loss is None


@torch.no_grad()
def test_answers_are_learned_one_by_one(make_rc3):
    model, _ = make_rc3(babelens.Rc3ForVisualQuestionAnswering, num_labels=7)
    labels = torch.zeros(4, 7)
    labels[range(4), [3, 0, 6, 2]] = torch.tensor([1.0, 0.3, 1.0, 0.6])
    output = model(**contracts.visio_textual_batch(), labels=labels)
    likely = output.logits.double().sigmoid()
    expected = -(labels * likely.log() + (1 - labels) * (1 - likely).log()).sum(1).mean()
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-5, atol=1e-5)
    assert [type(layer) for layer in model.classifier] == [nn.Linear, nn.GELU, nn.LayerNorm, nn.Linear]


@torch.no_grad()
def test_candidates_are_compared_within_their_question(make_rc3):
    model, _ = make_rc3(babelens.Rc3ForImageTextRetrieval)
    batch = contracts.visio_textual_batch()
    scores = model(**batch).scores
    assert scores.shape == (4,) and model(**batch).logits.shape == (4, 1)
    output = model(**batch, labels=torch.tensor([2]))
    torch.testing.assert_close(output.loss, scores.logsumexp(0) - scores[2])
    assert torch.equal(output.logits, scores[None])
    pairs = model(**batch, labels=torch.tensor([1, 0]), candidates=2)
    by_hand = torch.stack([scores[:2].logsumexp(0) - scores[1], scores[2:].logsumexp(0) - scores[2]]).mean()
    torch.testing.assert_close(pairs.loss, by_hand)
    assert torch.equal(model(**batch, candidates=2).logits, scores.reshape(2, 2))


@pytest.fixture
def writer(make_rc3):
    return make_rc3(babelens.Rc3ForConditionalGeneration)[0]


@torch.no_grad()
def test_tokens_that_are_the_encoders_are_never_written(writer):
    encoders = torch.tensor([4, 5])
    logits = writer(**contracts.visio_textual_batch(), **DECODER).logits
    assert (logits.softmax(-1)[..., encoders] == 0).all() and (logits.bfloat16().softmax(-1)[..., encoders] == 0).all()
    drawn = writer.generate(
        **contracts.visio_textual_batch(), language="de", do_sample=True, temperature=9.0, max_new_tokens=40
    )
    assert not torch.isin(drawn, encoders).any()


@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        ({"language": "sw"}, LanguageTagError, "has not learned 'sw'; its languages are en, de, zh"),
        ({"language": "klingonish"}, LanguageTagError, "klingonish"),
        ({}, InputError, "the language to write is missing"),
    ],
)
def test_writing_in_no_language_or_an_unknown_one_is_refused(writer, options, error, complaint):
    with pytest.raises(error, match=complaint):
        writer.generate(**contracts.visio_textual_batch(), max_new_tokens=3, **options)


def free(name: str) -> tuple[int, ...]:
    return (0, 1) if name in ("input_ids", "attention_mask") else (0,)


def test_a_head_of_the_encoder_can_be_exported(make_rc3):
    model, _ = make_rc3(babelens.Rc3ForVisualReasoning)
    batch = contracts.visio_textual_batch(images=2)
    # The rows differ from the exported ones in modalities, languages and lengths.
    others = [{n: v[rows] for n, v in batch.items()} for rows in ([3, 2], [3, 2, 1, 0, 0, 2])]
    shorter = {n: v[[0, 3]] for n, v in batch.items()}
    others.append(shorter | {name: shorter[name][:, :5] for name in ("input_ids", "attention_mask")})
    contracts.check_export(
        contracts.Called(model, "forward", "logits"), {n: v[:3] for n, v in batch.items()}, others, free
    )


@pytest.mark.parametrize("model_class", [babelens.Rc3Model, *TASK_MODELS])
def test_forward_names_its_inputs(model_class):
    """transformers' Trainer drops the columns of a data set that `forward` does not name."""
    named = inspect.signature(model_class.forward).parameters
    assert {"input_ids", "region_features", "region_mask", "pixel_values", "pixel_mask"} <= named.keys()
