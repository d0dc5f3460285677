"""The journal: on disk before anything changes, one owner at a time, and never believed when it is damaged."""

from __future__ import annotations

import json

import pytest

from slackwater.errors import EnforcementError
from slackwater.translators.journal import Entries, Journal, MadeGroup, NicedThread

ENTRIES = Entries(niced_threads=(NicedThread(1, 2, 3, -4),), groups=(MadeGroup("/sys/x", "/sys"),))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "journal.json"


@pytest.fixture
def written(path):
    journal = Journal.open(path)
    journal.update(lambda _: ENTRIES)
    journal.close()
    return path


def test_what_was_written_is_there_after_opening_again(written):
    journal = Journal.open(written)
    assert journal.entries == ENTRIES
    assert written.stat().st_mode & 0o777 == 0o600
    journal.update(lambda _: Entries())
    assert not written.exists()
    journal.update(lambda _: Entries())


def test_a_second_owner_is_refused_until_the_first_lets_go(path):
    first = Journal.open(path)
    with pytest.raises(EnforcementError, match="in use"):
        Journal.open(path)
    first.close()
    first.close()
    Journal.open(path).close()
    with pytest.raises(EnforcementError, match="closed"):
        first.update(lambda _: ENTRIES)


def test_every_flipped_byte_is_noticed(written):
    content = written.read_bytes()
    for place in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 0x01
        written.write_bytes(bytes(damaged))
        try:
            journal = Journal.open(written)
        except EnforcementError as error:
            assert "Nothing was changed" in str(error)  # noqa: PT017 - some flips only change the boot's name
        else:
            assert journal.entries in (ENTRIES, Entries())
            journal.close()


def test_half_a_file_is_refused_with_what_to_do(written):
    written.write_bytes(written.read_bytes()[:-20])
    with pytest.raises(EnforcementError, match=r"damaged.*remove the file"):
        Journal.open(written)


def test_a_later_format_is_refused(written):
    file = json.loads(written.read_text())
    written.write_text(json.dumps(file | {"format": 99}))
    with pytest.raises(EnforcementError, match="newer version"):
        Journal.open(written)


def test_a_journal_that_others_can_write_is_refused(written):
    written.chmod(0o666)
    with pytest.raises(EnforcementError, match="somebody else"):
        Journal.open(written)


def test_a_write_that_does_not_finish_leaves_the_old_one(written):
    written.with_name("journal.json.new").write_text("half of a wri")
    journal = Journal.open(written)
    assert journal.entries == ENTRIES
    journal.update(lambda entries: Entries(groups=entries.groups))
    journal.close()
    assert Journal.open(written).entries == Entries(groups=ENTRIES.groups)
