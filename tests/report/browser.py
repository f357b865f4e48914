"""Pages in a headless browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def open_page(browser: Any, text: str, file: Path) -> None:
    """Write a page and open it; nothing may be on the console."""
    file.write_text(text, encoding="utf-8")
    browser.get_log("browser")
    browser.get(file.as_uri())
    assert browser.get_log("browser") == []


def visible_text(browser: Any, selector: str) -> str:
    """The text of an element, which must be displayed."""
    element = browser.find_element("css selector", selector)
    assert element.is_displayed()
    return element.text
