from .class_labels import ClassifiedImages as ClassifiedImages, read_labels as read_labels
from .classification import (
    class_embeddings as class_embeddings,
    evaluate_classification as evaluate_classification,
    group_means as group_means,
    language_groups as language_groups,
    linear_probe_accuracy as linear_probe_accuracy,
    neighbor_accuracy as neighbor_accuracy,
)
from .comparison import (
    Difference as Difference,
    RunResults as RunResults,
    Score as Score,
    compare as compare,
)
from .consistency import (
    compare_consistency as compare_consistency,
    consistency_scores as consistency_scores,
    evaluate_consistent_retrieval as evaluate_consistent_retrieval,
)
from .emoji import EmojiBenchmark as EmojiBenchmark
from .query_ranks import QueryRanks as QueryRanks
from .retrieval import RetrievalRecall as RetrievalRecall, evaluate_retrieval as evaluate_retrieval
from .translate_test import evaluate_translate_test as evaluate_translate_test
