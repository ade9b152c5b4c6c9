"""The texts that programs of others embed, in `make test-slow`."""

TEXTS = ["a red car", "ein rotes Auto", "un chien gris", "一只灰狗"]
