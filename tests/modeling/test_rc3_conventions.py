"""RC3's models are called as transformers' are: keywords, PEFT's task types, problem types, multiple choice."""

import copy

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.nn import functional as F

from babelens import (
    Rc3Config,
    Rc3ForConditionalGeneration,
    Rc3ForImageTextRetrieval,
    Rc3ForPreTraining,
    Rc3ForVisualEntailment,
    Rc3ForVisualQuestionAnswering,
    Rc3ForVisualReasoning,
    Rc3Model,
)
from babelens.utils.errors import InputError
from tests.contracts import TINY_RC3, visio_textual_batch

CLASSIFIERS = (Rc3ForVisualEntailment, Rc3ForVisualQuestionAnswering, Rc3ForVisualReasoning)
MODELS = (Rc3Model, *CLASSIFIERS, Rc3ForImageTextRetrieval, Rc3ForConditionalGeneration)
LAYERS = TINY_RC3["encoder_layers"]


def make(model_class, **options):
    torch.manual_seed(0)
    return model_class(Rc3Config(**TINY_RC3 | options)).eval()


def batch_of(model_class):
    batch = visio_textual_batch(images=2 if model_class is Rc3ForVisualReasoning else 1)
    if model_class is Rc3ForConditionalGeneration:
        decoder_input_ids = torch.tensor([[7, 10, 11], [7, 12, 2], [6, 13, 14], [6, 15, 2]])
        batch |= {"decoder_input_ids": decoder_input_ids, "labels": decoder_input_ids.roll(-1, 1)}
    return batch


@pytest.mark.parametrize("model_class", MODELS)
def test_states_and_attentions_come_when_asked_for(model_class):
    model, batch = make(model_class), batch_of(model_class)
    plain = model(**batch, num_items_in_batch=3, inputs_embeds=None)
    model.set_attn_implementation("eager")
    output = model(**batch, output_hidden_states=True, output_attentions=True)
    torch.testing.assert_close(output[0], plain[0])
    prefix = "encoder_" if model_class is Rc3ForConditionalGeneration else ""
    assert len(output[f"{prefix}hidden_states"]) == LAYERS + 1
    assert len(output[f"{prefix}attentions"]) == LAYERS
    found = model(**batch, return_dict=False)
    assert isinstance(found, tuple) and torch.allclose(found[0], output[0])
    model.config.return_dict = False
    assert torch.equal(model(**batch)[0], found[0])


@pytest.mark.parametrize("model_class", MODELS)
def test_missing_inputs_are_named(model_class):
    model, batch = make(model_class), batch_of(model_class)
    with pytest.raises(InputError, match="give input_ids"):
        model(**{name: value for name, value in batch.items() if name not in ("input_ids", "attention_mask")})


@pytest.mark.parametrize("model_class", [*CLASSIFIERS, Rc3ForImageTextRetrieval])
def test_inputs_of_a_decoder_have_no_effect_on_encoder_tasks(model_class):
    """transformers' own tests give them to every encoder-decoder."""
    model, batch = make(model_class), batch_of(model_class)
    decoder = {"decoder_input_ids": batch["input_ids"], "decoder_attention_mask": None, "use_cache": False}
    assert torch.equal(model(**batch, **decoder).logits, model(**batch).logits)


def test_pre_training_gives_the_states_of_the_masked_rows():
    batch = visio_textual_batch()
    text = {name: batch.pop(name) for name in ("input_ids", "attention_mask")}
    target = torch.tensor([[7, 10, 11], [7, 12, 2], [6, 13, 14], [6, 15, 2]])
    decoder = {"decoder_input_ids": target, "decoder_attention_mask": torch.ones_like(target), "labels": target}
    masked = {"input_ids": text["input_ids"], "labels": text["input_ids"]}
    strict = {"first": text, "second": text, "partner": torch.tensor([1, 0, 3, 2]), "masked": masked}
    strict |= {"decoder": decoder} | batch
    model = make(Rc3ForPreTraining)
    plain = model(strict=strict, num_items_in_batch=4)
    assert plain.encoder_hidden_states is None and plain.cross_attentions is None
    model.set_attn_implementation("eager")
    output = model(strict=strict, output_hidden_states=True, output_attentions=True)
    torch.testing.assert_close(output.loss, plain.loss)
    for name in ("encoder_hidden_states", "decoder_hidden_states"):
        assert len(output[name]) == LAYERS + 1
    for name in ("encoder_attentions", "decoder_attentions", "cross_attentions"):
        assert len(output[name]) == LAYERS
    with pytest.raises(InputError, match="none of the given data sets"):
        model()


# ---- PEFT ----


@pytest.mark.parametrize(
    ("model_class", "task_type"),
    [
        (Rc3ForVisualEntailment, "SEQ_CLS"),
        (Rc3Model, "FEATURE_EXTRACTION"),
    ],
)
def test_lora_of_a_task_type_trains_saves_and_loads(model_class, task_type, tmp_path):
    batch = batch_of(model_class)
    base = make(model_class, **({"id2label": {0: "a", 1: "b"}} if task_type == "SEQ_CLS" else {}))
    if task_type == "SEQ_CLS":
        shape = (4, 2) if model_class is Rc3ForVisualQuestionAnswering else (4,)
        batch |= {"labels": torch.ones(shape, dtype=torch.long)}
    lora = LoraConfig(task_type=task_type, r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = get_peft_model(copy.deepcopy(base), lora)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    output = model(**batch)
    loss = output.last_hidden_state.square().mean() if task_type == "FEATURE_EXTRACTION" else output.loss
    loss.backward()
    optimizer.step()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert changed and all("lora_" in name or "modules_to_save" in name for name in changed)
    assert any("lora_" in name for name in changed)
    model.eval().save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(base, tmp_path).eval()
    assert torch.equal(loaded(**batch)[1], model(**batch)[1])
    if task_type == "SEQ_2_SEQ_LM":
        inputs = visio_textual_batch()
        written = model.generate(**inputs, decoder_start_token_id=7, max_new_tokens=4)
        assert written.shape[0] == 4


# ---- Problem types ----


@pytest.mark.parametrize("model_class", [Rc3ForVisualEntailment, Rc3ForVisualQuestionAnswering])
@pytest.mark.parametrize(
    ("problem_type", "labels", "expected"),
    [
        ("regression", torch.rand(4, 3), lambda logits, labels: F.mse_loss(logits, labels)),
        ("single_label_classification", torch.tensor([0, 2, 1, 1]), F.cross_entropy),
        ("multi_label_classification", torch.ones(4, 3), F.binary_cross_entropy_with_logits),
    ],
)
def test_the_loss_is_that_of_the_problem_type(model_class, problem_type, labels, expected):
    model = make(model_class, problem_type=problem_type, id2label=dict(enumerate("abc")))
    output = model(**visio_textual_batch(), labels=labels)
    torch.testing.assert_close(output.loss, expected(output.logits, labels))
    with pytest.raises(InputError, match=r"labels \[3"):
        model(**visio_textual_batch(), labels=labels[:3])


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_regression_to_one_number(shape):
    model = make(Rc3ForVisualEntailment, problem_type="regression", id2label={0: "similarity"})
    labels = torch.rand(4)
    output = model(**visio_textual_batch(), labels=labels.reshape(shape))
    torch.testing.assert_close(output.loss, F.mse_loss(output.logits[:, 0], labels))


# ---- Multiple choice ----


@pytest.mark.parametrize("images", [1, 2])
def test_questions_with_candidates_are_scored_as_their_rows(images):
    model, rows = make(Rc3ForImageTextRetrieval, images_per_text=images), visio_textual_batch(images)
    expected = model(**rows, candidates=2, labels=torch.tensor([0, 1]))
    questions = {name: value.unflatten(0, (2, 2)) for name, value in rows.items()}
    found = model(**questions, labels=torch.tensor([0, 1]))
    assert found.logits.shape == (2, 2)
    for name in ("loss", "logits", "scores"):
        assert torch.equal(found[name], expected[name])
    assert torch.equal(model(**questions).logits, expected.logits)
    with pytest.raises(InputError, match="questions of 2, not 4 candidates"):
        model(**questions, candidates=4)
    with pytest.raises(InputError, match=r"pixel_values \[2, 3"):
        model(**questions | {"pixel_values": torch.zeros(2, 3, 8, 8)})
