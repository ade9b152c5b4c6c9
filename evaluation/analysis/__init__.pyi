from .distances import (
    DistanceRatios as DistanceRatios,
    distance_ratios as distance_ratios,
    joint_representations as joint_representations,
)
from .figures import (
    draw_distance_ratios as draw_distance_ratios,
    draw_label_map as draw_label_map,
    draw_language_map as draw_language_map,
    draw_side_by_side as draw_side_by_side,
    save_figure as save_figure,
)
from .label_map import LabelMap as LabelMap, label_map as label_map
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
    SideBySide as SideBySide,
    side_by_side as side_by_side,
)
