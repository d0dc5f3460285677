"""Which pages the site has, in which order."""

from __future__ import annotations

from dataclasses import dataclass

REFERENCE = "reference"


@dataclass(frozen=True)
class Entry:
    """A page by its Markdown file. One that others are still writing may be missing."""

    title: str
    source: str
    may_be_missing: bool = False


@dataclass(frozen=True)
class Section:
    """Pages under one heading of the menu."""

    title: str
    entries: tuple[Entry, ...]


NAV: tuple[Section, ...] = (
    Section(
        "Begin",
        (
            Entry("Slackwater", "README.md"),
            Entry("Quickstart", "docs/quickstart.md"),
            Entry("Installing", "docs/install.md"),
            Entry("How it works", "docs/how-it-works.md"),
        ),
    ),
    Section(
        "Use",
        (
            Entry("Policies", "docs/policies.md"),
            Entry("Write your own policy", "docs/write-a-policy.md"),
            Entry("Late data", "docs/late.md"),
            Entry("Kafka", "docs/kafka.md"),
            Entry("Tuning", "docs/tuning.md"),
            Entry("Know before you switch", "docs/advise.md", may_be_missing=True),
        ),
    ),
    Section(
        "Operate",
        (
            Entry("Operating", "docs/operating.md", may_be_missing=True),
            Entry("Configuration", "docs/configuration.md", may_be_missing=True),
            Entry("Metrics", "docs/metrics.md", may_be_missing=True),
            Entry("Trouble on purpose", "docs/chaos.md", may_be_missing=True),
            Entry("Several applications", "docs/middleware.md"),
            Entry("Chained applications", "docs/forwarding.md"),
            Entry("On a cluster", "docs/cluster.md"),
        ),
    ),
    Section(
        "Judge",
        (
            Entry("Limits, and when not to use it", "docs/limits.md"),
            Entry("Compared with others", "docs/comparison.md"),
            Entry("How the benchmark measures", "docs/benchmarks.md"),
            Entry("Are the results the same?", "docs/verify.md"),
            Entry("Simulator", "docs/simulator.md"),
            Entry("Workloads", "docs/workloads/README.md"),
            Entry("Linear Road", "docs/workloads/linear-road.md"),
            Entry("NEXMark", "docs/workloads/nexmark.md"),
            Entry("Taxi trips", "docs/workloads/nyt.md"),
            Entry("RIoTBench", "docs/workloads/riot.md"),
            Entry("SYN", "docs/workloads/syn.md"),
            Entry("VoipStream", "docs/workloads/voip.md"),
        ),
    ),
    Section(
        "Reference",
        (
            Entry("API", REFERENCE),
            Entry("Architecture", "docs/architecture.md"),
            Entry("Decisions", "docs/decisions/README.md"),
            Entry("Contributing", "CONTRIBUTING.md"),
            Entry("Changelog", "CHANGELOG.md"),
        ),
    ),
)
# Pages that others link to and the menu leaves out.
BESIDE = ("docs/decisions/*.md",)
