"""Verdicts on the final state of an episode."""
