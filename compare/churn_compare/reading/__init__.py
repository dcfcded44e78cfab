"""Predictions of any framework, read and joined example by example."""
