"""`babelens export` from a model's folder to a folder of graphs; the graphs have tests in `tests/inference`."""

import pytest


@pytest.mark.slow
def test_a_folder_of_graphs_is_written_and_described(run, model, tmp_path):
    shown = run("export", model, "--output", tmp_path / "small", "--precision", "int8").stdout
    size = (tmp_path / "small/onnx/text_model_quantized.onnx").stat().st_size
    assert str(tmp_path / "small") in shown and "text_model.onnx" not in shown and f"{size / 1e6:.1f}" in shown
    folder = {path.name for path in (tmp_path / "small").iterdir()}
    assert folder >= {"config.json", "tokenizer.json", "processor_config.json", "preprocessor_config.json", "onnx"}
    assert "exists" in str(run("export", model, "--output", tmp_path / "small", code=1).exception)


@pytest.mark.parametrize(
    "options",
    [
        ("--precision", "fp8"),
        ("--language", "sw"),
        ("--format", "transformers", "--precision", "fp16"),
        ("--format", "immich", "--precision", "fp16", "--precision", "int8"),
    ],
)
def test_options_that_do_not_fit_are_refused(run, model, tmp_path, options):
    assert options[-2] in run("export", model, "--output", tmp_path / "graphs", *options, code=2).output
