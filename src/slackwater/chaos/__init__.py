"""Troubles that a running application is put through, and what must hold meanwhile: `slackwater chaos`.

- `clock`, `wayward`, `bridge`, `clients`, `disk`: the parts that misbehave.
- `workload`: small queries with an oracle, that every trouble is tried on.
- `scene`, `troubles`, `script`: queries that run, and one trouble after the other.
- `churn`, `leaks`: queries that come and go, and what may not grow with them.
- `commands`: the command line.
"""
