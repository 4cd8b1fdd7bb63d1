"""The page for everyone: keyboard, screen reader, small screen, dark and light, and those who want nothing to move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Literal

import pytest
from playwright.sync_api import FilePayload, Page, expect

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
"""axe-core, which knows the rules of WCAG that a program can check: names, roles, contrast and the like."""

LONG = "good " + "x" * 200 + " https://example.org/" + "y" * 200


def words(page: Page) -> None:
    page.get_by_label("Your text").fill(f"It was an excellent ending, {LONG}")
    expect(page.locator("#marked .word").first).to_be_visible()
    page.get_by_text("All words as numbers").click()
    page.locator("#text-request summary").click()


def sentences(page: Page) -> None:
    page.get_by_label("Your text").fill(f"It was great. It was awful! The film is blue. {LONG}")
    page.locator("#view").get_by_text("Sentences").click()
    expect(page.locator("#marked .sentence").first).to_be_visible()
    page.get_by_text("All sentences as numbers").click()


def compare(page: Page) -> None:
    page.get_by_role("tab", name="Two texts").click()
    page.get_by_role("button", name="Same matter, other feeling").click()
    expect(page.locator(".pool")).to_have_count(2)
    page.locator("#compare-request summary").click()


def file(page: Page) -> None:
    page.get_by_role("tab", name="A file").click()
    body = f"text\ngood\n{LONG}\n\n".encode()
    page.locator("#chosen").set_input_files(FilePayload(name=f"{'n' * 90}.csv", mimeType="text/csv", buffer=body))
    page.get_by_role("button", name="Label 3 rows").click()
    expect(page.get_by_role("link", name="Download 3 rows")).to_be_visible()


def problem(page: Page) -> None:
    page.get_by_label("Your text").fill("\u200b")
    expect(page.get_by_role("alert").filter(has_text="empty")).to_be_visible()


def nothing(page: Page) -> None:
    expect(page.locator("#result")).to_contain_text("Type something")


SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
VIEWS = [nothing, words, sentences, compare, file, problem]


@pytest.fixture
def screen(page: Page) -> Iterator[Page]:
    """The page, back in its usual size and colours afterwards."""
    size = page.viewport_size
    yield page
    page.emulate_media(color_scheme=None, reduced_motion=None)
    if size:
        page.set_viewport_size(size)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_axe_finds_nothing_to_complain_of(screen: Page, view: Callable[[Page], None]) -> None:
    screen.emulate_media(reduced_motion="reduce")
    view(screen)
    expect(screen.locator("[aria-busy=true]")).to_have_count(0)
    screen.evaluate(AXE)
    for scheme in SCHEMES:
        screen.emulate_media(color_scheme=scheme)
        found = screen.evaluate("axe.run({ resultTypes: ['violations'] })")
        assert not [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found["violations"]]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_a_phone_shows_it_without_scrolling_sideways(screen: Page, view: Callable[[Page], None]) -> None:
    screen.set_viewport_size({"width": 360, "height": 640})
    view(screen)
    assert screen.evaluate("document.documentElement.scrollWidth") == 360


def test_the_keyboard_reaches_everything(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the playground")).to_be_focused()
    page.get_by_role("tab", name="One text").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("tab", name="A file")).to_be_focused()
    expect(page.locator("#file")).to_be_visible()
    expect(page.locator("#text")).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="One text")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Your text")).to_be_focused()
    page.keyboard.type("It was great.")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#marked .word").first).to_be_visible()
    for _ in range(6):
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Long review")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("radio", name="Words")).to_be_focused()


def test_focus_goes_where_the_work_is(page: Page) -> None:
    file(page)
    expect(page.get_by_role("link", name="Download 3 rows")).to_be_focused()


def test_an_answer_is_spoken_once_and_its_numbers_are_a_table(page: Page) -> None:
    words(page)
    expect(page.locator("#spoken")).to_contain_text("Valence")
    expect(page.locator("#spoken")).to_have_attribute("role", "status")
    expect(page.get_by_role("columnheader", name="Word")).to_be_visible()


def test_nothing_moves_for_those_who_ask_for_that(screen: Page) -> None:
    moving = "getComputedStyle(document.querySelector('.fill')).transitionDuration"
    screen.emulate_media(reduced_motion="no-preference")
    words(screen)
    assert screen.evaluate(moving) != "0s"
    screen.emulate_media(reduced_motion="reduce")
    assert screen.evaluate(moving) == "0s"


def test_dark_is_dark_and_light_is_light(screen: Page) -> None:
    paper = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    screen.emulate_media(color_scheme="dark")
    assert max(screen.evaluate(paper)) < 60
    screen.emulate_media(color_scheme="light")
    assert min(screen.evaluate(paper)) > 200
