"""`babelens evaluate` finds the job by its key option where its name is left out."""

import pytest

from babelens.cli.evaluate import JOBS, with_job


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("MODEL", "emoji MODEL"),
        ("MODEL --test-vendor noto", "emoji MODEL --test-vendor noto"),
        ("MODEL --data emoji --json", "emoji MODEL --json"),
        ("--data=emoji MODEL", "emoji MODEL"),
        ("MODEL --data photos --split test", "captions MODEL --data photos --split test"),
        ("--data=photos MODEL", "captions --data=photos MODEL"),
        ("MODEL --recipe rc3/xvnli", "task MODEL --recipe rc3/xvnli"),
        ("MODEL --data emoji --recipe rc3/xvnli", "task MODEL --recipe rc3/xvnli"),
        ("MODEL --benchmark xtd --root data", "benchmark MODEL --benchmark xtd --root data"),
        (
            "MODEL --mteb STS17,XM3600T2IRetrieval --languages uk",
            "mteb MODEL --mteb STS17,XM3600T2IRetrieval --languages uk",
        ),
        ("MODEL --data", "captions MODEL --data"),
        ("MODEL --data photos --labels=labels.json", "classes MODEL --data photos --labels=labels.json"),
    ],
)
def test_the_key_option_picks_the_job(typed, meant):
    assert with_job(typed.split()) == meant.split()


def test_a_job_that_is_named_is_taken(run, model):
    assert "--protocol" in run("evaluate", "captions", "--help").output
    assert "--protocol" not in run("evaluate", "emoji", "--help").output
    assert "Missing option '--data'" in run("evaluate", "captions", model, code=2).output
    assert "No such option: --languages" in run("evaluate", model, "--languages", "en", code=2).output


def test_without_arguments_the_jobs_are_shown(run):
    for arguments, status in (((), 2), (("--help",), 0)):
        shown = run("evaluate", *arguments, code=status).output
        assert all(job.__name__ in shown for job in JOBS)
