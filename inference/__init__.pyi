from .cross_encoder import CrossEncoder as CrossEncoder, Reranker as Reranker
from .embed import EmbeddingJob as EmbeddingJob, embed_on_ray as embed_on_ray, embed_source as embed_source
from .embedder import Embedder as Embedder
from .image_index import ImageIndex as ImageIndex
from .translation import (
    CachedTranslator as CachedTranslator,
    Seq2SeqTranslator as Seq2SeqTranslator,
    TranslatingEmbedder as TranslatingEmbedder,
    TranslationTable as TranslationTable,
    Translator as Translator,
    TranslatorsByPair as TranslatorsByPair,
    open_translator as open_translator,
    translated_captions as translated_captions,
)
