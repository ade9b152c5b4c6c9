"""Metrics as folders that `evaluate.load` reads, here and as Spaces of the Hub."""
