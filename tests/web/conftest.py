"""A browser and a service for all the tests of the page, and a page of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from service.settings import Settings
from tests.service.api.conftest import TINY
from tests.web.browser import CHROMIUM, PATIENCE, chromium, serving


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here: install Debian's chromium, or another build of it, to test the page")
    expect.set_options(timeout=PATIENCE)
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with serving(Settings(model=TINY, workers=2)) as started:
        yield started


@pytest.fixture(scope="session")
def api(address: str) -> Iterator[httpx2.Client]:
    """The same service, asked without a browser."""
    with httpx2.Client(base_url=address, timeout=60) as client:
        yield client


@dataclass(frozen=True)
class Window:
    """A window of the browser, and what went wrong in it."""

    page: Page
    wrong: list[str]


@pytest.fixture(scope="session")
def window(browser: Browser, address: str) -> Window:
    """One for all tests: opening one takes seconds on a busy machine, and each test loads the page anew."""
    context = browser.new_context(accept_downloads=True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    # A status of 4xx is in the console too: the tests that cause one look at what the page makes of it.
    page.on("console", lambda said: wrong.append(said.text) if "Failed to load resource" not in said.text else None)
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith((address, "blob:")) else None)
    return Window(page, wrong)


@pytest.fixture
def page(window: Window, address: str) -> Iterator[Page]:
    """The page, ready. A test fails if anything went wrong in it unseen, or if it asked for anything elsewhere."""
    window.wrong.clear()
    window.page.goto(address)
    expect(window.page.locator("#model")).to_contain_text("dimensions")
    yield window.page
    window.page.unroute_all()
    assert window.page.url == address, "what is typed must not be in the address"
    assert not window.wrong
