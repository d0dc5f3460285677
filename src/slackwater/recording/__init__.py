"""Traces: what an attached application did, written while it runs, bounded and at next to no cost."""
