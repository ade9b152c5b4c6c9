"""`babelens export` from a model's folder to a folder of graphs."""


def test_a_folder_of_graphs_is_written_and_described(run, model, tmp_path):
    shown = run("export", model, "--output", tmp_path / "graphs", "--format", "onnx").stdout
    assert "text_model.onnx" in shown and "vision_model.onnx" in shown and "e-0" in shown
    folder = {path.name for path in (tmp_path / "graphs").iterdir()}
    assert folder >= {"config.json", "tokenizer.json", "processor_config.json", "preprocessor_config.json", "onnx"}
    shown = run("export", model, "--output", tmp_path / "small", "--precision", "int8").stdout
    size = (tmp_path / "small/onnx/text_model_quantized.onnx").stat().st_size
    assert str(tmp_path / "small") in shown and "text_model.onnx" not in shown and f"{size / 1e6:.1f}" in shown
    assert "exists" in str(run("export", model, "--output", tmp_path / "small", code=1).exception)


def test_wrong_precisions_and_formats_are_refused(run, model, tmp_path):
    for option in ("--precision", "--format"):
        refused = run("export", model, "--output", tmp_path / "graphs", option, "fp8", code=2)
        assert option in refused.output and "fp8" in refused.output
