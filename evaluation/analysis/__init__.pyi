from .data_recall import (
    DataRecall as DataRecall,
    Forgetting as Forgetting,
    LanguageAgreement as LanguageAgreement,
    TrainingTexts as TrainingTexts,
    forgetting as forgetting,
    language_agreement as language_agreement,
    recall_by_data as recall_by_data,
)
from .distances import (
    DistanceRatios as DistanceRatios,
    distance_ratios as distance_ratios,
    joint_representations as joint_representations,
)
from .embedding_layout import (
    EmbeddingMap as EmbeddingMap,
    LabelMap as LabelMap,
    embedding_map as embedding_map,
    label_map as label_map,
)
from .figures.maps import (
    draw_embedding_map as draw_embedding_map,
    draw_label_map as draw_label_map,
    draw_language_map as draw_language_map,
)
from .figures.recall import (
    draw_agreement as draw_agreement,
    draw_data_recall as draw_data_recall,
    draw_distance_ratios as draw_distance_ratios,
    draw_forgetting as draw_forgetting,
)
from .figures.style import save_figure as save_figure
from .numbers import as_json as as_json
from .parallel import (
    LanguageMap as LanguageMap,
    ParallelTexts as ParallelTexts,
    encode_parallel as encode_parallel,
    language_map as language_map,
    parallel_texts as parallel_texts,
    svcca as svcca,
)
from .side_by_side import (
    ComparedQuery as ComparedQuery,
    Found as Found,
    Neighbor as Neighbor,
    Neighbors as Neighbors,
    SideBySide as SideBySide,
    nearest_neighbors as nearest_neighbors,
    neighbor_rows as neighbor_rows,
    side_by_side as side_by_side,
    side_by_side_rows as side_by_side_rows,
    with_consistency as with_consistency,
)
