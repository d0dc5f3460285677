"""Experiments in virtual time: the same core, exact from seed and commit.

`pipelines` are the queries and their streams, `flow` how work moves, `tuples` the engine, `driver` how the core sees
it. `klink`, `region`, `haren` and `estimator` are the papers' experiments; `exact` is what the engine is checked with.
"""
