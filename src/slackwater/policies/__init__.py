"""Policies: one file each. A policy is a small object with `decide(snapshot) -> list[Choice]`."""
