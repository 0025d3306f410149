"""The simulation itself, small: the table is made by the program."""

from tests.bench.judge import JUDGES, PAGE, simulate, table


def test_equal_versions_are_rarely_stopped_and_bad_ones_caught() -> None:
    make = JUDGES["this judge"]
    assert simulate(make, 1.0, runs=200).stopped <= 0.02
    assert simulate(make, 3.0, runs=50).stopped == 1.0


def test_the_table_in_the_documentation_is_of_this_program() -> None:
    head = table(runs=1).splitlines()[2]
    assert head in PAGE.read_text(encoding="utf-8")
