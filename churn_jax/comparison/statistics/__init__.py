"""Numbers of a comparison with their uncertainty, and its tests."""
