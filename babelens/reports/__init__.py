"""One page about a run: its results with intervals, galleries, training curves, cost, data and licenses (`page`)."""
