"""`babelens export` from a model's folder to a folder of graphs."""

import json


def test_a_folder_of_graphs_is_written_and_described(run, model, tmp_path):
    shown = run("export", model, "--output", tmp_path / "graphs", "--format", "onnx").stdout
    assert "text_model.onnx" in shown and "vision_model.onnx" in shown and "e-0" in shown
    folder = {path.name for path in (tmp_path / "graphs").iterdir()}
    assert folder >= {"config.json", "tokenizer.json", "processor_config.json", "preprocessor_config.json", "onnx"}
    facts = json.loads(run("export", model, "--output", tmp_path / "small", "--precision", "int8", "--json").stdout)
    assert facts["folder"] == str(tmp_path / "small") and list(facts["precisions"]) == ["int8"]
    assert facts["bytes"]["int8"]["text"] == (tmp_path / "small/onnx/text_model_quantized.onnx").stat().st_size
    assert "exists" in str(run("export", model, "--output", tmp_path / "small", code=1).exception)


def test_what_a_precision_costs_in_recall_is_shown(run, model, images, tmp_path):
    names = sorted(path.name for path in images.glob("*.png"))
    rows = [{"file_name": name, "captions": {"en": [f"thing {name}"], "de": [f"Ding {name}"]}} for name in names]
    (images / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = ["--precision", "fp32", "--precision", "int8", "--data", images]
    shown = run("export", model, "--output", tmp_path / "graphs", *given).stdout
    assert "mean recall" in shown and "(+0.0)" in shown
    facts = json.loads(run("export", model, "--output", tmp_path / "again", *given, "--json").stdout)
    recalls = facts["recalls"]
    assert list(recalls) == ["model", "fp32", "int8"] and recalls["fp32"] == recalls["model"]
    assert all(set(each) == {"en", "de"} for each in recalls.values())


def test_wrong_precisions_and_formats_are_refused(run, model, tmp_path):
    for option in ("--precision", "--format"):
        refused = run("export", model, "--output", tmp_path / "graphs", option, "fp8", code=2)
        assert option in refused.output and "fp8" in refused.output


def test_a_split_needs_data(run, model, tmp_path):
    refused = run("export", model, "--output", tmp_path / "out", "--split", "test", code=2)
    assert "there is no data set that it could be about" in refused.output
