"""What ``make sanitize`` runs is there: a file that moved would end the run at once."""

from __future__ import annotations

from tests.sanitizers.__main__ import GENERATED, KERNELS, QUICK, ROOT


def test_all_of_its_tests_exist() -> None:
    assert [name for name in {*GENERATED, KERNELS[0], QUICK[0]} if not (ROOT / name).exists()] == []
