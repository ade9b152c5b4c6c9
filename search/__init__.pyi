from .lance_table import Hit as Hit, IndexStat as IndexStat, SearchSettings as SearchSettings
from .queries import measured_recall as measured_recall, search_index as search_index, search_merged as search_merged
from .sources import (
    VectorSource as VectorSource,
    embeddings_source as embeddings_source,
    images_source as images_source,
)
from .vector_index import VectorIndex as VectorIndex, build_index as build_index, open_index as open_index
