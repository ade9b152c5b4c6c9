import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peft import PeftModel
from transformers import AutoModel, AutoProcessor

from babelens import Embedder, MlaModel, MuralModel, Rc3ForVisualEntailment
from babelens.data import load_captions
from babelens.evaluation import evaluate_retrieval
from tests.support.tiny_native import saved, tiny_bert, tiny_clip
from tests.support.tiny_rc3_tasks import colour_rows, save_pretrained_rc3
from tests.support.tiny_training import assert_same, weights, write_shapes

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"
TEXTS = ["a red square", "a blue dot"]
# The same on every machine; two checkpoints in four steps.
TRAINING = {
    "max_steps": 4,
    "save_steps": 2,
    "per_device_train_batch_size": 8,
    "use_cpu": True,
    "precision": "float32",
    "report_to": "none",
    "disable_tqdm": True,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "shapes").mkdir()
    write_shapes(folder / "shapes", ("en", "de"))
    saved(tiny_clip(), folder / "clip")
    saved(tiny_bert(), folder / "bert")
    save_pretrained_rc3(folder / "rc3")
    colour_rows(["en", "de"]).save_to_disk(folder / "entailment")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    settings = {"HF_HOME": str(cache), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    def run(script: str, *arguments: str, cwd: Path | None = None, **environment: str) -> str:
        command = [sys.executable, str(EXAMPLES / f"{script}.py"), *arguments]
        env = os.environ | settings | environment
        done = subprocess.run(command, cwd=cwd or cache, env=env, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def run_here(monkeypatch):
    def run_here(script: str, *arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", [f"{script}.py", *arguments])
        runpy.run_path(str(EXAMPLES / f"{script}.py"), run_name="__main__")

    return run_here


def options(**settings: Any) -> list[str]:
    arguments = []
    for name, value in (TRAINING | settings).items():
        arguments += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return arguments


def of_mural(data: Path, output: Path, **settings: Any) -> dict[str, Any]:
    shapes = data / "shapes"
    given = {"preset": "mural-tiny", "image_size": 32, "vocab_size": 200, "do_train": True, "do_eval": True}
    sources = {"captions": shapes, "translations": shapes / "pairs.tsv", "eval_captions": shapes}
    return given | sources | {"output_dir": output} | settings


def results(folder: Path, part: str) -> dict[str, float]:
    return json.loads((folder / f"{part}_results.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def mural(data, run, tmp_path_factory) -> Path:
    """The folder that `train_dual_encoder.py` writes for a MURAL. Not to be changed."""
    folder = tmp_path_factory.mktemp("runs") / "mural"
    printed = run("train_dual_encoder", *options(**of_mural(data, folder)))
    assert "train metrics" in printed and "eval_mean_recall_de" in printed
    return folder


def test_a_trained_dual_encoder_is_saved_and_measured_in_each_language(mural, data):
    found, corpus = results(mural, "eval"), load_captions(data / "shapes")
    expected = evaluate_retrieval(Embedder.from_pretrained(mural), corpus, ["de", "en"])
    assert {f"eval_{name}_{tag}" for tag in expected for name in expected[tag]} | {"eval_mean_recall"} == set(found)
    assert found["eval_t2i_r10_de"] == pytest.approx(expected["de"]["t2i_r10"])
    assert isinstance(AutoModel.from_pretrained(mural), MuralModel)
    assert results(mural, "train")["train_loss"] > 0 and found.items() <= results(mural, "all").items()


def test_an_interrupted_run_goes_on_from_its_last_checkpoint(mural, data, run, tmp_path):
    folder = tmp_path / "mural"
    shutil.copytree(mural, folder)
    shutil.rmtree(folder / "checkpoint-4")
    (folder / "model.safetensors").unlink()
    run("train_dual_encoder", *options(**of_mural(data, folder)))
    assert_same(weights(AutoModel.from_pretrained(folder)), weights(AutoModel.from_pretrained(mural)))
    assert json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))["global_step"] == 4


def of_french(data: Path, output: Path, **settings: Any) -> list[str]:
    given = {"model_name_or_path": data / "clip", "language": "FR", "translations": data / "shapes/pairs.tsv"}
    sizes = {"vocabulary": data / "bert", "acquirer_size": 8}
    return options(**given | sizes | {"output_dir": output, "learning_rate": 0.01} | settings)


def test_an_adapter_is_one_of_peft_and_english_stays_what_it_was(data, run, run_here, tmp_path):
    folder = tmp_path / "fr"
    run("acquire_language", *of_french(data, folder))
    assert results(folder, "eval")["eval_native_change"] == 0
    assert results(folder, "train")["train_loss"] > 0
    clip, acquired = Embedder.from_pretrained(data / "clip"), Embedder.from_pretrained(folder)
    assert np.array_equal(clip.encode_text(TEXTS, language="en"), acquired.encode_text(TEXTS, language="en"))
    adapted = PeftModel.from_pretrained(AutoModel.from_pretrained(data / "clip"), folder)
    tokens = acquired.processor(text=["carré rouge"], language="fr", return_tensors="pt")
    tokens.pop("language_ids")
    found = adapted.get_text_features(**tokens).pooler_output.detach().numpy()
    expected = acquired.encode_text(["carré rouge"], language="fr")
    assert np.allclose(found / np.linalg.norm(found), expected, atol=1e-6)

    # A second language on top, by a vocabulary that both share, and with images.
    write_shapes(tmp_path, ("en", "de"))
    given = {"language": "de", "captions": tmp_path, "eval_captions": tmp_path, "save_as": "model"}
    both = tmp_path / "both"
    run_here("acquire_language", *of_french(data, both, model_name_or_path=folder, **given))
    model = AutoModel.from_pretrained(both)
    assert isinstance(model, MlaModel) and model.config.languages == ["fr", "de"]
    french = Embedder(model, AutoProcessor.from_pretrained(both)).encode_text(["carré rouge"], language="fr")
    assert np.array_equal(french, expected)
    assert {"eval_native_change", "eval_t2i_r1_de", "eval_t2i_r1_en"} <= set(results(both, "eval"))


def of_task(data: Path, output: Path, task: str, source: str, **settings: Any) -> list[str]:
    given = {"task": task, "model_name_or_path": data / "rc3", "do_train": True, "do_eval": True}
    return options(
        **given | {"train_data": data / source, "eval_data": data / source, "output_dir": output} | settings
    )


def test_rc3_is_fine_tuned_on_a_task_with_labels(data, run, tmp_path):
    run("finetune_rc3", *of_task(data, tmp_path, "visual-entailment", "entailment", train_languages=["en"]))
    assert {"eval_accuracy", "eval_accuracy_de", "eval_accuracy_en"} <= set(results(tmp_path, "eval"))
    assert Rc3ForVisualEntailment.from_pretrained(tmp_path).config.id2label == {0: "false", 1: "true"}


@pytest.mark.parametrize("task", ["image-text-retrieval", "translation"])
def test_rc3_is_fine_tuned_on_captions(data, run_here, tmp_path, task):
    pair = {"source_language": "en", "target_language": "de"} if task == "translation" else {"eval_languages": "de"}
    run_here("finetune_rc3", *of_task(data, tmp_path, task, "shapes", **pair))
    name = "eval_bleu_en-de" if task == "translation" else "eval_r1_de"
    assert name in results(tmp_path, "eval")


def test_the_tutorial_runs_to_its_end(run, tmp_path):
    printed = run("tutorial", cwd=tmp_path, TUTORIAL_STEPS="2")
    assert "greatest change of an English embedding: 0.0" in printed
    assert "greatest difference to the model that was saved" in printed
    assert AutoModel.from_pretrained(tmp_path / "runs/tutorial/model").config.languages == ["fr"]
    assert AutoModel.from_pretrained(tmp_path / "runs/tutorial/maori").config.languages == ["mi"]


@pytest.mark.parametrize("script", ("train_dual_encoder", "acquire_language", "finetune_rc3"))
def test_help_lists_what_the_readme_shows(script, run_here, capsys):
    with pytest.raises(SystemExit) as ended:
        run_here(script, "--help")
    assert ended.value.code == 0
    known = set(re.findall(r"--\w+", capsys.readouterr().out))
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(rf"^python examples/{script}\.py .*", readme, re.MULTILINE)
    assert lines
    for line in lines:
        assert {word for word in shlex.split(line) if word.startswith("--")} <= known
