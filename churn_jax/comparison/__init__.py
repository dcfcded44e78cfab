"""Decide on an update: two versions compared by their predictions, of any framework."""
