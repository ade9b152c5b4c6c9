"""Which modules the code of each method's saved folder holds: those that it needs, and none of another method."""

import pytest

import babelens
from babelens.processing.image_processing_mural import MuralImageProcessor
from babelens.utils.hub_code import _SECTIONS, export_code

EVERY_MODEL = {"errors", "hub_code", "languages", "modeling_common", "strict_config"}
PROCESSOR = {
    "image_processing_mural",
    "images",
    "pretrained",  # errors that name a damaged file
    "processing_text_image",
    "sentence_files",
    "sentence_modules",
    "text_inputs",
    "tokenizer_files",
}
METHOD = EVERY_MODEL | PROCESSOR
DUAL_ENCODER = METHOD | {"configuration_two_tower", "modeling_dual_encoder", "towers"}
DUAL_ENCODER |= {"feature_extraction_pipeline", "pipeline_inputs", "zero_shot_pipeline"}
TWO_TOWER = DUAL_ENCODER | {
    "contrastive",
    "modeling_two_tower",
    "tower_loading",
}
# The native model may be a MURAL or an ETCL, or have the image tower of OpenAI's ResNet CLIPs.
MLA = TWO_TOWER | {
    "acquirer",
    "configuration_etcl",
    "configuration_mla_base",
    "configuration_mural",
    "modeling_etcl",
    "modeling_mla_base",
    "modeling_mural",
    "native_tower",
    "text_towers",
}
MLA |= {"processing_mla", "processing_per_language"}
# A processor with one vocabulary for all languages.
VOCABULARY = {"processing_dual_encoder"}
WORDS = DUAL_ENCODER | {"triplet", "modeling_word_dual_encoder", "processing_per_language", "word_tokenizers"}

MODULES = {
    "mural": TWO_TOWER | {"configuration_mural", "modeling_mural", "processing_mural"} | VOCABULARY,
    "etcl": TWO_TOWER | {"configuration_etcl", "modeling_etcl", "processing_etcl"} | VOCABULARY,
    "mla": MLA | {"configuration_mla", "modeling_mla"},
    "ridge": MLA
    | {"configuration_ridge", "modeling_ridge", "processing_ridge"}
    | {"processing_dual_encoder", "processing_mla_student"},
    "mla_student": MLA
    | {"configuration_mla_student", "modeling_mla_student", "processing_dual_encoder", "processing_mla_student"}
    | {"text_normalization"},
    "smalr": WORDS
    | {"configuration_smalr", "modeling_smalr", "modeling_smalr_latent", "processing_smalr"}
    | {"smalr"},
    "liwe": WORDS | {"configuration_liwe", "modeling_liwe", "processing_liwe"},
    "rc3": METHOD
    | {"configuration_rc3", "modeling_rc3", "modeling_rc3_encoder", "modeling_rc3_pretraining"}
    | {"modeling_rc3_retrieval", "modeling_rc3_tasks", "processing_rc3", "rc3_tokenizer"}
    | {"interpolated", "processing_per_language", "region_arrays"}
    | {"pipeline_inputs", "rc3_pipelines"},
}


def modules_in(folder):
    """The modules in the file of code that a folder has, beside the short one that its JSON files name."""
    named, file = sorted(folder.iterdir())
    assert (named.name, file.name) == ("babelens_code.py", "babelens_modules.py")
    return {name.rpartition(".")[2] for name in _SECTIONS.findall(file.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("name", babelens.METHODS)
def test_a_folder_holds_the_code_of_its_method_alone(name, tmp_path):
    method = babelens.METHODS[name]
    for model in method.models:
        for cls in (model, method.processor, MuralImageProcessor):
            export_code(cls, tmp_path / model.__name__)
        assert modules_in(tmp_path / model.__name__) == MODULES[name]


def test_consistency_needs_neither_towers_nor_a_processor(tmp_path):
    export_code(babelens.CrossLingualConsistency, tmp_path)
    assert modules_in(tmp_path) == EVERY_MODEL | {"configuration_consistency", "triplet", "modeling_consistency"}
