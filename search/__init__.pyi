from .lance import (
    Hit as Hit,
    VectorIndex as VectorIndex,
    VectorSource as VectorSource,
    build_index as build_index,
    embeddings_source as embeddings_source,
    images_source as images_source,
    open_index as open_index,
    search_index as search_index,
)
