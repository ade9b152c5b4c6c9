import copy
import json
import shutil

import mteb
import numpy as np
import pytest
import torch
from mteb.models.model_implementations.clip_models import CLIPModel as MtebClip

from babelens.data.batching.views import retrieval_set
from babelens.evaluation import evaluate_mteb, evaluate_retrieval, mteb_model, mteb_tasks
from babelens.inference.embedder import Embedder
from babelens.utils.errors import InputError, LanguageTagError, ModelKindError
from tests.contracts import CAPTIONS, drawn_images
from tests.support import tiny_mteb_tasks as tasks
from tests.support.tiny_native import saved
from tests.support.tiny_text_encoders import saved_encoder

PAIRS = [("ein hund", "a dog"), ("zwei katzen", "two cats"), ("der rote ball", "the red ball"), ("haus", "house")]


class Listening(Embedder):
    def __init__(self, *parts, **options):
        super().__init__(*parts, **options)
        self.heard, self.tasks = {}, set()

    def encode_text(self, texts, *, language, task=None, **options):
        self.heard |= dict.fromkeys(texts, language)
        self.tasks.add(task)
        return super().encode_text(texts, language=language, task=task, **options)


@pytest.fixture
def clip(clip_parts):
    return Listening(*clip_parts, batch_size=4)


def model_of(embedder, **options):
    model = mteb_model(embedder, **options)
    embedder.heard.clear()
    embedder.tasks.clear()
    return model


def only_score(model, task, **options):
    (score,) = evaluate_mteb(model, [task], **options)
    return score


@pytest.mark.parametrize("kind", ["mural", "etcl", "mla", "mla_on_mural", "mla_student", "smalr", "liwe"])
def test_every_dual_encoder_is_a_model_of_mteb(request, kind):
    embedder = Listening(*request.getfixturevalue(f"make_{kind}")())
    model = model_of(embedder)
    assert isinstance(model, mteb.EncoderProtocol)
    images = drawn_images(4)
    names = [CAPTIONS["de"], "ein roter Punkt"]
    score = only_score(model, tasks.zero_shot(images, [0, 1, 0, 1], names))
    assert {embedder.heard[name] for name in names} == {"de"}
    cosines = embedder.encode_image(images) @ embedder.encode_text(names, language="de").T
    assert score.scores["accuracy"] == np.mean(cosines.argmax(1) == [0, 1, 0, 1])


def test_hit_rates_are_our_recall(clip, caption_corpus):
    sets = [retrieval_set(caption_corpus, language) for language in ("en", "de")]
    ours = evaluate_retrieval(clip, caption_corpus, ["en", "de"])
    judged = evaluate_mteb(model_of(clip), [tasks.retrieval(sets), tasks.retrieval(sets, backwards=True)])
    assert [(score.metadata.name, score.subset) for score in judged] == [
        (f"Tiny{way}Retrieval", language) for way in ("T2I", "I2T") for language in ("en", "de")
    ]
    for score in judged:
        way = "t2i" if "T2I" in score.metadata.name else "i2t"
        for k in (1, 5, 10):
            assert 100 * score.scores[f"hit_rate_at_{k}"] == pytest.approx(ours[score.subset][f"{way}_r{k}"], abs=1e-3)
    assert 0 < judged[0].scores["hit_rate_at_5"] < 1
    assert all(clip.heard[text] == queries.language for queries in sets for text in queries.texts)


@pytest.mark.parametrize("backwards", [False, True])
def test_the_sides_of_a_bitext_have_their_own_languages(clip, backwards):
    score = only_score(model_of(clip), tasks.bitext(PAIRS, backwards=backwards))
    assert clip.heard == {text: language for pair in PAIRS for text, language in zip(pair, ("de", "en"), strict=True)}
    german, english = (clip.encode_text(texts, language="de") for texts in zip(*PAIRS, strict=True))
    assert score.scores["accuracy"] == np.mean((german @ english.T).argmax(1) == np.arange(len(PAIRS)))


def test_a_language_goes_by_the_models_own_name(make_mla):
    """mteb's Chinese is `cmn`, and the model has learned `zh`; one that it has not learned is an error."""
    embedder = Listening(*make_mla())
    known = embedder.processor.languages
    assert "zh" in known and "sw" not in known
    only_score(model_of(embedder), tasks.bitext([("狗", "a dog"), ("猫", "a cat")], "zh-en"))
    assert embedder.heard == {"狗": "zh", "猫": "zh", "a dog": "en", "a cat": "en"}
    with pytest.raises(LanguageTagError, match="has not learned 'sw'"):
        only_score(model_of(embedder, language="sw"), tasks.bitext([("a", "b"), ("c", "d")], "zh-en"))


def test_texts_with_images_are_fused_as_in_mtebs_own_clip(clip, clip_parts):
    reference = object.__new__(MtebClip)
    reference.model, reference.processor = clip_parts
    reference.device = "cpu"
    batch = [{"text": [english for _, english in PAIRS], "image": drawn_images(4)}]
    task = tasks.zero_shot(drawn_images(2), [0, 1], ["a", "b"])
    asked = {"task_metadata": task.metadata, "hf_split": "test", "hf_subset": "default"}
    ours = torch.tensor(model_of(clip).encode(batch, **asked))
    other = [reference.get_text_embeddings(batch), reference.get_image_embeddings(batch)]
    torch.testing.assert_close(ours, sum(other), atol=1e-5, rtol=1e-5)


def test_text_encoders_are_measured_on_texts_alone(tmp_path):
    saved_encoder("bert", tmp_path / "bert", "mean_tokens")
    model = mteb_model(tmp_path / "bert")
    assert model.mteb_model_meta.modalities == ["text"]
    assert "accuracy" in only_score(model, tasks.bitext(PAIRS)).scores
    with pytest.raises(ModelKindError, match="TinyZeroShot has images, which local/bert does not read"):
        only_score(model, tasks.zero_shot(drawn_images(2), [0, 1], ["a", "b"]))


@pytest.fixture
def folder(make_mla, tmp_path):
    folder = tmp_path / "mla-tiny"
    saved(make_mla(), folder)
    (folder / "README.md").write_text(
        "---\nlanguage: [en, de]\nlicense: apache-2.0\nbase_model: openai/clip\n---\n# The card\n"
    )
    return folder


def test_the_description_comes_from_the_folder(folder, make_mla):
    meta = mteb_model(folder).mteb_model_meta
    model, _ = make_mla()
    assert meta.name == "local/mla-tiny"
    assert meta.n_parameters == sum(weight.numel() for weight in model.parameters())
    assert meta.embed_dim == 16 and meta.modalities == ["image", "text"]
    assert meta.revision == mteb_model(folder).mteb_model_meta.revision


def test_a_repository_is_described_by_its_commit(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    repository = tmp_path / "cache" / "models--someone--mla-tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0123abcd" * 5)
    shutil.copytree(folder, repository / "snapshots" / ("0123abcd" * 5))
    meta = mteb_model("someone/mla-tiny", cache_dir=str(tmp_path / "cache"), local_files_only=True).mteb_model_meta
    assert (meta.name, meta.revision) == ("someone/mla-tiny", "0123abcd" * 5)


def test_results_are_kept_for_the_same_weights(clip_parts, tmp_path):
    first, second = Listening(*clip_parts), Listening(copy.deepcopy(clip_parts[0]), clip_parts[1])
    task = tasks.bitext(PAIRS)
    expected = only_score(model_of(first), task, cache=tmp_path)
    (file,) = tmp_path.glob("results/*/*/TinyBitext.json")
    assert json.loads(file.read_text())["task_name"] == "TinyBitext"
    first.heard.clear()
    kept = only_score(model_of(first), task, cache=tmp_path)
    assert kept.scores == pytest.approx(expected.scores, abs=1e-6) and not first.heard
    with torch.no_grad():
        second.model.text_projection.weight.neg_()
    only_score(model_of(second), task, cache=tmp_path)
    assert second.heard
    only_score(model_of(first, language="de"), task, cache=tmp_path)  # another experiment
    assert set(first.heard.values()) == {"de"}


def test_tasks_are_found_by_name_and_language():
    retrieval, similarity, bitext = mteb_tasks(["XM3600T2IRetrieval", "STS17", "Tatoeba"], ["zh", "de", "en"])
    assert retrieval.hf_subsets == ["de", "en", "zh"]
    assert "en-de" in similarity.hf_subsets and "ko-ko" not in similarity.hf_subsets
    assert {"cmn-eng", "deu-eng"} <= set(bitext.hf_subsets)
    assert len(mteb_tasks(["STS17"])[0].hf_subsets) == 11
    with pytest.raises(InputError, match="no such task: 'XM3600' not found"):
        mteb_tasks(["XM3600"])
    with pytest.raises(LanguageTagError, match="Multi30kT2IRetrieval has no texts in sw; its subsets are en, cs"):
        mteb_tasks(["XM3600T2IRetrieval", "Multi30kT2IRetrieval"], ["sw"])
    with pytest.raises(LanguageTagError, match="none of these tasks has texts in sw, yo"):
        mteb_tasks(["Multi30kT2IRetrieval"], ["de", "sw", "yo"])
