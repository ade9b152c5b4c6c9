import re

import numpy as np
import pytest
import torch

from babelens import Rc3ForPreTraining
from babelens.model_cards.cards import model_card
from babelens.model_cards.facts import DataSource, ModelCardFacts
from babelens.trainers.rc3_tasks import RC3_TASKS
from tests.contracts import drawn_images
from tests.support.tiny_native import saved
from tests.support.tiny_rc3_tasks import LANGUAGES, REGION_SIZE, tiny_config, tiny_processor

READS = {"regions": ("regions=", "images="), "patches": ("images=", "regions="), "both": ("images=", "nothing=")}

SNLI = DataSource(name="SNLI-VE", license="CC-BY-SA-4.0", role="texts", attribution="its authors")


@pytest.mark.parametrize("visual", READS)
@pytest.mark.parametrize("task", ["pretraining", "image-text-retrieval"])
def test_snippets_run(task, visual, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model_class, processor = Rc3ForPreTraining if task == "pretraining" else RC3_TASKS[task].model, tiny_processor()
    saved((model_class(tiny_config(processor, visual=visual, max_position_embeddings=300)), processor), "rc3")
    for name, image in zip(("image", "left", "right"), drawn_images(3), strict=True):
        image.save(f"{name}.png")
        np.save(f"{name}.npy", np.ones((3, REGION_SIZE), np.float32))
    about = {"model_name": "rc3", "method": "rc3", "image_languages": LANGUAGES, "training_data": [SNLI]}
    if task != "pretraining":
        about |= {"task": task, "model_class": model_class.__name__, "metrics": RC3_TASKS[task].metrics, "labels": []}
    text = model_card(ModelCardFacts(**about), folder="rc3").text
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    given, not_given = READS[visual]
    assert snippets and given in snippets[0] and not_given not in snippets[0]
    namespace: dict = {}
    for code in snippets:
        exec(code.replace("your-name/rc3", "rc3"), namespace)
