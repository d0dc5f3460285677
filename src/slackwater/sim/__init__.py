"""Experiments in virtual time: the same core, exact from seed and commit."""
