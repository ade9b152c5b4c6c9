import gzip
import io
import json
import tarfile

import pytest

from babelens.utils.errors import RecipeError
from tests.support.image_sources import add_member
from tests.support.tiny_native import saved
from tests.support.tiny_recipes import recipe_run
from tests.support.tiny_training import shapes_corpus, shapes_trainer


@pytest.fixture
def recipe(tmp_path):
    trainer = shapes_trainer(tmp_path / "start", max_steps=1)
    saved((trainer.model, trainer.processing_class), tmp_path / "model")
    for shard in range(2):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as tar:
            for row in shapes_corpus().shard(2, shard):
                image = io.BytesIO()
                row["image"].save(image, "PNG")
                texts = {caption["language"]: caption["text"] for caption in row["captions"]}
                for ending, data in (("png", image.getvalue()), ("json", json.dumps({"captions": texts}).encode())):
                    add_member(tar, f"{row['image_id']}.{ending}", data)
    training = {"max_steps": 2, "per_device_train_batch_size": 4, "use_cpu": True, "report_to": "none"}
    return {
        "method": "mural",
        "model": {"from_pretrained": str(tmp_path / "model")},
        "train": {"image_text": {"source": str(tmp_path), "options": {"streaming": True}, "languages": ["en", "de"]}},
        "training": training | {"dataloader_num_workers": 1, "disable_tqdm": True, "save_strategy": "no"},
    }


def test_streams_of_images_and_of_published_sentence_pairs_are_trained_on(tmp_path, recipe):
    rows = [{caption["language"]: caption["text"] for caption in row["captions"]} for row in shapes_corpus()]
    with gzip.open(tmp_path / "WikiMatrix.de-en.tsv.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"1.1\t{row['de']}\t{row['en']}\n" for row in rows)
    source = {"source": str(tmp_path / "*.tsv.gz"), "options": {"min_score": 1.04}, "pairs": [["en", "de"]]}
    recipe["train"]["text_text"] = source
    run = recipe_run(recipe, tmp_path)
    trainer = run.train()
    run.report(trainer)
    assert trainer.state.global_step == 2 and run.data.streams == ["image_text", "text_text"]
    assert (run.data.image_languages, run.builder.unknown_rates(trainer.processing_class)) == (["en", "de"], {})
    assert (tmp_path / "run" / "model.safetensors").is_file()
    source["options"] = {"min_scor": 1.04}
    with pytest.raises(RecipeError, match=r"text_text\.options: .*did you mean 'min_score'"):
        recipe_run(recipe, tmp_path).check()


def test_a_vocabulary_is_trained_on_a_sample_of_a_stream(tmp_path, recipe):
    recipe |= {"model": {"preset": "mural-base"}, "tokenizer": {"vocab_size": 100, "sample": 8}}
    run = recipe_run(recipe, tmp_path)
    whole, sampled = run.data.texts(1000), run.data.texts(8)
    assert {tag: len(texts) for tag, texts in whole.items()} == {"de": 16, "en": 16}  # not French, which is not taken
    assert {tag: len(texts) for tag, texts in sampled.items()} == {"de": 8, "en": 8}
    halves = [
        {caption["text"] for row in shapes_corpus().shard(2, shard) for caption in row["captions"]} for shard in (0, 1)
    ]
    assert [len(half & {*sampled["en"]}) for half in halves] == [4, 4]
    vocabulary = run.builder.make_processor().tokenizer.get_vocab()
    letters = {letter for texts in sampled.values() for text in texts for letter in text.lower() if letter != " "}
    assert len(vocabulary) <= 100 and letters <= vocabulary.keys()
