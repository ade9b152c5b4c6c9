"""The names of the training tasks, which configurations, views and trainers share, and the heads that models have for
them."""

import inspect
from typing import Any

from .errors import ModelKindError

IMAGE_TEXT = "image_text"
TEXT_TEXT = "text_text"
TRIPLET = "triplet"


def head_of_task(model: Any, task: str | None) -> dict[str, str]:
    """Returns the argument of a model's `get_text_features` that chooses the head of a task; none without a task.

    Raises:
        ModelKindError: if the model has one head for all tasks, or none for this one.
    """
    if task is None:
        return {}
    name = type(model).__name__
    get_text_features = getattr(model, "get_text_features", None)
    if get_text_features is None or "task" not in inspect.signature(get_text_features).parameters:
        raise ModelKindError(f"{name} has no head for each task: leave out task={task!r}")
    if task not in (tasks := list(model.config.tasks)):
        raise ModelKindError(f"this {name} has no head for {task!r}; its tasks are {', '.join(tasks)}")
    return {"task": task}
