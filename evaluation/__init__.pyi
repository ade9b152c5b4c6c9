from .benchmarks import LoadedBenchmark as LoadedBenchmark, load_benchmark as load_benchmark
from .classification import (
    ClassifiedImages as ClassifiedImages,
    class_embeddings as class_embeddings,
    evaluate_classification as evaluate_classification,
    group_means as group_means,
    language_groups as language_groups,
    neighbor_accuracy as neighbor_accuracy,
    read_labels as read_labels,
)
from .comparison import Difference as Difference, Score as Score, compare as compare
from .consistency import (
    compare_consistency as compare_consistency,
    consistency_scores as consistency_scores,
    evaluate_consistent_retrieval as evaluate_consistent_retrieval,
)
from .emoji import EmojiBenchmark as EmojiBenchmark
from .metric import RetrievalRecall as RetrievalRecall
from .mteb import (
    MtebModel as MtebModel,
    MtebScore as MtebScore,
    evaluate_mteb as evaluate_mteb,
    mteb_model as mteb_model,
    mteb_tasks as mteb_tasks,
)
from .ranking import QueryRanks as QueryRanks
from .results import Results as Results
from .retrieval import evaluate_retrieval as evaluate_retrieval, evaluate_translate_test as evaluate_translate_test
