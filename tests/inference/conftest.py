"""Fixtures: tiny dual encoders and small corpora."""

from retrieval_fixtures import (
    build_tokenizer as build_tokenizer,
    caption_corpus as caption_corpus,
    clip_folder as clip_folder,
    clip_parts as clip_parts,
    color_embedder as color_embedder,
    dual_encoder as dual_encoder,
    emoji_corpus as emoji_corpus,
    mural_parts as mural_parts,
    tower as tower,
    word_translator as word_translator,
)
