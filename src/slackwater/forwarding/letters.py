"""What travels: a scheduler's words with its name and the time, decoded strictly and within bounds."""

from __future__ import annotations

import msgspec

from slackwater.core.words import Heard, Words, nonsense

FORMAT = 1
LARGEST_LETTER_BYTES = 256 * 1024
_CLOCKS_AGREE_S = 2.0


class Letter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The words of one application at a time of its own clock."""

    format: int = FORMAT
    application_id: str
    sent_wall_ts: float
    words: Words


class UnusableLetterError(ValueError):
    """A letter that is not heeded, and why."""


encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(Letter).decode


def opened(raw: bytes, now_wall_ts: float, stale_after_s: float, receiver_id: str) -> Letter:
    """The letter, if its receiver can heed it."""
    if len(raw) > LARGEST_LETTER_BYTES:
        raise UnusableLetterError(f"it has {len(raw)} bytes; {LARGEST_LETTER_BYTES} are the most")
    try:
        letter = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnusableLetterError(f"it cannot be read: {error}") from error
    if letter.format != FORMAT:
        raise UnusableLetterError(
            f"it has the format {letter.format}, not {FORMAT}: use the same version on both sides"
        )
    if letter.application_id == receiver_id:
        raise UnusableLetterError("it is our own")
    ahead_s = letter.sent_wall_ts - now_wall_ts
    if ahead_s > _CLOCKS_AGREE_S:
        raise UnusableLetterError(f"it comes from {ahead_s:.1f} s ahead: the clocks of chained hosts must agree")
    if -ahead_s > stale_after_s:
        raise UnusableLetterError(f"it is {-ahead_s:.1f} s old: a slow network, or clocks that do not agree")
    wrong = nonsense(letter.words, now_wall_ts)
    if wrong is not None:
        raise UnusableLetterError(wrong)
    return letter


def counted(letter: Letter, stale_after_s: float) -> Heard:
    return Heard(letter.words, letter.sent_wall_ts + stale_after_s)
