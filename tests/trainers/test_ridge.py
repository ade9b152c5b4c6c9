import copy

import numpy as np
import pytest
import torch
from tokenizers import normalizers, processors
from transformers import M2M100Config, M2M100ForConditionalGeneration
from transformers.models.m2m_100.modeling_m2m_100 import M2M100Encoder

from babelens.data.emoji.names import NameTranslations
from babelens.inference.embedder import Embedder
from babelens.modeling.modeling_ridge import RidgeModel
from babelens.modeling.tower_loading import load_text_encoder
from babelens.processing.processing_ridge import RidgeProcessor
from babelens.trainers import ridge
from babelens.trainers.ridge_inputs import language_codes
from babelens.utils.errors import CorpusError

COLORS = ["red", "green", "blue", "black", "white"]
THINGS = ["car", "dog", "cat", "tree", "house", "boat"]
SENTENCES = [f"a {color} {thing}" for color in COLORS for thing in THINGS]
# A language whose words are those of English, reversed.
MIRRORED = [sentence[::-1] for sentence in SENTENCES]
SPELLED = [sentence.replace("a", "ä").upper() for sentence in SENTENCES]
# Without one of the words.
KNOWN = [sentence for sentence in SENTENCES if "boat" not in sentence]
SPELLED_KNOWN = [sentence.replace("a", "ä").upper() for sentence in KNOWN]


@pytest.fixture
def learner(make_ridge):
    tiny, processor = make_ridge()
    model = RidgeModel.from_native(tiny.native_model, ngram_rows=256, rank=8, shortest_ngram=2, longest_ngram=3)
    read = processor.native
    return model, RidgeProcessor(read.image_processor, read.tokenizer, max_text_length=64, max_native_length=64)


class Teacher:
    """Stands in for the native model: a sentence is the sum of its words, which a random tiny CLIP does not know."""

    def __init__(self, *given, **options) -> None:
        self.model, self.processor = given or (None, None)
        rng = np.random.default_rng(0)
        self.words = {word: rng.normal(size=16) for word in [*COLORS, *THINGS, "a"]}

    def encode_text(self, texts, *, language, normalize=True):
        unknown = np.random.default_rng(1).normal(size=16)
        sums = [sum(self.words.get(word, unknown) for word in text.split()) for text in texts]
        return np.stack([each / np.linalg.norm(each) for each in sums]).astype(np.float32)


def test_a_language_finds_what_it_was_not_solved_with(learner, monkeypatch, tmp_path):
    model, processor = learner
    monkeypatch.setattr("babelens.trainers.ridge_inputs.Embedder", Teacher)
    results = ridge.learn(model, processor, {"de": (MIRRORED, SENTENCES)}, glossaries=False, cache_dir=str(tmp_path))
    assert results["de"].pairs == results["de"].tested == 30
    assert results["de"].r10 > 2 * results["de"].chance
    assert results["de"].r10_low <= results["de"].r10 <= results["de"].r10_high
    assert results["de"].warning("de") is None
    embedder = Embedder(model, processor)
    found = embedder.encode_text(MIRRORED, language="de") @ Teacher().encode_text(SENTENCES, language="en").T
    assert (found.argmax(1) == np.arange(30)).mean() > 0.8
    # Texts without a stated language are read in a model's only language.
    unstated = embedder.encode_text(MIRRORED, language="und")
    np.testing.assert_array_equal(unstated, embedder.encode_text(MIRRORED, language="de"))


def test_languages_learned_at_once_are_those_learned_one_after_the_other(learner):
    translations = {"de": (MIRRORED, SENTENCES), "fr": (SPELLED, SENTENCES), "cs": (MIRRORED, SENTENCES)}
    found, threads = [], torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        try:
            model, processor = (copy.deepcopy(each) for each in learner)
            results = ridge.learn(model, processor, translations)
            assert torch.get_num_threads() == count
        finally:
            torch.set_num_threads(threads)
        found.append((list(results.items()), {**model.maps.state_dict()}, processor.glossaries.keys()))
    assert found[0][0] == found[1][0]
    assert found[0][2] == found[1][2]
    for name, expected in found[0][1].items():
        assert torch.equal(found[1][1][name], expected), name


def test_sentences_that_do_not_belong_together_are_told_in_words(learner):
    model, processor = learner
    shuffled = [MIRRORED[row] for row in np.random.default_rng(1).permutation(30)]
    result = ridge.learn(model, processor, {"de": (shuffled, SENTENCES)})["de"]
    assert "hardly match" in (result.warning("de") or "")


@pytest.mark.parametrize("texts", [MIRRORED[:5], MIRRORED[:1] * 30])
def test_too_few_sentences_are_refused(learner, texts):
    with pytest.raises(CorpusError, match="at least 10"):
        ridge.learn(*learner, {"de": (texts, SENTENCES[: len(texts)])})


@pytest.mark.parametrize(("place", "has_languages"), [("_solve", False), ("result_of", True)])
def test_an_interrupt_leaves_the_model_as_it_was(learner, monkeypatch, place, has_languages):
    model, processor = learner
    if has_languages:
        ridge.learn(model, processor, {"fr": (SPELLED, SENTENCES)}, glossaries=False)
    before = copy.deepcopy((model.state_dict(), model.config.to_dict(), processor.to_dict()))

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(ridge, place, interrupted)
    with pytest.raises(KeyboardInterrupt):
        ridge.learn(model, processor, {"de": (MIRRORED, SENTENCES), "cs": (SPELLED, SENTENCES)}, glossaries=False)
    assert (model.config.to_dict(), processor.to_dict()) == before[1:]
    assert model.state_dict().keys() == before[0].keys()
    assert all(torch.equal(value, before[0][name]) for name, value in model.state_dict().items())


def test_a_cast_model_keeps_and_learns_its_maps_in_float32(learner, tmp_path):
    model, processor, dtype = *learner, torch.bfloat16
    ridge.learn(model, processor, {"de": (MIRRORED, SENTENCES)}, glossaries=False)
    maps = {name: value.clone() for name, value in model.maps.named_buffers()}
    model = model.to(dtype)
    assert all(torch.equal(value, maps[name]) for name, value in model.maps.named_buffers())
    model.save_pretrained(tmp_path)
    loaded = RidgeModel.from_pretrained(tmp_path, dtype=dtype)
    assert loaded.dtype == dtype
    assert all(torch.equal(value, maps[name]) for name, value in loaded.maps.named_buffers())
    ridge.learn(model, processor, {"cs": (SPELLED, SENTENCES)}, glossaries=False)
    assert model.dtype == dtype and model.maps.factors.dtype == torch.float32


def test_a_language_learns_words_from_names_that_no_sentence_has(learner, monkeypatch, tmp_path):
    model, processor = learner
    monkeypatch.setattr("babelens.trainers.ridge_inputs.Embedder", Teacher)
    names = NameTranslations("de", 0.2, [([word[::-1] for word in THINGS], THINGS)])
    learned = {"de": ([row[::-1] for row in KNOWN], KNOWN)}
    more = {"names": {"de": names}, "glossaries": False, "cache_dir": str(tmp_path)}
    assert ridge.learn(model, processor, learned, **more)["de"].names == "de"
    sentences = [row for row in SENTENCES if row.startswith("a red")]
    found = Embedder(model, processor).encode_text([row[::-1] for row in sentences], language="de")
    similar = found @ Teacher().encode_text(sentences, language="en").T
    assert sentences[similar[-1].argmax()] == "a red boat"


@pytest.fixture
def make_learner(make_mural):
    """Makes a model on a MURAL that tells texts apart, and its processor."""
    native, read = make_mural()
    torch.manual_seed(0)
    for weight in native.text_model.parameters():
        weight.data.normal_(std=0.5)

    def make(**options):
        model = RidgeModel.from_native(native, rank=16, ngram_rows=256)
        return model, RidgeProcessor.for_native(native.config, read, **options)

    return make


def test_a_glossary_is_learned_where_it_helps(make_learner, tmp_path):
    """The native model reads each word's translation, and finds held-out sentences at once."""
    languages = {"de": (SPELLED, SENTENCES)}
    plain = ridge.learn(*make_learner(), languages, glossaries=False)
    model, processor = make_learner()
    found = ridge.learn(model, processor, languages)
    assert found["de"].gloss_weight == model.config.gloss_weights[1] == 2.0
    assert found["de"].tested == 6 and found["de"].words == len(processor.glossaries["de"].entries) == 12
    assert processor.glossaries["de"].gloss("Ä RED CÄR") == "a red car"
    assert found["de"].r1 > plain["de"].r1 and plain["de"].gloss_weight == 0
    expected = Embedder(model, processor).encode_text(SPELLED, language="de")
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    loaded = Embedder.from_pretrained(tmp_path)
    np.testing.assert_array_equal(loaded.encode_text(SPELLED, language="de"), expected)


def test_a_dictionary_tells_of_a_word_that_no_sentence_has(make_learner):
    unseen = [row for row in SENTENCES if "boat" in row]
    found = {}
    for dictionary in (None, {"de": (["XYZ"], ["boat"])}):
        model, processor = make_learner()
        results = ridge.learn(model, processor, {"de": (SPELLED_KNOWN, KNOWN)}, dictionaries=dictionary)
        assert results["de"].gloss_weight >= 1.0
        embedder = Embedder(model, processor)
        texts = embedder.encode_text(
            [row.replace("a", "ä").upper().replace("BOÄT", "XYZ") for row in unseen], language="de"
        )
        found[dictionary is not None] = (texts * embedder.encode_text(unseen, language="en")).sum(1)
    assert processor.glossaries["de"].gloss("Ä RED XYZ") == "a red boat"
    assert found[True].mean() > found[False].mean(), "they are nearer to their translations"


def test_words_that_a_model_knows_stay_when_sentences_follow(make_learner):
    """Words of a dictionary learned with texts only, or corrected by hand: translations are the next step."""
    model, processor = make_learner(glossaries={"de": {"xyz": "boat", "leer": ""}})
    assert ridge.learn(model, processor, {"de": (SPELLED_KNOWN, KNOWN)})["de"].gloss_weight
    assert processor.glossaries["de"].gloss("Ä RED XYZ") == "a red boat"
    assert "leer" not in processor.glossaries["de"].entries, "it says nothing"


def test_features_are_computed_anew_for_another_tokenizer(learner, monkeypatch, tmp_path):
    """With the same weights, texts of other tokens have other embeddings."""
    model, processor = learner
    given = {"de": (MIRRORED, SENTENCES)}
    calls, encode = [], Embedder.encode_text

    def counted(self, texts, **more):
        calls.append(texts)
        return encode(self, texts, **more)

    monkeypatch.setattr(Embedder, "encode_text", counted)

    def computed():
        calls.clear()
        fresh = RidgeModel.from_native(model.native_model, ngram_rows=256, rank=8, shortest_ngram=2, longest_ngram=3)
        reader = RidgeProcessor(processor.image_processor, processor.tokenizer, max_native_length=64)
        ridge.learn(fresh, reader, given, cache_dir=str(tmp_path))
        return SENTENCES in calls

    assert computed() and not computed()
    processor.tokenizer.backend_tokenizer.normalizer = normalizers.Replace("boat", "car")
    assert computed()


@pytest.fixture
def encoding_learner(make_ridge):
    tiny, processor = make_ridge(encoder=True)
    model = RidgeModel.from_native(tiny.native_model, tiny.text_model, ngram_rows=256, rank=8)
    read = processor.native
    lengths = {"max_text_length": 64, "max_native_length": 64}
    return model, RidgeProcessor(read.image_processor, read.tokenizer, processor.encoder_tokenizer, **lengths)


def test_a_model_of_texts_alone_is_read_by_all_that_read_models(encoding_learner, tmp_path):
    """A folder, and a language that is added later, which leaves stated others bitwise as they were."""
    model, processor = encoding_learner
    ridge.learn_unstated(model, processor, SENTENCES, cache_dir=str(tmp_path / "cache"))
    texts, tags = [*MIRRORED[:3], "ein roter Hund", SENTENCES[0]], ["und", "sw", "de", "de", "en"]
    expected = Embedder(model, processor).encode_text(texts, language=tags)
    model.save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    loaded = Embedder.from_pretrained(tmp_path / "model")
    np.testing.assert_array_equal(loaded.encode_text(texts, language=tags), expected)
    ridge.learn(model, processor, {"de": (MIRRORED, SENTENCES)}, cache_dir=str(tmp_path / "cache"))
    found = Embedder(model, processor).encode_text(texts, language=tags)
    rows = [1, 4]
    np.testing.assert_array_equal(found[rows], expected[rows])
    assert not np.allclose(found[2:4], expected[2:4])


def test_texts_alone_and_a_dictionary_make_a_glossary(encoding_learner, tmp_path):
    model, processor = encoding_learner
    names = {"de": NameTranslations("de", 1.0, [([word.upper() for word in THINGS], THINGS)])}
    dictionaries = {"mi": (["motokā", "kurī"], ["car", "dog"]), "de": (["Kahn", "Kahn"], ["barge", "boat"])}
    given = {"names": names, "dictionaries": dictionaries, "cache_dir": str(tmp_path)}
    ridge.learn_unstated(model, processor, SENTENCES, **given)
    assert {tag: glossary.entries for tag, glossary in processor.glossaries.items()} == {
        "de": {word.lower(): word for word in THINGS} | {"kahn": "boat"},
        "mi": {"motokā": "car", "kurī": "dog"},
    }
    assert model.config.gloss_weights == [0.75]


def test_an_encoder_that_wants_the_language_gets_it(encoding_learner, tmp_path):
    """In training and in use, by a token of the text, as NLLB's tokenizer adds it."""
    model, processor = encoding_learner
    tokenizer = processor.encoder_tokenizer
    codes = {"additional_special_tokens": ["eng_Latn", "deu_Latn", "pbt_Arab", "nob_Latn"]}
    tokenizer.add_special_tokens(codes)
    tokenizer.src_lang = "eng_Latn"
    own, german, *_ = tokenizer.convert_tokens_to_ids(codes["additional_special_tokens"])
    of_others = language_codes(tokenizer, ["ps", "no", "fr"])
    assert of_others == {"ps": "pbt_Arab", "no": "nob_Latn"}, "a macrolanguage and a near language"
    beginning = f"eng_Latn:0 $A:0 {tokenizer.sep_token}:0"
    special = [("eng_Latn", own), (tokenizer.sep_token, tokenizer.sep_token_id)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=beginning, special_tokens=special
    )
    model.text_model.resize_token_embeddings(len(tokenizer))
    seen, read = [], model.encoder_features
    model.encoder_features = lambda ids, mask: seen.append(ids) or read(ids, mask)
    ridge.learn(model, processor, {"de": (MIRRORED, SENTENCES)}, glossaries=False, cache_dir=str(tmp_path / "cache"))
    assert {id for ids in seen for id in ids[:, 0].tolist()} >= {german}
    assert processor.language_codes == {"de": "deu_Latn"}
    assert processor(text=["rot", "red"], language=["de", "und"])["input_ids"][0][0] == german
    assert processor(text="red", language="und")["input_ids"][0][0] == own


@pytest.mark.parametrize("kind", [M2M100ForConditionalGeneration, M2M100Encoder])
def test_encoders_of_nllb_and_sonar_are_text_encoders(kind, tmp_path):
    sizes = {f"{part}_{name}": 2 for part in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    whole = kind(M2M100Config(vocab_size=50, d_model=8, encoder_ffn_dim=8, decoder_ffn_dim=8, **sizes)).eval()
    whole.save_pretrained(tmp_path)
    ids = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    expected = getattr(whole, "get_encoder", lambda: whole)()(**ids).last_hidden_state
    found = load_text_encoder(tmp_path, pooling="mean", as_stored=True).eval()
    torch.testing.assert_close(found(**ids).last_hidden_state, expected, rtol=0, atol=0)


def among_five(queries, targets):
    """The share of queries with their own target among the five nearest of thirty: chance is a sixth."""
    similar = queries @ (targets - targets.mean(0)).T
    return (similar.argsort(1)[:, -5:] == np.arange(30)[:, None]).any(1).mean()


def test_a_dictionary_alone_teaches_a_language(make_learner):
    """Inflected forms are read, too, which a plain look-up misses."""
    words = ([word.replace("a", "ä") for word in [*COLORS, *THINGS, "a"]], [*COLORS, *THINGS, "a"])
    model, processor = make_learner()
    found = ridge.learn(model, processor, {"de": ([], [])}, dictionaries={"de": words})["de"]
    assert (found.learned_from, found.pairs, found.words) == ("words", 12, 12) and found.gloss_weight >= 2
    embedder = Embedder(model, processor)
    natives = embedder.encode_text(SENTENCES, language="en")
    texts = [row.replace("a", "ä") for row in SENTENCES]
    assert among_five(embedder.encode_text(texts, language="de"), natives) > 0.4
    assert processor.glossaries["de"].gloss("ä reds cärs") == "a red car"
    with pytest.raises(CorpusError, match="2 usable words"):
        ridge.learn(model, processor, {"fr": ([], [])}, dictionaries={"fr": (["chien", "chat"], ["dog", "cat"])})


def images_of(sentences):
    rng = np.random.default_rng(2)
    said = Teacher().encode_text(sentences, language="en")
    unsaid = np.concatenate([np.zeros((len(said), 13)), rng.normal(size=(len(said), 3))], 1)
    vectors = torch.from_numpy((said + unsaid + 0.3 * rng.normal(size=16)).astype(np.float32))
    return vectors / vectors.norm(dim=1, keepdim=True)


def test_captions_alone_find_their_images(learner, monkeypatch, tmp_path):
    monkeypatch.setattr("babelens.trainers.ridge_inputs.Embedder", Teacher)
    model, processor = learner
    images, more = images_of(SENTENCES), {"glossaries": False, "cache_dir": str(tmp_path)}
    found = ridge.learn(model, processor, {"de": ([], [])}, captions={"de": (SENTENCES, images)}, **more)["de"]
    assert found.learned_from == "captions" and found.pairs == 30 and found.r10 > 1.5 * found.chance
    assert among_five(Embedder(model, processor).encode_text(SENTENCES, language="de"), images.numpy()) > 0.6


def test_captions_alone_give_a_glossary_little_weight(make_learner):
    """Where the base knows the captions by heart, held-out ones would choose a weight of 1."""
    model, processor = make_learner()
    images = torch.from_numpy(Embedder(model.native_model, processor.native).encode_text(SENTENCES))
    names = {"de": NameTranslations("de", 0.2, [([word.replace("a", "ä") for word in THINGS], THINGS)])}
    found = ridge.learn(model, processor, {"de": ([], [])}, names=names, captions={"de": (SPELLED, images)})["de"]
    assert found.gloss_weight == 0.25


def test_captions_tell_of_a_word_that_no_sentence_has(learner, monkeypatch, tmp_path):
    monkeypatch.setattr("babelens.trainers.ridge_inputs.Embedder", Teacher)
    pairs = {"de": ([row[::-1] for row in KNOWN], KNOWN)}
    expected, found = Teacher().encode_text(SENTENCES, language="en"), []
    for captions in ({}, {"de": (MIRRORED, images_of(SENTENCES))}):
        model, processor = (copy.deepcopy(each) for each in learner)
        more = {"captions": captions, "glossaries": False, "cache_dir": str(tmp_path)}
        assert ridge.learn(model, processor, pairs, **more)["de"].learned_from == "sentences"
        boats = Embedder(model, processor).encode_text([row for row in MIRRORED if "taob" in row], language="de")
        found.append((boats * expected[[row for row, text in enumerate(MIRRORED) if "taob" in text]]).sum(1).mean())
    assert found[1] > found[0]
