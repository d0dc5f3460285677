"""When memory rules (Klink 3.4): from a bound on, until half of it is free again or a time is over.

Least slack is right as long as queries do not contend for memory. Once the bound is reached, whoever frees most goes
first, for a while: a cycle ends when the memory in use has halved, or after three seconds, and the next cycle leaves
least slack some time in between.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from slackwater.core.model import Memory


class MemoryManager:
    """Tells at each instant whether memory rules.

    bound: share of the maximum at which a cycle begins.
    freed: share of what was in use then that ends it.
    longest_s: it ends after that in any case; rest_s later the next one may begin.
    """

    def __init__(self, bound: float = 0.75, freed: float = 0.5, longest_s: float = 3.0, rest_s: float = 1.0) -> None:
        for name, share in (("bound", bound), ("freed", freed)):
            if not 0 < share < 1:
                raise ConfigurationError(f"memory {name}={share!r}: a share between 0 and 1 is needed.")
        for name, seconds in (("longest_s", longest_s), ("rest_s", rest_s)):
            if not 0 < seconds < math.inf:
                raise ConfigurationError(f"memory {name}={seconds!r}: a positive number of seconds is needed.")
        self.bound = bound
        self.cycles = 0
        self._freed = freed
        self._longest_s = longest_s
        self._rest_s = rest_s
        self._began_wall_ts: float | None = None
        self._began_bytes = 0.0
        self._rest_until_wall_ts = -math.inf

    def rules(self, now_wall_ts: float, memory: Memory | None) -> bool:
        """Call it once a step, with what is in use then."""
        if memory is None or memory.max_bytes <= 0:
            return False
        if self._began_wall_ts is not None:
            freed = memory.used_bytes <= (1 - self._freed) * self._began_bytes
            if freed or now_wall_ts - self._began_wall_ts >= self._longest_s:
                self._began_wall_ts = None
                self._rest_until_wall_ts = now_wall_ts + self._rest_s
        elif memory.used_bytes >= self.bound * memory.max_bytes and now_wall_ts >= self._rest_until_wall_ts:
            self._began_wall_ts, self._began_bytes = now_wall_ts, memory.used_bytes
            self.cycles += 1
        return self._began_wall_ts is not None
