"""Conditions on an update, and whether they hold."""
