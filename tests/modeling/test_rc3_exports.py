"""RC3's encoder and what is decided from it can be exported, with texts of any number and length."""

import torch

from babelens import (
    Rc3ForVisualReasoning,
)
from tests.contracts import Called, check_export, visio_textual_batch


def free(name: str) -> tuple[int, ...]:
    """Texts may be of any number and length; images of any number."""
    return (0, 1) if name in ("input_ids", "attention_mask") else (0,)


def test_a_head_of_the_encoder(make_rc3):
    model, _ = make_rc3(Rc3ForVisualReasoning)
    batch = visio_textual_batch(images=2)
    # The rows have other modalities, languages and lengths than those that the graph is made with.
    others = [{n: v[rows] for n, v in batch.items()} for rows in ([3, 2], [3, 2, 1, 0, 0, 2])]
    shorter = {n: v[[0, 3]] for n, v in batch.items()}
    others.append(shorter | {name: shorter[name][:, :5] for name in ("input_ids", "attention_mask")})
    check_export(Called(model, "forward", "logits"), {n: v[:3] for n, v in batch.items()}, others, free)


def test_an_exported_encoder_has_the_models_states(make_rc3):
    model, batch = make_rc3()[0], visio_textual_batch()
    expected = model(**batch)
    exported = torch.export.export(model, (), batch).module()
    found = exported(**batch)
    assert found.last_hidden_state.shape[1] > expected.last_hidden_state.shape[1]
    length = expected.attention_mask.shape[1]
    assert torch.equal(found.attention_mask[:, :length], expected.attention_mask)
    assert not found.attention_mask[:, length:].any()
    kept = expected.attention_mask
    torch.testing.assert_close(
        found.last_hidden_state[:, :length][kept], expected.last_hidden_state[kept], rtol=0, atol=1e-5
    )
