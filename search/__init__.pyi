from .lance import (
    Hit as Hit,
    VectorIndex as VectorIndex,
    build_index as build_index,
    open_index as open_index,
    search_index as search_index,
)
