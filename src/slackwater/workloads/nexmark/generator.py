"""NEXMark's events: who sells, what is on auction, who bids, with a few of each much busier than all others.

Follows the generator of Apache Beam, which the public definition took over (`NexmarkGenerator` and what is under
`generator/model`): ids, proportions, hot sellers, bidders and auctions, lengths of auctions, prices, sizes, order. Of
every 50 events the first is a person, the next 3 are auctions, then come 46 bids. References lead: some auctions and
bids name persons and auctions that come a little later, or never, where the events end.

An event is a function of the seed and its number, so any part of a stream can be made again by itself. The random
numbers are Python's, not Java's: the same seed does not give Beam's very rows. Where github.com/nexmark/nexmark adds
the first id of persons to a bidder twice (its `BidGenerator`), so that few bidders are persons, we follow Beam and add
it once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase
from typing import TYPE_CHECKING

from slackwater.errors import ConfigurationError
from slackwater.workloads.nexmark.schema import Auction, Bid, Event, Person, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST_PERSON_ID = 1000
FIRST_AUCTION_ID = 1000
FIRST_CATEGORY_ID = 10
CATEGORIES = 5

# Persons and auctions that are named before they are there.
PERSON_ID_LEAD = 10
AUCTION_ID_LEAD = 10
# One of so many persons or auctions is the hot one, until so many more have come.
HOT_EVERY = 100

CHANNELS = 10_000
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")

# Multiplying by it puts a group of events out of order; it is prime, so every event of a group comes up once.
_SHUFFLE = 953
_FILLER_CHARS = 1 << 14


@dataclass(frozen=True)
class GeneratorSettings:
    """The defaults are the definition's. A hot ratio of n: all but 1 of n choices fall on the hot one.

    `out_of_order_group` n: each n events in a row come in another order; 1 keeps them, as does any n that divides 952.
    """

    seed: int = 1
    events_per_s: int = 10_000
    first_event_ms: int = 1_436_918_400_000  # 2015-07-15 00:00 UTC, Beam's
    persons: int = 1
    auctions: int = 3
    bids: int = 46
    hot_auction_ratio: int = 2
    hot_seller_ratio: int = 4
    hot_bidder_ratio: int = 4
    in_flight_auctions: int = 100
    active_persons: int = 1000
    out_of_order_group: int = 1
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100

    def __post_init__(self) -> None:
        for name in ("seed", "bids", "in_flight_auctions", "person_bytes", "auction_bytes", "bid_bytes"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; give 0 or more.")
        for name in (
            "events_per_s",
            "persons",
            "auctions",
            "hot_auction_ratio",
            "hot_seller_ratio",
            "hot_bidder_ratio",
            "active_persons",
            "out_of_order_group",
        ):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; give 1 or more.")
        if self.out_of_order_group % _SHUFFLE == 0:
            raise ConfigurationError(
                f"out_of_order_group is {self.out_of_order_group}, a multiple of {_SHUFFLE}, with which events of a "
                f"group would repeat; give any other number."
            )

    @property
    def cycle(self) -> int:
        """Events after which kinds repeat."""
        return self.persons + self.auctions + self.bids

    @property
    def longest_auction_ms(self) -> int:
        """No auction is open for longer."""
        return max(1, 2 * math.ceil(self._events_ahead * 1000 / self.events_per_s))

    @property
    def latest_ms(self) -> int:
        """No event is further behind the newest one before it."""
        return math.ceil((self.out_of_order_group - 1) * 1000 / self.events_per_s)

    @property
    def _events_ahead(self) -> int:
        return self.in_flight_auctions * self.cycle // self.auctions

    def event_ms(self, event_id: int) -> int:
        return self.first_event_ms + event_id * 1000 // self.events_per_s

    def event_id(self, number: int) -> int:
        """The id of the event that comes `number`-th: another one of its group, if groups are shuffled."""
        group = self.out_of_order_group
        return number // group * group + number * _SHUFFLE % group

    def horizon_ms(self, event_id: int) -> int:
        """From this event to the one that opens the auction `in_flight_auctions` on: the mean length of an auction."""
        return self.event_ms(event_id + self._events_ahead) - self.event_ms(event_id)


class Generator:
    """Events by their number. Two generators with the same settings make the same events."""

    def __init__(self, settings: GeneratorSettings | None = None) -> None:
        self.settings = settings or GeneratorSettings()
        letters = Random(self._seed_of(0))
        self._filler = "".join(letters.choices(ascii_lowercase, k=_FILLER_CHARS))

    def event(self, number: int) -> Event:
        """The event that comes `number`-th, from 0."""
        settings = self.settings
        event_id = settings.event_id(number)
        random = Random(self._seed_of(1 + event_id))
        place = event_id % settings.cycle
        if place < settings.persons:
            return self._person(event_id, random)
        if place < settings.persons + settings.auctions:
            return self._auction(event_id, random)
        return self._bid(event_id, random)

    def events(self, numbers: range) -> Iterator[Event]:
        return (self.event(number) for number in numbers)

    def rows(self, numbers: range) -> Rows:
        """The events of these numbers by table, in the order of their coming."""
        persons: list[Person] = []
        auctions: list[Auction] = []
        bids: list[Bid] = []
        for event in self.events(numbers):
            match event:
                case Person():
                    persons.append(event)
                case Auction():
                    auctions.append(event)
                case Bid():
                    bids.append(event)
        return Rows(tuple(persons), tuple(auctions), tuple(bids))

    def _person(self, event_id: int, random: Random) -> Person:
        name = f"{random.choice(FIRST_NAMES)} {random.choice(LAST_NAMES)}"
        email = f"{_word(random, 7)}@{_word(random, 5)}.com"
        card = " ".join(f"{random.randrange(10_000):04d}" for _ in range(4))
        city, state = random.choice(CITIES), random.choice(STATES)
        size = 8 + len(name) + len(email) + len(card) + len(city) + len(state)
        extra = self._extra(random, size, self.settings.person_bytes)
        person_id = FIRST_PERSON_ID + self._last_person(event_id)
        return Person(person_id, name, email, card, city, state, self.settings.event_ms(event_id), extra)

    def _auction(self, event_id: int, random: Random) -> Auction:
        settings = self.settings
        if random.randrange(settings.hot_seller_ratio) > 0:
            seller = self._last_person(event_id) // HOT_EVERY * HOT_EVERY
        else:
            seller = self._any_person(event_id, random)
        category = FIRST_CATEGORY_ID + random.randrange(CATEGORIES)
        initial_bid = _price(random)
        opened_ms = settings.event_ms(event_id)
        expires_ms = opened_ms + 1 + random.randrange(max(2 * settings.horizon_ms(event_id), 1))
        name, description = _word(random, 20), _word(random, 100)
        reserve = initial_bid + _price(random)
        extra = self._extra(random, 48 + len(name) + len(description), settings.auction_bytes)
        return Auction(
            FIRST_AUCTION_ID + self._last_auction(event_id),
            name,
            description,
            initial_bid,
            reserve,
            opened_ms,
            expires_ms,
            FIRST_PERSON_ID + seller,
            category,
            extra,
        )

    def _bid(self, event_id: int, random: Random) -> Bid:
        settings = self.settings
        if random.randrange(settings.hot_auction_ratio) > 0:
            auction = self._last_auction(event_id) // HOT_EVERY * HOT_EVERY
        else:
            auction = self._any_auction(event_id, random)
        if random.randrange(settings.hot_bidder_ratio) > 0:
            # The second of the hundred: the first is their hot seller.
            bidder = self._last_person(event_id) // HOT_EVERY * HOT_EVERY + 1
        else:
            bidder = self._any_person(event_id, random)
        price = _price(random)
        channel, url = self._channel(random)
        extra = self._extra(random, 32, settings.bid_bytes)
        event_ms = settings.event_ms(event_id)
        return Bid(FIRST_AUCTION_ID + auction, FIRST_PERSON_ID + bidder, price, channel, url, event_ms, extra)

    def _last_person(self, event_id: int) -> int:
        """How many persons came before the newest one at this event, itself included if it is one."""
        epoch, place = divmod(event_id, self.settings.cycle)
        return epoch * self.settings.persons + min(place, self.settings.persons - 1)

    def _last_auction(self, event_id: int) -> int:
        """The same for auctions; only asked for auctions and bids, so there is one."""
        settings = self.settings
        epoch, place = divmod(event_id, settings.cycle)
        return epoch * settings.auctions + min(place - settings.persons, settings.auctions - 1)

    def _any_person(self, event_id: int, random: Random) -> int:
        persons = self._last_person(event_id) + 1
        active = min(persons, self.settings.active_persons)
        return persons - active + random.randrange(active + PERSON_ID_LEAD)

    def _any_auction(self, event_id: int, random: Random) -> int:
        newest = self._last_auction(event_id)
        oldest = max(newest - self.settings.in_flight_auctions, 0)
        return oldest + random.randrange(newest - oldest + 1 + AUCTION_ID_LEAD)

    def _channel(self, random: Random) -> tuple[str, str]:
        """A channel, and the address that it always has under this seed."""
        if random.randrange(2) > 0:
            hot = random.randrange(len(HOT_CHANNELS))
            return HOT_CHANNELS[hot], _base_url(Random(self._seed_of(-1 - hot)))
        number = random.randrange(CHANNELS)
        of_channel = Random(self._seed_of(-1 - len(HOT_CHANNELS) - number))
        url = _base_url(of_channel)
        if of_channel.randrange(10) > 0:
            url += f"&channel_id={_reversed_bits(number)}"
        return f"channel-{number}", url

    def _extra(self, random: Random, size: int, mean_size: int) -> str:
        """Letters that bring a row of this size to its mean size, give or take a fifth of what is missing."""
        missing = mean_size - size
        if missing < 0:
            return ""
        delta = math.floor(missing * 0.2 + 0.5)
        chars = missing - delta + (random.randrange(2 * delta) if delta else 0)
        repeated = self._filler * (1 + 2 * chars // _FILLER_CHARS)
        start = random.randrange(len(repeated) - chars)
        return repeated[start : start + chars]

    def _seed_of(self, stream: int) -> int:
        """A seed for each event (from 1), for the filler (0) and for each channel (below), apart from all others."""
        return (self.settings.seed << 64) + (stream % (1 << 64))


def _price(random: Random) -> int:
    """Cents: between 1 and a million dollars, each magnitude as likely."""
    return math.floor(math.pow(10.0, random.random() * 6.0) * 100.0 + 0.5)


def _word(random: Random, below: int, special: str = " ") -> str:
    chars = 3 + random.randrange(below - 3)
    picked = (special if random.randrange(13) == 0 else random.choice(ascii_lowercase) for _ in range(chars))
    return "".join(picked).strip()


def _base_url(random: Random) -> str:
    folders = "/".join(_word(random, 5, "_") for _ in range(3))
    return f"https://www.nexmark.com/{folders}/item.htm?query=1"


def _reversed_bits(number: int) -> int:
    """The magnitude of a 32-bit number whose bits are those of `number` read backwards."""
    backwards = int(f"{number:032b}"[::-1], 2)
    return min(backwards, (1 << 32) - backwards)
