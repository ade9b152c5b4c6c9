"""The Python of RC3's cards runs on the card's model, whichever visual inputs it reads."""

import re

import numpy as np
import pytest
import torch

from babelens import Rc3ForPreTraining
from babelens.model_cards.cards import model_card
from babelens.model_cards.facts import DataSource, ModelCardFacts
from babelens.trainers.rc3_tasks import RC3_TASKS
from tests.contracts import drawn_images
from tests.support.tiny_rc3_tasks import LANGUAGES, REGION_SIZE, tiny_config, tiny_processor

READS = {"regions": ("regions=", "images="), "patches": ("images=", "regions="), "both": ("images=", "nothing=")}

SNLI = DataSource(name="SNLI-VE", license="CC-BY-SA-4.0", role="texts", attribution="its authors")


def facts(task: str, **changes) -> ModelCardFacts:
    return ModelCardFacts(
        method="rc3",
        task=task,
        model_class=RC3_TASKS[task].model.__name__,
        metrics=RC3_TASKS[task].metrics,
        labels=["yes", "no"],
        training_data=[SNLI],
        results=[],
        **changes,
    )


@pytest.fixture(scope="module")
def processor():
    return tiny_processor()


@pytest.mark.parametrize("visual", READS)
@pytest.mark.parametrize("task", ["pretraining", "image-text-retrieval"])
def test_snippets_run(task, visual, processor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model_class = Rc3ForPreTraining if task == "pretraining" else RC3_TASKS[task].model
    labels = {"num_labels": 2} if task == "visual-question-answering" else {"max_position_embeddings": 300}
    model_class(tiny_config(processor, visual=visual, **labels)).save_pretrained("rc3")
    processor.save_pretrained("rc3")
    for name, image in zip(("image", "left", "right"), drawn_images(3), strict=True):
        image.save(f"{name}.png")
        np.save(f"{name}.npy", np.ones((3, REGION_SIZE), np.float32))
    common = {"model_name": "rc3", "image_languages": LANGUAGES, "unseen_languages": []}
    if task == "pretraining":
        data: list[DataSource] = [SNLI]
        about = ModelCardFacts(method="rc3", training_data=data, parameters=1, **common)
    else:
        about = facts(task, **common)
    text = model_card(about, folder="rc3").text
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    given, not_given = READS[visual]
    assert snippets and given in snippets[0] and not_given not in snippets[0]
    namespace: dict = {}
    for code in snippets:
        exec(code.replace("your-name/rc3", "rc3"), namespace)
