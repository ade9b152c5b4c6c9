import pytest
from safetensors.torch import load_file
from transformers.trainer_callback import CallbackHandler

from babelens.presets import merged
from babelens.utils.errors import InputError
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_recipes import liwe, mla, mural, rc3, recipe_run, smalr, student
from tests.support.tiny_training import write_shapes

pytestmark = pytest.mark.slow

METHODS = {maker.__name__: maker for maker in (mural, mla, student, smalr, liwe, rc3)}
SAVING = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "logging_steps": 1, "disable_tqdm": True}


@pytest.fixture
def folder(tmp_path):
    folder = write_shapes(tmp_path)
    saved(tiny_clip(), folder / "clip")
    return folder


def train(folder, content, output="run", *, resume=False, break_at=None):
    def break_off(handler, args, state, control):
        if state.global_step == break_at:
            raise RuntimeError("power cut")
        return on_step_begin(handler, args, state, control)

    on_step_begin = CallbackHandler.on_step_begin
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CallbackHandler, "on_step_begin", break_off)
        recipe_run(content, folder, output).train(resume=resume)


def recipe_of(method, folder):
    content = METHODS[method](folder)
    if method == "rc3":
        content["model"]["overrides"] = {"visual": "patches", "patch_size": 16, "image_size": 64}
    return content | {"training": content["training"] | SAVING}


def break_off(folder, content):
    with pytest.raises(RuntimeError, match="power cut"):
        train(folder, content, break_at=3)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_broke_off_goes_on_bitwise(method, folder):
    content = recipe_of(method, folder)
    break_off(folder, content)
    train(folder, content, resume=True)
    train(folder, content, "unbroken")
    found, expected = (load_file(folder / run / "model.safetensors") for run in ("run", "unbroken"))
    assert found.keys() == expected.keys()
    assert all((found[name] == value).all() for name, value in expected.items())


def test_another_recipe_is_refused_by_key(folder):
    content = recipe_of("mural", folder)
    break_off(folder, content)
    other = merged(content, {"train": {"image_text": {"languages": ["en"]}}})
    with pytest.raises(InputError, match=r"train\."):
        train(folder, other, resume=True)
    train(folder, content | {"training": content["training"] | {"max_steps": 5}}, resume=True)
