"""RC3's heads in two processes: the decoder, which they do not use, keeps nobody waiting."""

import numpy as np
import pytest

from tests.support.parallel_rc3 import LABELS, train
from tests.support.processes import together


@pytest.mark.parametrize("model_class", LABELS)
@pytest.mark.parametrize("reentrant", [None, False, True])
def test_two_processes_learn_what_one_does(tmp_path, model_class, reentrant):
    settings = {}
    if reentrant is not None:
        settings = {"activation_checkpointing": True, "activation_checkpointing_kwargs": {"use_reentrant": reentrant}}
    first, second = together(2, train, tmp_path / "two", model_class, **settings)
    (alone,) = together(1, train, tmp_path / "one", model_class)
    for name, value in alone.items():
        assert np.array_equal(first[name], second[name]), name
        np.testing.assert_allclose(first[name], value, rtol=0, atol=1e-5, err_msg=name)
