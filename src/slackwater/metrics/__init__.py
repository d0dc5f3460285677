"""The metric graph: what a driver tells, and what can be derived from it, computed once a period."""
