from .lance import (
    Hit as Hit,
    VectorIndex as VectorIndex,
    build_index as build_index,
    open_index as open_index,
    search_index as search_index,
)
from .sources import (
    VectorSource as VectorSource,
    embeddings_source as embeddings_source,
    images_source as images_source,
)
