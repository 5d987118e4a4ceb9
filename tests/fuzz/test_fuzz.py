"""Some damaged files of every format; `make fuzz` has many more."""

from fuzz.harness import fuzz


def test_damaged_files_are_refused_in_a_sentence():
    outcomes, failures = fuzz(700, first=0, processes=1)
    assert failures == {}
    assert outcomes.total() == 700
    for what, least in (("read", 100), ("refused", 300)):
        assert sum(count for (_, outcome), count in outcomes.items() if outcome == what) > least
