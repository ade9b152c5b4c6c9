"""RC3's encoder and what is decided from it can be exported, with texts of any number and length."""

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
