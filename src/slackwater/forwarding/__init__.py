"""Schedulers of chained applications tell each other what the other side needs: who they are, and how it travels."""
