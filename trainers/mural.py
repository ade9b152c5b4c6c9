"""The trainers of MURAL (section 3.1), ALIGN (only image-text matching), and ETCL (Lee et al. 2022, section 3)."""

from itertools import combinations

from ..configuration.configuration_two_tower import IMAGE_TEXT, TEXT_TEXT, TRIPLET
from ..data.batching.mixture import SizedView, TaskData
from ..data.batching.views import StreamView, triplets
from .contrastive import ContrastiveTrainer


class MuralTrainer(ContrastiveTrainer):
    """Tasks: `image_text` on a caption corpus or `image_text_pairs`, and `text_text`, with a tenth of its weight
    (appendix A.1, figure 7), on a translation corpus or `translation_pairs`. `recipes/mural` has the paper's rates."""

    task_weights = {IMAGE_TEXT: 1.0, TEXT_TEXT: 0.1}


class EtclTrainer(ContrastiveTrainer):
    """Tasks: `triplet` on a caption corpus with several languages or on `triplets`; the others as for `MuralTrainer`.
    The paper first trains MURAL with `image_text` and `text_text`, each with the weight 1/2 (equation 3), and then
    ETCL with only `triplet` (equation 4), on all unordered pairs of languages (section 3.4). `recipes/etcl` has its
    rates and batch sizes."""

    task_weights = {TRIPLET: 1.0, IMAGE_TEXT: 0.5, TEXT_TEXT: 0.5}

    def make_view(self, task: str, data: TaskData) -> SizedView | StreamView:
        if task != TRIPLET:
            return super().make_view(task, data)
        languages = data.languages or self.args.languages
        pairs = data.pairs or (list(combinations(languages, 2)) if languages else None)
        return triplets(data.corpus, pairs)
