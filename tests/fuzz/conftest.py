"""Property-based tests: for any input, functions return, or raise an error that their documentation names.
`BABELENS_FUZZ=10000` tries as many inputs for each property; ordinary runs try 25, always the same ones."""

import os

from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
settings.register_profile("ordinary", max_examples=25, derandomize=True, database=None, **_COMMON)
settings.register_profile("fuzz", max_examples=int(os.environ.get("BABELENS_FUZZ", "10000")), **_COMMON)
settings.load_profile("fuzz" if "BABELENS_FUZZ" in os.environ else "ordinary")
