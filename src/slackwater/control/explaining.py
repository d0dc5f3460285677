"""Why a query ran or waits, in words: what it waits for, since when, who ran instead and why, what comes next."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from slackwater.control.breakdown import breakdown
from slackwater.control.plain import plain, quoted
from slackwater.core.model import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import tzinfo

    from slackwater.control.account import Account
    from slackwater.core.records import Ran

_MOST_NAMED = 5
_MOST_ORDERS = 3
_NOT_LONG_AGO_S = 600.0


def explain(known: Account, zone: tzinfo | None = None) -> list[str]:
    """Paragraphs, none of which has a line break. Times are of `zone`; None: of this machine."""
    words = _Words(known, zone)
    found = (words.standing(), words.instead(), words.next_window(), words.last_window(), words.events())
    return [text for text in found if text]


def duration(seconds: float) -> str:
    """For people: 0.42 s, 12 s, 3 min 5 s, 2 h 3 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s" if seconds >= 0.095 or seconds <= 0 else f"{seconds * 1000:.0f} ms"
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _batches(number: int) -> str:
    return f"{number} batch{'es' if number != 1 else ''}"


@dataclass
class _Share:
    """What another query did in a span of time."""

    name: str
    batches: int = 0
    seconds: float = 0.0
    reason: str = ""
    runs: bool = False

    def __str__(self) -> str:
        times = [
            _batches(self.batches) if self.batches else "",
            duration(self.seconds),
            "still running" if self.runs else "",
        ]
        why = f": {plain(self.reason)}" if self.reason else ""
        return f"{quoted(self.name)} ({', '.join(filter(None, times))}{why})"


class _Words:
    def __init__(self, known: Account, zone: tzinfo | None) -> None:
        self._known = known
        self._zone = zone
        self._name = quoted(known.query.name)
        self._stage = Stage(known.query.stage)

    # ---- where it stands ------------------------------------------------------------------------------------------

    def standing(self) -> str:
        known, query = self._known, self._known.query
        if self._free_because:
            return f"Nobody holds {self._name} back: {self._free_because}."
        if self._stage is Stage.PAUSED:
            since = known.paused_wall_ts
            rows = f" About {query.backlog_rows:,.0f} rows wait for it." if query.backlog_rows >= 1 else ""
            return f"{self._name} is paused{self._since(since)} and gets no turn until it is resumed.{rows}"
        turn = known.turn
        if turn is not None:
            emits = ", which emits a window," if turn.stage is Stage.SWEEP else ""
            return (
                f"{self._name} is running: its {turn.stage}{emits} was granted at {self._at(turn.granted_wall_ts)} "
                f"({self._ago(turn.granted_wall_ts)}) in lane {turn.lane}: {plain(turn.reason)}. "
                f"Before that it had waited {duration(turn.waited_s)} at its gate."
            )
        return f"{self._name} waits at its gate{self._since(query.waiting_since_wall_ts)}. {self._waits_for()}"

    @property
    def _free_because(self) -> str:
        """Why no gate holds it; empty where one does."""
        known = self._known
        if self._stage is Stage.UNGATED:
            return "its trigger is of a kind that no gate can hold, and Spark runs it by itself"
        if not known.enforces:
            return f"the policy {quoted(known.policy)} only watches, and the query follows its own trigger"
        if known.gates_open:
            return (
                "the gates are open, because the scheduler was not heard from in time. "
                "It follows its own trigger, as in plain Spark"
            )
        return ""

    def _waits_for(self) -> str:
        held = self._kept_from_running()
        if held:
            return held
        known, query = self._known, self._known.query
        if not query.batches:
            what = "Nothing is known of it yet: none of its batches has been seen."
        elif known.pending_end_event_ts is not None:
            what = f"The window that ended at {self._at(known.pending_end_event_ts)} is ready: one more batch emits it."
        elif known.awaited:
            what = "Somebody awaits all its available data, so it is next."
        elif known.windowed:
            what = "It waits for the watermark that closes its next window."
        elif query.swm_wall_ts is not None and query.swm_wall_ts > known.now_wall_ts:
            what = f"Its rows may wait until {self._at(query.swm_wall_ts)}."
        else:
            what = "It waits for its turn."
        return what + self._policy_says

    def _kept_from_running(self) -> str:
        """Why it gets no turn although it is its time, or may not have one yet; empty where neither is so."""
        known, query, now = self._known, self._known.query, self._known.now_wall_ts
        if known.wanted_since_wall_ts is not None:
            lanes = "the only lane is" if known.lanes == 1 else f"all {known.lanes} lanes are"
            since = self._since(known.wanted_since_wall_ts)
            return f"A turn has been wanted for it{since}, but {lanes} taken.{self._policy_says}"
        if known.eligible_from_wall_ts <= now:
            return ""
        again = self._at(known.eligible_from_wall_ts)
        if known.min_interval_s > 0 and (query.last_turn_wall_ts or 0.0) + known.min_interval_s > now:
            return f"Its own trigger, every {duration(known.min_interval_s)}, allows the next turn at {again}."
        return f"Its last turn found nothing new; it may have the next one at {again}."

    @property
    def _policy_says(self) -> str:
        reason = self._known.query.reason
        return f" The policy {quoted(self._known.policy)} says: {plain(reason)}." if reason else ""

    # ---- who ran instead ------------------------------------------------------------------------------------------

    def instead(self) -> str:
        known, query = self._known, self._known.query
        if self._free_because:
            return ""
        turn = known.turn
        if turn is not None:
            until = turn.granted_wall_ts
            return self._others_between(until - turn.waited_s, until, "While it waited", wanted=False)
        if self._stage is Stage.PAUSED:
            return self._others_between(known.paused_wall_ts, known.now_wall_ts, "Since then", wanted=False)
        wanted = known.wanted_since_wall_ts
        if wanted is not None:
            return self._others_between(wanted, known.now_wall_ts, "Instead of it", wanted=True)
        return self._others_between(
            query.waiting_since_wall_ts,
            known.now_wall_ts,
            "It has not wanted a turn yet, so nobody took its place. Meanwhile",
            wanted=False,
        )

    def _others_between(self, since: float | None, until: float, opening: str, *, wanted: bool) -> str:
        if since is None:
            return ""
        shares = self._shares(since, until)
        if not shares:
            return "Nobody ran in its place." if wanted else ""
        named = "; ".join(map(str, shares[:_MOST_NAMED]))
        more = len(shares) - _MOST_NAMED
        rest = f"; and {more} other{'s' if more > 1 else ''}" if more > 0 else ""
        beside = sum(1 for ran in self._overlapping(since, until) if ran.lane is None)
        free = f" Beside them ran {_batches(beside)} that nobody held." if beside else ""
        return f"{opening} ran: {named}{rest}.{free}"

    def _shares(self, since: float, until: float) -> list[_Share]:
        """Turns of others in that span, those that took most time first."""
        found: dict[str, _Share] = {}
        for ran in self._overlapping(since, until):
            if ran.lane is None:
                continue
            share = found.setdefault(ran.key, _Share(ran.name))
            share.batches += 1
            share.seconds += min(ran.ended_wall_ts, until) - max(ran.began_wall_ts, since)
            # That a data batch is followed by its sweep says nothing about why its turn came.
            if ran.stage is not Stage.SWEEP or not share.reason:
                share.reason = ran.reason
        for turn in self._known.others:
            if turn.granted_wall_ts < until:
                share = found.setdefault(turn.key, _Share(turn.name))
                share.seconds += max(0.0, until - max(turn.granted_wall_ts, since))
                share.runs = until >= self._known.now_wall_ts
                if turn.stage is not Stage.SWEEP or not share.reason:
                    share.reason = turn.reason
        return sorted(found.values(), key=lambda share: (-share.seconds, share.name))

    def _overlapping(self, since: float, until: float) -> Iterable[Ran]:
        own = self._known.query.key
        return (r for r in self._known.ran if r.key != own and r.ended_wall_ts > since and r.began_wall_ts < until)

    # ---- its windows ----------------------------------------------------------------------------------------------

    def next_window(self) -> str:
        known, query = self._known, self._known.query
        end, due = query.window_end_ts, query.swm_wall_ts
        if end is None or due is None:
            if not known.windowed:
                return "It has no windows that wait for a watermark."
            return "No watermark of it is known yet, so nobody can say when its next window closes."
        whose = "Its next window" if known.windowed else "It has no windows itself; the one that its readers wait for"
        now = known.now_wall_ts
        when = f"should be there in {duration(due - now)}, at" if due > now else "has been due since"
        sure = self._how_sure()
        cost_s = query.batch_cost_s + query.row_cost_s * query.backlog_rows + query.sweep_cost_s
        return (
            f"{whose} ends at {self._at(end)}. The watermark that closes it {when} {self._at(due)}; {sure}. "
            f"Getting the result out then takes about {duration(cost_s)}."
        )

    def _how_sure(self) -> str:
        low, high = self._known.query.swm_low_wall_ts, self._known.query.swm_high_wall_ts
        if low is None or high is None:
            return "how sure that is, is not known yet"
        share = f"{100 * self._known.confidence:g} %"
        return f"with {share} confidence between {self._exactly(low)} and {self._exactly(high)}"

    def last_window(self) -> str:
        known = self._known
        if not known.left:
            return "No window of it has left since the scheduler knows it." if known.windowed else ""
        # Several may leave with one batch: the first of them waited longest.
        last = next(left for left in known.left if left.left_wall_ts == known.left[-1].left_wall_ts)
        own = [ran for ran in known.ran if ran.key == known.query.key]
        wanted = [e.wall_ts for e in known.story if e.kind == "planned" and e.key == known.query.key]
        parts = breakdown(last, own, wanted)
        told = (
            f"The last window that left ended at {self._at(last.window_end_event_ts)} and left at "
            f"{self._at(last.left_wall_ts)}, {duration(last.latency_s)} after its end"
        )
        if parts is None:
            return told + "."
        named = (
            (parts.unwanted_s, "until a turn was wanted for it"),
            (parts.turn_s, "waiting for that turn" if parts.unwanted_s is not None else "until its turn"),
            (parts.data_s, "data batch"),
            (parts.between_s if parts.between_s > 0.05 else None, "between the batches"),
            (parts.emitting_s, "sweep batch" if parts.data_s is not None else "in the batch that emitted it"),
        )
        return f"{told}: {', '.join(f'{duration(s)} {what}' for s, what in named if s is not None)}."

    # ---- what else happened ---------------------------------------------------------------------------------------

    def events(self) -> str:
        """What people ordered and where the policy failed, not long ago."""
        since = self._known.now_wall_ts - _NOT_LONG_AGO_S
        found: dict[str, list[str]] = defaultdict(list)
        for entry in self._known.story:
            if entry.wall_ts >= since and entry.kind in ("ordered", "switched", "trouble"):
                found[entry.kind].append(f"{self._at(entry.wall_ts)} {plain(entry.what)}")
        parts = [
            f"{title}: {'; '.join(found[kind][-_MOST_ORDERS:])}."
            for kind, title in (
                ("ordered", "Ordered by hand"),
                ("switched", "The policy was switched"),
                ("trouble", "The policy failed, and round-robin decided meanwhile"),
            )
            if found[kind]
        ]
        return " ".join(parts)

    # ---- times ----------------------------------------------------------------------------------------------------

    def _at(self, ts: float) -> str:
        return self._exactly(ts)[:8]

    def _exactly(self, ts: float) -> str:
        try:
            return datetime.fromtimestamp(ts, self._zone).strftime("%H:%M:%S.%f")[:-5]
        except (OverflowError, ValueError, OSError):
            return "an unknown time"

    def _ago(self, ts: float) -> str:
        return f"{duration(max(0.0, self._known.now_wall_ts - ts))} ago"

    def _since(self, ts: float | None) -> str:
        return f" since {self._at(ts)} ({self._ago(ts)})" if ts is not None else ""
