from .batching.mixture import TaskData as TaskData
from .batching.texts import TextFilter as TextFilter, add_translations as add_translations
from .batching.views import (
    RetrievalSet as RetrievalSet,
    image_text_pairs as image_text_pairs,
    retrieval_set as retrieval_set,
    translation_pairs as translation_pairs,
    triplets as triplets,
    weak_pairs as weak_pairs,
)
from .benchmarks import (
    Benchmark as Benchmark,
    benchmark_names as benchmark_names,
    find_benchmark as find_benchmark,
)
from .corpus.corpus import images_by_language_pair as images_by_language_pair, languages_of as languages_of
from .corpus.loading import (
    SkippedImage as SkippedImage,
    load_captions as load_captions,
    load_translations as load_translations,
)
from .emoji.benchmark import (
    emoji_entailment as emoji_entailment,
    emoji_questions as emoji_questions,
    load_emoji as load_emoji,
    weakly_aligned_emoji as weakly_aligned_emoji,
)
from .readers.bitext import load_bitext as load_bitext
from .readers.coco import load_multi30k as load_multi30k
from .readers.conceptual_captions import load_cc3m as load_cc3m
from .readers.iglue import (
    load_answers as load_answers,
    load_marvl as load_marvl,
    load_nlvr2 as load_nlvr2,
    load_xflickrco as load_xflickrco,
    load_xgqa as load_xgqa,
    load_xvnli as load_xvnli,
)
from .readers.wit import load_wit as load_wit
