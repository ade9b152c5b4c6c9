"""RC3's task models: what they decide, lose, write and refuse; pre-trained weights load into each of them."""

import copy

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForImageTextToText,
    AutoModelForMultipleChoice,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForVisualQuestionAnswering,
    GenerationConfig,
)

from babelens import (
    Rc3ForConditionalGeneration,
    Rc3ForImageTextRetrieval,
    Rc3ForPreTraining,
    Rc3ForVisualEntailment,
    Rc3ForVisualQuestionAnswering,
    Rc3ForVisualReasoning,
    Rc3Model,
)
from babelens.modeling.modeling_rc3_tasks import TASK_MODELS
from babelens.utils.errors import InputError, LanguageTagError
from tests.contracts import PublishedModelContract, answers, assert_equal, visio_textual_batch

DECODER = {
    "decoder_input_ids": torch.tensor([[7, 12, 13], [6, 14, 1], [8, 15, 16], [7, 17, 18]]),
    "decoder_attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1]]),
    "labels": torch.tensor([[12, 13, 2], [14, 2, -100], [15, 16, 2], [17, 18, 2]]),
}


def batch_of(model_class):
    return visio_textual_batch(images=2 if model_class is Rc3ForVisualReasoning else 1)


def with_labels(model, model_class):
    """A training batch."""
    labels = {
        Rc3ForConditionalGeneration: DECODER,
        Rc3ForVisualEntailment: {"labels": torch.tensor([2, 0, 1, 1])},
        Rc3ForVisualReasoning: {"labels": torch.tensor([1, 0, 0, 1])},
        Rc3ForVisualQuestionAnswering: {"labels": torch.rand(4, model.config.num_labels)},
        Rc3ForImageTextRetrieval: {"labels": torch.tensor([3])},
    }
    return batch_of(model_class) | labels[model_class]


@pytest.fixture(params=TASK_MODELS, ids=lambda cls: cls.__name__)
def model_class(request):
    return request.param


@pytest.fixture
def model(make_rc3, model_class):
    return make_rc3(model_class)[0]


# ---- Saved and loaded ----


class Published(PublishedModelContract):
    factory = "make_rc3"

    def answers(self, model, batch):
        return answers(model, batch)

    @pytest.fixture
    def batch(self):
        return batch_of(self.options.get("model_class"))


class TestPublishedModel(Published):
    pass


class TestPublishedGeneration(Published):
    options = {"model_class": Rc3ForConditionalGeneration}
    auto_classes = (AutoModelForSeq2SeqLM, AutoModelForImageTextToText)


class TestPublishedQuestionAnswering(Published):
    options = {"model_class": Rc3ForVisualQuestionAnswering, "num_labels": 7}
    auto_classes = (AutoModelForVisualQuestionAnswering,)


def test_a_pre_trained_model_loads_for_a_task(make_rc3, model_class, tmp_path):
    before, _ = make_rc3(Rc3ForPreTraining)
    before.save_pretrained(tmp_path)
    model, info = model_class.from_pretrained(tmp_path, output_loading_info=True)
    weights = dict(before.base_model.state_dict())
    assert_equal(dict(model.model.state_dict()), weights)
    assert all(name.startswith(("classifier.", "scorer.")) for name in info["missing_keys"])
    model.save_pretrained(tmp_path / "task")
    assert_equal(dict(Rc3Model.from_pretrained(tmp_path / "task").state_dict()), weights)


# ---- Training ----


def test_a_loss_reaches_every_parameter_that_the_task_reads(make_rc3, model_class):
    model = make_rc3(model_class)[0].train()
    model(**with_labels(model, model_class)).loss.backward()
    untouched = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    if model_class is Rc3ForConditionalGeneration:
        assert not untouched
    else:  # decided from the encoder alone
        assert untouched == {name for name, _ in model.named_parameters() if name.startswith("model.decoder.")}


@torch.no_grad()
def test_bfloat16_stays_close(make_rc3):
    for model_class in TASK_MODELS:
        model, _ = make_rc3(model_class)
        inputs = with_labels(model, model_class)
        exact, rough = model(**inputs), copy.deepcopy(model).to(torch.bfloat16)(**inputs)
        assert rough.logits.dtype == torch.bfloat16 and rough.loss.dtype == torch.float32
        torch.testing.assert_close(rough.loss, exact.loss, rtol=0.05, atol=0.05)


# ---- Decisions ----


@torch.no_grad()
@pytest.mark.parametrize(
    ("model_class", "labels"),
    [
        (Rc3ForVisualEntailment, {0: "contradiction", 1: "neutral", 2: "entailment"}),
        (Rc3ForVisualReasoning, {0: "false", 1: "true"}),
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
    model, _ = make_rc3(Rc3ForVisualQuestionAnswering, num_labels=7)
    labels = torch.zeros(4, 7)
    labels[range(4), [3, 0, 6, 2]] = torch.tensor([1.0, 0.3, 1.0, 0.6])
    output = model(**visio_textual_batch(), labels=labels)
    likely = output.logits.double().sigmoid()
    expected = -(labels * likely.log() + (1 - labels) * (1 - likely).log()).sum(1).mean()
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-5, atol=1e-5)
    assert [type(layer) for layer in model.classifier] == [nn.Linear, nn.GELU, nn.LayerNorm, nn.Linear]


@torch.no_grad()
def test_candidates_are_compared_within_their_question(make_rc3):
    model, _ = make_rc3(Rc3ForImageTextRetrieval)
    batch = visio_textual_batch()
    scores = model(**batch).scores
    assert scores.shape == (4,) and model(**batch).logits.shape == (4, 1)
    output = model(**batch, labels=torch.tensor([2]))
    torch.testing.assert_close(output.loss, scores.logsumexp(0) - scores[2])
    assert torch.equal(output.logits, scores[None])
    pairs = model(**batch, labels=torch.tensor([1, 0]), candidates=2)
    by_hand = torch.stack([scores[:2].logsumexp(0) - scores[1], scores[2:].logsumexp(0) - scores[2]]).mean()
    torch.testing.assert_close(pairs.loss, by_hand)
    assert torch.equal(model(**batch, candidates=2).logits, scores.reshape(2, 2))


@pytest.mark.parametrize(
    ("model_class", "options", "labels", "error"),
    [
        (Rc3ForVisualEntailment, {}, torch.tensor([0, 3, 1, 1]), IndexError),
        (Rc3ForVisualQuestionAnswering, {"num_labels": 7}, torch.zeros(4, 8), ValueError),
        (Rc3ForVisualQuestionAnswering, {"num_labels": 7}, torch.full((4, 7), 1.5), InputError),
    ],
)
def test_labels_that_there_are_not_are_refused(make_rc3, model_class, options, labels, error):
    model, _ = make_rc3(model_class, **options)
    with pytest.raises(error):
        model(**batch_of(model_class), labels=labels)


# ---- Writing ----


@pytest.fixture
def writer(make_rc3):
    return make_rc3(Rc3ForConditionalGeneration)[0]


@torch.no_grad()
def test_the_loss_is_the_mean_over_the_tokens(writer):
    output = writer(**visio_textual_batch(), **DECODER)
    likely = output.logits.double().log_softmax(-1)
    rows, places = (DECODER["labels"] != -100).nonzero(as_tuple=True)
    expected = -likely[rows, places, DECODER["labels"][rows, places]].mean()
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_greedy_writing_takes_the_likeliest_token(writer):
    batch = visio_textual_batch()
    written = writer.generate(**batch, language="zh", max_new_tokens=6)
    assert (written[:, 0] == 8).all()
    assert torch.equal(written, writer.generate(**batch, language="zh", max_new_tokens=6, use_cache=False))
    by_hand = torch.full((4, 1), 8)
    ended = torch.zeros(4, dtype=torch.bool)
    for _ in range(written.shape[1] - 1):
        following = writer(**batch, decoder_input_ids=by_hand).logits[:, -1].argmax(-1)
        by_hand = torch.cat([by_hand, following.where(~ended, 1)[:, None]], 1)
        ended |= following == 2
    assert torch.equal(written, by_hand)


@torch.no_grad()
def test_each_row_is_written_in_its_language(writer):
    batch, languages = visio_textual_batch(), ["de", "en", "zh", "de"]
    written = writer.generate(**batch, language=languages, num_beams=3, max_new_tokens=6)
    assert written[:, 0].tolist() == [7, 6, 8, 7]
    for row, language in enumerate(languages):
        alone = {name: value[[row]] for name, value in batch.items()}
        again = writer.generate(**alone, language=language, num_beams=3, max_new_tokens=6)[0]
        assert again.tolist() == written[row, : len(again)].tolist()
    texts = {name: batch[name] for name in ("input_ids", "attention_mask")}
    assert not torch.equal(writer.generate(**texts, language=languages, max_new_tokens=6), written)


@torch.no_grad()
def test_the_language_may_stand_in_a_generation_configuration(writer):
    batch = visio_textual_batch()
    expected = writer.generate(**batch, language="de", max_new_tokens=5)
    settings = GenerationConfig(decoder_start_token_id=7, max_new_tokens=5, eos_token_id=2, pad_token_id=1)
    for options in ({"decoder_start_token_id": 7, "max_new_tokens": 5}, {"generation_config": settings}):
        assert torch.equal(writer.generate(**batch, **options), expected)
    ids = batch.pop("input_ids")
    assert torch.equal(writer.generate(ids, settings, **batch), expected)


@torch.no_grad()
def test_tokens_that_are_the_encoders_are_never_written(writer):
    encoders = torch.tensor([4, 5])
    logits = writer(**visio_textual_batch(), **DECODER).logits
    assert (logits.softmax(-1)[..., encoders] == 0).all() and (logits.bfloat16().softmax(-1)[..., encoders] == 0).all()
    drawn = writer.generate(**visio_textual_batch(), language="de", do_sample=True, temperature=9.0, max_new_tokens=40)
    assert not torch.isin(drawn, encoders).any()


@torch.no_grad()
def test_a_grown_vocabulary_keeps_what_it_wrote(writer, tmp_path):
    batch = visio_textual_batch()
    expected = writer(**batch, **DECODER).logits
    writer.resize_token_embeddings(33)
    logits = writer(**batch, **DECODER).logits
    assert logits.shape[-1] == 33 and torch.equal(logits[..., :30], expected)
    writer.save_pretrained(tmp_path)
    again = Rc3ForConditionalGeneration.from_pretrained(tmp_path)
    assert torch.equal(again(**batch, **DECODER).logits, logits)


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
        writer.generate(**visio_textual_batch(), max_new_tokens=3, **options)


def test_a_target_without_its_language_is_refused(writer):
    with pytest.raises(InputError, match="decoder_input_ids"):
        writer(**visio_textual_batch(), labels=DECODER["labels"])


def test_all_auto_classes_build_their_models_without_weights(make_rc3):
    config = make_rc3()[0].config
    found = {
        AutoModel: Rc3Model,
        AutoModelForSeq2SeqLM: Rc3ForConditionalGeneration,
        AutoModelForImageTextToText: Rc3ForConditionalGeneration,
        AutoModelForSequenceClassification: Rc3ForVisualEntailment,
        AutoModelForImageClassification: Rc3ForVisualReasoning,
        AutoModelForVisualQuestionAnswering: Rc3ForVisualQuestionAnswering,
        AutoModelForMultipleChoice: Rc3ForImageTextRetrieval,
    }
    for auto_class, model_class in found.items():
        assert type(auto_class.from_config(config)) is model_class


# ---- As transformers calls models ----


def test_states_and_attentions_come_when_asked_for(make_rc3, model_class):
    """Inputs of a decoder, which transformers' own tests give to every encoder-decoder, change nothing elsewhere."""
    model, _ = make_rc3(model_class)
    writes = model_class is Rc3ForConditionalGeneration
    inputs = batch_of(model_class) | (DECODER if writes else {})
    plain = model(**inputs, num_items_in_batch=3, inputs_embeds=None)
    if not writes:
        decoder = {"decoder_input_ids": inputs["input_ids"], "decoder_attention_mask": None, "use_cache": False}
        assert torch.equal(model(**inputs, **decoder).logits, plain.logits)
    model.set_attn_implementation("eager")
    output = model(**inputs, output_hidden_states=True, output_attentions=True)
    torch.testing.assert_close(output[0], plain[0])
    prefix = "encoder_" if writes else ""
    assert len(output[f"{prefix}hidden_states"]) == 3 and len(output[f"{prefix}attentions"]) == 2
    model.config.return_dict = False
    assert torch.equal(model(**inputs)[0], output[0])
    with pytest.raises(InputError, match="give input_ids"):
        model(**{name: value for name, value in inputs.items() if name not in ("input_ids", "attention_mask")})


def test_lora_of_a_task_type_trains_saves_and_loads(make_rc3, tmp_path):
    base, _ = make_rc3(Rc3ForVisualEntailment)
    inputs = with_labels(base, Rc3ForVisualEntailment)
    lora = LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = get_peft_model(copy.deepcopy(base), lora)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model(**inputs).loss.backward()
    torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1).step()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert all("lora_" in name or "modules_to_save" in name for name in changed)
    assert any("lora_" in name for name in changed)
    model.eval().save_pretrained(tmp_path)
    assert torch.equal(PeftModel.from_pretrained(base, tmp_path).eval()(**inputs)[1], model(**inputs)[1])
