"""How numbers read."""

import pytest

from nsqfast.nsqadmin.web import texts


@pytest.mark.parametrize(
    ("number", "shown"),
    [(None, "–"), (0, "0"), (184_201, "184,201"), (10**7, "10,000,000"), (2**53, "9,007 T")],
)
def test_count(number, shown):
    assert texts.count(number) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (None, "–"),
        (0, "0"),
        (999_999, "999,999"),
        (1_840_000, "1.84 M"),
        (88_000_000, "88 M"),
        (999_999_999, "1 G"),
        (12_300_000_000, "12.3 G"),
        (2 * 10**15, "2,000 T"),
    ],
)
def test_short(number, shown):
    assert texts.short(number) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (None, "–"),
        (0.0, "0/s"),
        (0.04, "0/s"),
        (0.4, "0.4/s"),
        (9.96, "10/s"),
        (4020.6, "4,021/s"),
        (1.23e6, "1.23 M/s"),
    ],
)
def test_rate(number, shown):
    assert texts.rate(number) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(None, "–"), (0.0, "0/s"), (1240.0, "+1,240/s"), (-3.0, "-3/s")]
)
def test_slope(number, shown):
    assert texts.slope(number) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (None, "–"),
        (0, "0 B"),
        (1023, "1023 B"),
        (12_800 << 10, "12.5 MiB"),
        (1023 << 20, "1023 MiB"),
    ],
)
def test_size(number, shown):
    assert texts.size(number) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (0.4, "0 s"),
        (42, "42 s"),
        (60, "1 min"),
        (840, "14 min"),
        (3600, "1 h"),
        (11_520, "3 h 12 min"),
        (86_400, "1 d"),
        (183_600, "2 d 3 h"),
        (-5, "0 s"),
    ],
)
def test_duration(seconds, shown):
    assert texts.duration(seconds) == shown


def test_an_age_says_when_it_is_a_minimum():
    assert texts.age(86_400, is_minimum=True) == "≥ 1 d"
    assert texts.age(None, is_minimum=True) == "–"
    assert texts.age(60) == "1 min"


@pytest.mark.parametrize(("number", "shown"), [(1, "1 node"), (2, "2 nodes"), (0, "0 nodes")])
def test_plural(number, shown):
    assert texts.plural(number, "node") == shown
