"""MURAL's configuration."""

from contracts import ConfigContract


class TestMuralConfig(ConfigContract):
    factory = "make_mural"
