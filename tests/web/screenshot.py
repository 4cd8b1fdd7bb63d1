"""Makes docs/playground.png, the picture of the page in the README: python -m tests.web.screenshot

It looks as it should where Debian's fonts-inter, fonts-texgyre and fonts-noto-color-emoji are installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import expect

from service.settings import Settings
from tests.web.browser import PATIENCE, chromium, serving

PICTURE = Path(__file__).parents[2] / "docs" / "playground.png"


def main() -> None:
    """Write an example into the page and take its picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="folder of the model; unset: the default one")
    model = parser.parse_args().model
    expect.set_options(timeout=PATIENCE)
    with serving(Settings(port=0, **({"model": model} if model else {}))) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900}, device_scale_factor=1.5)
        page.goto(address)
        page.get_by_role("button", name="Long review").click()
        page.locator("#view").get_by_text("Sentences").click()
        expect(page.locator("#marked .sentence").first).to_be_visible()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        page.mouse.move(0, 0)
        page.screenshot(path=PICTURE, animations="disabled", full_page=True)


if __name__ == "__main__":
    main()
