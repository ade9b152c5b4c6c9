"""The facts of the card of an RC3 that was fine-tuned on a task, and the Hub's names of these tasks."""

import dataclasses
from collections.abc import Sequence

from .facts import ModelCardFacts

# The Hub has no name for telling whether a text is true of an image: it sorts texts by label. A cross-encoder's
# scores rank.
# https://huggingface.co/tasks
PIPELINE_TAGS = {
    "visual-entailment": "text-classification",
    "visual-question-answering": "visual-question-answering",
    "visual-reasoning": "text-classification",
    "image-text-retrieval": "text-ranking",
    "translation": "image-text-to-text",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskCardFacts(ModelCardFacts):
    """
    Args, beside those of every card:
        task: a name of `PIPELINE_TAGS`.
        model_class: the name of the model's class.
        scores: of the results, those that the card shows.
        labels: that the model chooses from, in order; none of a model that scores or writes.

    `image_languages` are those of the texts that it was fine-tuned on, `unseen_languages` those that it was tested in
    beside them.
    """

    task: str
    model_class: str
    scores: Sequence[str]
    labels: Sequence[str] = ()
    in_pipelines: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task not in PIPELINE_TAGS:
            raise ValueError(f"task={self.task!r}: there are {', '.join(PIPELINE_TAGS)}")

    @property
    def text(self) -> str:
        return f"{self.method}_task"

    @property
    def pipeline_tag(self) -> str:
        return PIPELINE_TAGS[self.task]

    @property
    def task_type(self) -> str:
        return self.task

    @property
    def metrics(self) -> Sequence[str]:
        return self.scores

    @property
    def languages(self) -> list[str]:
        return list(dict.fromkeys([*self.image_languages, *self.unseen_languages]))

    def training_of(self, language: str) -> str:
        """Whether the fine-tuning had it; of translations, such as `en-de`, whether it had both."""
        trained = self.image_languages
        pairs = {f"{a}-{b}" for a in trained for b in trained}
        return "yes" if language in trained or language in pairs else "no"
