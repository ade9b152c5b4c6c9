from .cross_encoder import CrossEncoder as CrossEncoder, Reranker as Reranker
from .embed import EmbeddingJob as EmbeddingJob, embed_on_ray as embed_on_ray, embed_source as embed_source
from .embedder import Embedder as Embedder
from .image_index import ImageIndex as ImageIndex
from .translated_captions import TranslatingEmbedder as TranslatingEmbedder, translated_captions as translated_captions
from .translation import (
    Seq2SeqTranslator as Seq2SeqTranslator,
    Translator as Translator,
    TranslatorsByPair as TranslatorsByPair,
)
from .translation_cache import (
    CachedTranslator as CachedTranslator,
    TranslationTable as TranslationTable,
    open_translator as open_translator,
)
