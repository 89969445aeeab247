"""How numbers read."""

import pytest

from nsqfast.nsqadmin.web import texts

SHOWN = {
    texts.count: [(0, "0"), (184_201, "184,201"), (10**7, "10,000,000"), (2**53, "9,007 T")],
    texts.short: [
        (0, "0"),
        (999_999, "999,999"),
        (1_840_000, "1.84 M"),
        (88_000_000, "88 M"),
        (999_999_999, "1 G"),
        (12_300_000_000, "12.3 G"),
        (2 * 10**15, "2,000 T"),
    ],
    texts.rate: [
        (0.0, "0/s"),
        (0.04, "0/s"),
        (0.4, "0.4/s"),
        (9.96, "10/s"),
        (4020.6, "4,021/s"),
        (1.23e6, "1.23 M/s"),
    ],
    texts.slope: [(0.0, "0/s"), (1240.0, "+1,240/s"), (-3.0, "-3/s")],
    texts.size: [
        (0, "0 B"),
        (1023, "1023 B"),
        (12_800 << 10, "12.5 MiB"),
        (1010 << 20, "1010 MiB"),
        (1 << 40, "1 TiB"),
    ],
    texts.duration: [
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
    texts.age: [(60, "1 min")],
}


@pytest.mark.parametrize("show", SHOWN, ids=lambda show: show.__name__)
def test_numbers(show):
    assert [show(number) for number, _ in SHOWN[show]] == [shown for _, shown in SHOWN[show]]
    assert show(None) == "–"


def test_an_age_may_be_a_minimum_and_one_node_is_no_plural():
    assert texts.age(86_400, is_minimum=True) == "≥ 1 d"
    assert texts.age(None, is_minimum=True) == "–"
    plurals = [texts.count_with_noun(number, "node") for number in range(3)]
    assert plurals == ["0 nodes", "1 node", "2 nodes"]
