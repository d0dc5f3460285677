"""Which Spark applications of this process are attached, and what other parts of an application tell of themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

if TYPE_CHECKING:
    from slackwater.drivers.spark.handle import Handle

Plain = str | float | int | bool | None
Teller = Callable[[], list[dict[str, Plain]]]

_handles: WeakValueDictionary[str, Handle] = WeakValueDictionary()  # by application
_stand_ins: WeakSet[Handle] = WeakSet()
_tellers: dict[str, dict[str, Teller]] = {}  # by application, by name


def remember(application_id: str, handle: Handle) -> None:
    _handles[application_id] = handle


def stands_in(handle: Handle) -> None:
    """Whoever attached did so for a script that knows nothing of it. If that attaches itself, its own word counts."""
    _stand_ins.add(handle)


def give_way(application_id: str) -> bool:
    """Detach what stood in for a script that attaches itself; False where nothing did."""
    handle = _handles.get(application_id)
    if handle is None or handle not in _stand_ins:
        return False
    handle.detach()
    return True


def handle_of(spark: Any) -> Handle | None:
    """The handle of an application that is attached now."""
    handle = _handles.get(spark.sparkContext.applicationId)
    return handle if handle is not None and handle.attached else None


def room_for(spark: Any, seconds: float) -> bool:
    """May work of low urgency take a core for so long, without a query of this session waiting for it?

    Always, where nobody is attached.
    """
    handle = handle_of(spark)
    return handle is None or handle.room_for(seconds)


def tell(spark: Any, name: str, teller: Teller) -> None:
    """Let the page and the metrics of this application show what `teller` answers, whenever it is attached.

    It is called from the endpoint's thread, must be quick, and has one row for each thing that it tells of.
    """
    tell_for(spark.sparkContext.applicationId, name, teller)


def tell_for(application_id: str, name: str, teller: Teller) -> None:
    _tellers.setdefault(application_id, {})[name] = teller


def untell(application_id: str, name: str) -> None:
    """What was told under this name is no more."""
    _tellers.get(application_id, {}).pop(name, None)


def tellers(application_id: str) -> Mapping[str, Teller]:
    return dict(_tellers.get(application_id, {}))
