"""Draw the demo's picture: ``python -m models.draw_text_line`` (DejaVu Sans must be installed)."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

TEXT = "Bring your own kernels 2026"
PICTURE = Path(__file__).with_name("text_line.png")
_FONT, _POINTS, _MARGIN = "DejaVuSans.ttf", 36, 12


def draw(text: str = TEXT) -> Image.Image:
    """Dark text on light paper, as wide as the text."""
    font = ImageFont.truetype(_FONT, _POINTS)
    left, top, right, bottom = font.getbbox(text)
    size = (right - left + 2 * _MARGIN, bottom - top + 2 * _MARGIN)
    picture = Image.new("RGB", size, (246, 244, 238))
    origin = (_MARGIN - left, _MARGIN - top)
    ImageDraw.Draw(picture).text(origin, text, font=font, fill=(32, 36, 48))
    return picture


if __name__ == "__main__":
    draw().save(PICTURE, optimize=True)
    print(f"{PICTURE}: {TEXT!r}")
