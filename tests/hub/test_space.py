import ast
import re
import shutil

import pytest
import yaml

from babelens.publishing import GRADIO, push_space, space_files
from babelens.utils.errors import PublishError

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
MODEL, SPACE = "ada/mural-tiny", "ada/try-mural"


def test_the_files_of_a_space(finished):
    files = space_files(finished, MODEL)
    assert set(files) == {"README.md", "app.py", "requirements.txt", "examples/auto.png"}
    settings = yaml.safe_load(files["README.md"].decode().split("---\n")[1])
    assert settings["sdk"] == "gradio" and settings["sdk_version"] == GRADIO and settings["models"] == [MODEL]
    assert settings["app_file"] == "app.py" and len(settings["short_description"]) <= 60
    code = ast.parse(files["app.py"].decode())
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in code.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.List)
    }
    assert values["MODEL"] == MODEL and values["LANGUAGES"] == ["de", "fr"]
    assert values["EXAMPLES"] == [["examples/auto.png", "ein grauer hund\nein rotes auto", "de"]]
    needed = {re.split("[^a-z_]", line)[0] for line in files["requirements.txt"].decode().splitlines()}
    assert {"torch", "transformers", "pillow"} <= needed and "babelens" not in needed
    assert "import babelens" not in files["app.py"].decode() and "from babelens" not in files["app.py"].decode()


def test_an_adapter_has_no_space(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(PublishError, match="adapter"):
        space_files(tmp_path, MODEL)


def test_a_space_has_no_file_that_the_model_has_not(finished, tmp_path):
    """A card that somebody else wrote may name any file of this machine."""
    folder = shutil.copytree(finished, tmp_path / "model")
    (folder / ".env").write_text("secret")
    (tmp_path / "secret.png").write_text("secret")
    text = (folder / "README.md").read_text()
    shown = "examples/auto.png"
    outside = ("../secret.png", str(tmp_path / "secret.png"), "examples/../../secret.png")
    for source in (".env", "examples/../.env", *outside):
        (folder / "README.md").write_text(text.replace(f"src: {shown}", f"src: {source}"))
        assert set(space_files(folder, MODEL)) == {"README.md", "app.py", "requirements.txt"}, source
    (folder / "README.md").write_text(text.replace(f"src: {shown}", f"src: ./{shown}"))
    assert f"./{shown}" in space_files(folder, MODEL)


def test_a_space_is_published(hub, finished):
    published = push_space(finished, MODEL, SPACE, private=True, api=hub)
    assert published.changed and published.address.startswith(f"{hub.endpoint}/spaces/{SPACE}/commit/")
    found = hub.repositories["space", SPACE]
    assert found.private and space_files(finished, MODEL).items() <= found.files.items()
    assert not push_space(finished, MODEL, SPACE, api=hub).changed
