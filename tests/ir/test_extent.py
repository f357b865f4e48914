"""Extents as users write them: read, written back in one form, solved for their name."""

from __future__ import annotations

import pytest

from byoc.extent import Extent, parse_extent


@pytest.mark.parametrize(
    ("text", "extent", "form"),
    [
        ("h", Extent("h"), "h"),
        ("_h1", Extent("_h1"), "_h1"),
        ("32*h", Extent("h", 32), "32*h"),
        (" 32 * h ", Extent("h", 32), "32*h"),
        ("h*32", Extent("h", 32), "32*h"),
        ("1*h", Extent("h"), "h"),
        ("32*h+16", Extent("h", 32, 16), "32*h+16"),
        ("2*h - 1", Extent("h", 2, -1), "2*h-1"),
        ("h + 0", Extent("h"), "h"),
        ("past + new", Extent("past", others=("new",)), "past+new"),
    ],
)
def test_reading(text: str, extent: Extent, form: str) -> None:
    assert parse_extent(text) == extent
    assert str(extent) == form
    assert parse_extent(form) == extent


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "is neither a name nor a multiple of one") for text in (
            "", "32", "1.5", "-h", "-2*h", "h*w", "2*h*3", "2h", "h h", "h/2", "h//2", "2*(h+1)",
            "h^2", "h+2*w", "größe", "*h", "2*", "h+", "h;w", "0x2*h",
        )),
        ("0*h", "'0*h' is 0 where h is 1"),
        ("h-1", "'h-1' is 0 where h is 1"),
        ("32*h-32", "'32*h-32' is 0 where h is 1"),
        ("2*h-5", "'2*h-5' is -3 where h is 1"),
    ],
)  # fmt: skip
def test_what_is_no_extent(text: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_extent(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_solving() -> None:
    extent = Extent("h", 32, 16)
    assert [extent.solve(n) for n in (48, 80, 16, 0, 47, 49, -16)] == [1, 2, 0, *[None] * 4]
    assert extent.nearest(100) == [80, 112]
    assert extent.nearest(10) == [48]
    assert all(extent.solve(extent.at(n)) == n for n in range(1, 20))
    assert Extent("n").solve(0) == 0


def test_sums() -> None:
    extent = parse_extent("past+new")
    assert (extent.names, extent.at(3), extent.within({"past": 4, "new": 2})) == (
        ("past", "new"),
        6,
        6,
    )
