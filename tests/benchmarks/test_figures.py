"""Medians, spreads, ratios of rounds, and targets."""

import pytest

from reporting.figures import GO, NSQFAST, Verdict, ratio, spread, verdicts
from reporting.records import Row, Target


def make_row(targets=(), **samples):
    return Row("MPUB", "nsqfast-bench", "memory", "throughput", 0, tuple(targets), samples)


def rates(*values):
    return [None if value is None else {"rate": value} for value in values]


def test_spread_of_an_even_number_of_rounds():
    assert spread(make_row(nsqfast=rates(3, 10)), NSQFAST, "rate").median == 6.5


def test_rounds_without_a_figure_do_not_count():
    row = make_row(nsqfast=rates(None, 4, 8))
    assert spread(row, NSQFAST, "rate").low == 4
    assert spread(row, NSQFAST, "p50_us") is None
    assert spread(row, GO, "rate") is None


def test_ratio_is_the_median_of_the_rounds_and_not_the_ratio_of_medians():
    # Medians are 20 and 10; round by round it is 10, 1 and 4.
    row = make_row(nsqfast=rates(100, 10, 20), go=rates(10, 10, 5))
    assert ratio(row, "rate") == 4


def test_ratio_needs_both_of_a_round():
    row = make_row(nsqfast=rates(None, 10, 30), go=rates(10, None, 10))
    assert ratio(row, "rate") == 3
    assert ratio(make_row(nsqfast=rates(1)), "rate") is None
    assert ratio(make_row(nsqfast=rates(1, 9), go=rates(0, 3)), "rate") == 3


@pytest.mark.parametrize(
    ("relation", "below", "equal", "above"),
    [(">=", False, True, True), ("<=", True, True, False), ("<", True, False, False)],
)
def test_relations(relation, below, equal, above):
    target = Target("rate", relation, 2.0, is_ratio=True)
    found = [Verdict(make_row(), target, measured).is_met for measured in (1.9, 2.0, 2.1)]
    assert found == [below, equal, above]


def test_what_was_not_measured_is_neither_met_nor_missed():
    (verdict,) = verdicts(make_row([Target("rate", ">=", 2.0, is_ratio=True)], nsqfast=rates(9)))
    assert verdict.measured is None
    assert verdict.is_met is None


def test_a_bound_of_its_own_does_not_ask_for_go():
    (verdict,) = verdicts(make_row([Target("rate", "<=", 270, is_ratio=False)], nsqfast=rates(297)))
    assert verdict.is_met is False
    assert verdict.miss == pytest.approx(0.1)
