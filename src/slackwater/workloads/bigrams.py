"""Aion's second micro-benchmark: all bigrams of a stream of text, a function that costs much more than an average.

As in the paper: one windowed function over posts, 5000 events/s, windows of 30 s, 3584 bytes. Chosen here: the text is
made (the paper has tweets), the payload is the text itself, and of all counted bigrams the 20 most frequent come out.

A post is a sequence of sentences out of 251, the j-th being `(a + j·b) mod 251` with a and b from the row's number:
cheap to make in the JVM, and 63 001 different posts. The sentences' words are Zipf-distributed, short ones first. The
table of sentences is data, the same for generator and oracle; that apart they share no code: the function splits the
texts and counts pairs, the oracle counts how often each sentence, and each pair of sentences, was used.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from slackwater.workloads.late_events import expected_by_window, late_rows, window_counts
from slackwater.workloads.rate_source import mixed, rate_rows, with_mixed

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from slackwater.workloads.base import Payload
    from slackwater.workloads.late_events import LateSpec

SENTENCES = 251
WORDS_PER_SENTENCE = 14
VOCABULARY = 1000
TOP = 20
TEXT_STREAM = 2
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


@dataclass(frozen=True)
class Text:
    """What posts are made of, and how many sentences fill a payload."""

    sentences: tuple[tuple[str, ...], ...]
    per_post: int

    @classmethod
    def of(cls, spec: LateSpec) -> Text:
        rng = random.Random(f"bigrams-{spec.seed}")
        words: set[str] = set()
        while len(words) < VOCABULARY:
            words.add("".join(rng.choices(_SYLLABLES, k=rng.choice((1, 2, 2, 3, 3, 3, 4)))))
        vocabulary = sorted(words, key=lambda word: (len(word), word))
        frequencies = [1 / rank for rank in range(1, VOCABULARY + 1)]
        drawn = rng.choices(vocabulary, frequencies, k=SENTENCES * WORDS_PER_SENTENCE)
        sentences = tuple(tuple(drawn[at : at + WORDS_PER_SENTENCE]) for at in range(0, len(drawn), WORDS_PER_SENTENCE))
        bytes_per_sentence = sum(len(word) + 1 for word in drawn) / SENTENCES
        return cls(sentences, max(1, round(spec.payload_bytes / bytes_per_sentence)))


@dataclass(frozen=True)
class Bigrams:
    name: str = "bigrams"
    window_s: float = 30.0
    rate: int = 5000
    payload_bytes: int = 3584
    keys: tuple[str, ...] = ()
    schema: str = "bigram STRING, count BIGINT, bigrams BIGINT, distinct_bigrams BIGINT"

    def events(self, spark: SparkSession, spec: LateSpec) -> DataFrame:
        return self.from_numbers(rate_rows(spark, spec.rate), spec)

    def from_numbers(self, numbered: DataFrame, spec: LateSpec) -> DataFrame:
        text = Text.of(spec)
        # One literal that Spark splits once: hundreds of literals would be optimised anew in every micro-batch.
        table = "split('{}', '[.]')".format(".".join(" ".join(sentence) for sentence in text.sentences))
        pick = f"CAST(1 + (h % {SENTENCES} + j * (h div {SENTENCES} % {SENTENCES})) % {SENTENCES} AS INT)"
        post = f"transform(sequence(0, {text.per_post - 1}), j -> element_at({table}, {pick}))"
        rows = with_mixed(late_rows(numbered, spec), spec.seed, h=("value", TEXT_STREAM))
        return rows.selectExpr("arrival", "event_time", f"array_join({post}, ' ') AS payload")

    @staticmethod
    def function(rows: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd  # noqa: PLC0415  # only workers need it

        counts: Counter[tuple[str, str]] = Counter()
        for post in rows["payload"]:
            words = post.split(" ")
            counts.update(pairwise(words))
        top = sorted((-count, f"{first} {second}") for (first, second), count in counts.items())[:TOP]
        return pd.DataFrame(
            {
                "bigram": [bigram for _, bigram in top],
                "count": [-count for count, _ in top],
                "bigrams": counts.total(),
                "distinct_bigrams": len(counts),
            }
        )

    def expected(self, spec: LateSpec, created_ms: int, numbers: range) -> dict[int, list[Payload]]:
        oracle = _BigramsOracle(Text.of(spec), spec.seed)
        return expected_by_window(spec, created_ms, numbers, lambda rows, _event_ms: oracle.result(rows))

    def window_counts(self, spec: LateSpec, created_ms: int, numbers: range) -> dict[int, int]:
        return window_counts(spec, created_ms, numbers)


class _BigramsOracle:
    """Counts sentences and their neighbours instead of words."""

    def __init__(self, text: Text, seed: int) -> None:
        self.per_post = text.per_post
        self.seed = seed
        self.words = sorted({word for sentence in text.sentences for word in sentence})
        number = {word: place for place, word in enumerate(self.words)}
        self.table = np.array([[number[word] for word in sentence] for sentence in text.sentences])

    def result(self, numbers: NDArray[np.int64]) -> list[Payload]:
        h = mixed(numbers, self.seed, TEXT_STREAM)
        first, step = h % SENTENCES, h // SENTENCES % SENTENCES
        used = (first[:, None] + step[:, None] * np.arange(self.per_post)) % SENTENCES
        size = len(self.words)
        inner = self.table[:, :-1] * size + self.table[:, 1:]
        times_used = np.bincount(used.ravel(), minlength=SENTENCES)
        neighbours = np.bincount((used[:, :-1] * SENTENCES + used[:, 1:]).ravel(), minlength=SENTENCES**2)
        across = self.table[:, -1][:, None] * size + self.table[:, 0][None, :]
        counts = np.zeros(size * size, dtype=np.int64)
        np.add.at(counts, inner, times_used[:, None])
        np.add.at(counts, across, neighbours.reshape(SENTENCES, SENTENCES))
        found = np.flatnonzero(counts)
        named = [
            (f"{self.words[pair // size]} {self.words[pair % size]}", int(counts[pair])) for pair in found.tolist()
        ]
        named.sort(key=lambda bigram: (-bigram[1], bigram[0]))
        return [(bigram, count, int(counts.sum()), found.size) for bigram, count in named[:TOP]]
