"""`slackwater verify`: the same rows through an oracle, through plain Spark and through every policy, compared.

- `model`: what is run, and what came out.
- `compare`: two answers, row by row.
- `feed`: rows as files that arrive one after the other.
- `pipeline`: a workload's stages as streaming queries that can be stopped and started again.
- `run`: one workload, all ways.
- `commands`: the command line.
"""
