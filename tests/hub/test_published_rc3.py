import inspect
import json

import pytest
from safetensors.torch import load_file, save_file

import babelens
from babelens import Rc3ForPreTraining, Rc3ForVisualQuestionAnswering, Rc3ForVisualReasoning, Rc3Model
from babelens.modeling.modeling_rc3_tasks import TASK_MODELS
from tests.contracts import TEXTS, answers, assert_equal, drawn_images, visio_textual_batch
from tests.support.tiny_cross_encoder import in_rc3_pipelines, save_heads

HEADS = (Rc3ForPreTraining, *TASK_MODELS)

# Run with a folder that holds `NAME/` and inputs for each model, and a file for the answers.
LOAD_WITHOUT_PACKAGE = """
import json, sys
from pathlib import Path
from typing import Any
import torch, transformers
from torch import Tensor
from safetensors.torch import load_file, save_file

{answers}

root = Path(sys.argv[1])
for name, auto_class in json.loads(sys.argv[2]).items():
    load = getattr(transformers, auto_class).from_pretrained
    model = load(root / name, trust_remote_code=True)
    assert type(model).__module__.startswith("transformers_modules.") and type(model).__name__ == name
    batch = load_file(root / f"{{name}}.inputs")
    found = answers(model, batch)
    save_file(found, root / f"{{name}}.answers")
    model.save_pretrained(root / f"{{name}}-again")
    for key, value in answers(load(root / f"{{name}}-again", trust_remote_code=True), batch).items():
        assert torch.equal(value, found[key]), (name, key)
# What was trained before is loaded for a task, whose head is new.
for auto_class in json.loads(sys.argv[2]).values():
    getattr(transformers, auto_class).from_pretrained(root / "Rc3Model", trust_remote_code=True)
"""


@pytest.fixture(scope="module")
def folders(make_rc3, tmp_path_factory):
    root, said = tmp_path_factory.mktemp("rc3"), {}
    for model_class in (Rc3Model, *TASK_MODELS):
        name = model_class.__name__
        model, _ = make_rc3(model_class, **({"num_labels": 7} if model_class is Rc3ForVisualQuestionAnswering else {}))
        model.save_pretrained(root / name)
        batch = visio_textual_batch(images=2 if model_class is Rc3ForVisualReasoning else 1)
        save_file({key: value.contiguous() for key, value in batch.items()}, root / f"{name}.inputs")
        said[name] = answers(model, batch)
    return root, said


def test_every_model_loads_without_the_package_to_the_same_bits(folders, run_without_babelens):
    root, said = folders
    autos = {name: getattr(babelens, name).auto_classes[0] for name in said}
    script = LOAD_WITHOUT_PACKAGE.format(answers=inspect.getsource(answers))
    run_without_babelens(script, root, json.dumps(autos))
    for name, expected in said.items():
        assert_equal(load_file(root / f"{name}.answers"), expected)
        files = {path.name for path in (root / name).iterdir()}
        of_others = {"modules.json", "config_sentence_transformers.json"}  # the package alone writes them
        assert {path.name for path in (root / f"{name}-again").iterdir()} == files - of_others
        assert json.loads((root / f"{name}-again" / "config.json").read_text())["auto_map"] == auto_map(root / name)


# Run with the folders of heads, images and texts as JSON, and the file for the pipelines' answers.
PIPELINES_WITHOUT_PACKAGE = """
import json, sys
from pathlib import Path
from typing import Any
from PIL import Image
from transformers import pipeline

{in_pipelines}

root, paths, texts, results = sys.argv[1:]
images = [Image.open(path) for path in json.loads(paths)]
found = in_rc3_pipelines(root, images, json.loads(texts), trust_remote_code=True)
Path(results).write_text(json.dumps(found))
"""


def test_pipelines_run_without_the_package_and_answer_the_same(run_without_babelens, tmp_path):
    save_heads(tmp_path)
    paths = [str(tmp_path / f"{index}.png") for index in range(3)]
    for path, image in zip(paths, drawn_images(3), strict=True):
        image.save(path)
    script = PIPELINES_WITHOUT_PACKAGE.format(in_pipelines=inspect.getsource(in_rc3_pipelines))
    run_without_babelens(script, tmp_path, json.dumps(paths), json.dumps(TEXTS[:3]), tmp_path / "results.json")
    found = json.loads((tmp_path / "results.json").read_text())
    assert found == in_rc3_pipelines(str(tmp_path), drawn_images(3), TEXTS[:3])


def auto_map(folder):
    return json.loads((folder / "config.json").read_text())["auto_map"]


def test_each_folder_offers_all_models(folders):
    root, said = folders
    offered = {"AutoConfig": "configuration_rc3.Rc3Config", "AutoModel": "modeling_rc3.Rc3Model"}
    for model_class in HEADS:
        offered |= dict.fromkeys(model_class.auto_classes, f"modeling_rc3.{model_class.__name__}")
    assert len(offered) == 2 + sum(len(model_class.auto_classes) for model_class in HEADS)  # none twice
    for name in said:
        assert auto_map(root / name) == offered
