"""A recipe that reports to TensorBoard leaves event files with the losses and the recall in each language."""

from pathlib import Path

import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from babelens.cli.main import app
from tests.support import tiny_recipes
from tests.support.tiny_training import write_shapes


def test_the_event_files_hold_losses_and_recall(tmp_path: Path) -> None:
    write_shapes(tmp_path)
    recipe = tiny_recipes.mural(tmp_path)
    logged = {"max_steps": 2, "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    recipe["training"] |= {"report_to": "tensorboard"} | logged
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    command = ["train", str(tmp_path / "recipe.yaml"), "--output", str(tmp_path / "run")]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output

    (events,) = (tmp_path / "run").rglob("events.out.tfevents.*")
    written = EventAccumulator(str(events.parent)).Reload()
    scalars = set(written.Tags()["scalars"])
    assert {"train/loss", "train/loss_image_text", "train/loss_text_text", "train/learning_rate"} <= scalars
    assert {"eval/mean_recall", *(f"eval/mean_recall_{language}" for language in ("de", "en", "fr"))} <= scalars
    assert [event.step for event in written.Scalars("eval/mean_recall_de")] == [1, 2]
