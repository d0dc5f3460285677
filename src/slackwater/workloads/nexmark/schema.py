"""NEXMark's three tables: persons, auctions and bids, as rows of plain Python and as columns of SQL.

Columns, their order and their types are those of the public definition (github.com/nexmark/nexmark, `ddl_gen.sql`). In
plain Python and in files a time is whole milliseconds since 1970, which no time zone can shift; as a column for a query
it is a `TIMESTAMP`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Person(NamedTuple):
    id: int
    name: str
    email_address: str
    credit_card: str
    city: str
    state: str
    event_ms: int
    extra: str


class Auction(NamedTuple):
    """`reserve` and `initial_bid` are cents, as are prices of bids."""

    id: int
    item_name: str
    description: str
    initial_bid: int
    reserve: int
    event_ms: int
    expires_ms: int
    seller: int
    category: int
    extra: str


class Bid(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    event_ms: int
    extra: str


Event = Person | Auction | Bid
RowT = TypeVar("RowT", Person, Auction, Bid)


@dataclass(frozen=True)
class Table(Generic[RowT]):
    """A table: its rows in Python, and its columns (name, SQL type) in the order of the row's fields."""

    name: str
    row: type[RowT]
    columns: tuple[tuple[str, str], ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @property
    def time_columns(self) -> tuple[str, ...]:
        return tuple(name for name, kind in self.columns if kind == "TIMESTAMP")

    @property
    def file_ddl(self) -> str:
        """The columns as files hold them: times as milliseconds."""
        return ", ".join(f"{name} {'BIGINT' if kind == 'TIMESTAMP' else kind}" for name, kind in self.columns)

    def rows(self, given: Iterable[Mapping[str, Any] | tuple[Any, ...]]) -> list[RowT]:
        """Rows from mappings by column name, or from tuples in the order of the columns."""
        return [self._row(one) for one in given]

    def record(self, row: tuple[Any, ...]) -> dict[str, Any]:
        """A row by column name, as a line of JSON holds it."""
        return dict(zip(self.column_names, row, strict=True))

    def _row(self, given: Mapping[str, Any] | tuple[Any, ...]) -> RowT:
        if isinstance(given, Mapping):
            if set(given) != set(self.column_names):
                raise ConfigurationError(
                    f"a row of {self.name!r} has the columns {', '.join(map(str, given))}; "
                    f"give all of {', '.join(self.column_names)}, and no other."
                )
            given = tuple(given[name] for name in self.column_names)
        if len(given) != len(self.columns):
            raise ConfigurationError(
                f"a row of {self.name!r} has {len(given)} values; give {len(self.columns)}, in the order "
                f"{', '.join(self.column_names)}."
            )
        return self.row(*given)


PERSON = Table(
    "person",
    Person,
    (
        ("id", "BIGINT"),
        ("name", "STRING"),
        ("emailAddress", "STRING"),
        ("creditCard", "STRING"),
        ("city", "STRING"),
        ("state", "STRING"),
        ("dateTime", "TIMESTAMP"),
        ("extra", "STRING"),
    ),
)
AUCTION = Table(
    "auction",
    Auction,
    (
        ("id", "BIGINT"),
        ("itemName", "STRING"),
        ("description", "STRING"),
        ("initialBid", "BIGINT"),
        ("reserve", "BIGINT"),
        ("dateTime", "TIMESTAMP"),
        ("expires", "TIMESTAMP"),
        ("seller", "BIGINT"),
        ("category", "BIGINT"),
        ("extra", "STRING"),
    ),
)
BID = Table(
    "bid",
    Bid,
    (
        ("auction", "BIGINT"),
        ("bidder", "BIGINT"),
        ("price", "BIGINT"),
        ("channel", "STRING"),
        ("url", "STRING"),
        ("dateTime", "TIMESTAMP"),
        ("extra", "STRING"),
    ),
)


@dataclass(frozen=True)
class Rows:
    """Rows of the three tables, each in the order in which they arrive."""

    persons: tuple[Person, ...] = ()
    auctions: tuple[Auction, ...] = ()
    bids: tuple[Bid, ...] = ()

    @classmethod
    def of(
        cls,
        persons: Iterable[Mapping[str, Any] | tuple[Any, ...]] = (),
        auctions: Iterable[Mapping[str, Any] | tuple[Any, ...]] = (),
        bids: Iterable[Mapping[str, Any] | tuple[Any, ...]] = (),
    ) -> Rows:
        return cls(tuple(PERSON.rows(persons)), tuple(AUCTION.rows(auctions)), tuple(BID.rows(bids)))

    def __add__(self, later: Rows) -> Rows:
        return Rows(self.persons + later.persons, self.auctions + later.auctions, self.bids + later.bids)
