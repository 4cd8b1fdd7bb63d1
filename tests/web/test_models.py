"""The page over several models: one is chosen, and everything on the page asks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from service.settings import Settings
from tests.service.api.conftest import TINY
from tests.service.variants import OTHER_LABELS, variant
from tests.web.browser import PATIENCE, serving

TEXT = "the film is good"


@pytest.fixture(scope="module")
def several(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    other = variant(tmp_path_factory.mktemp("models") / "other")
    with serving(Settings(models=f"a={TINY},b={other}", workers=2)) as address:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        expect(page.locator("#model")).to_contain_text("a ·")
        yield page
        page.close()


def test_with_one_model_there_is_nothing_to_choose(page: Page) -> None:
    expect(page.locator("#choice option")).to_have_count(1)
    expect(page.get_by_role("combobox", name="Model")).to_be_hidden()


def test_what_is_written_is_read_again_by_the_model_chosen(several: Page) -> None:
    names = several.locator(".bars .name")
    several.get_by_label("Your text").fill(TEXT)
    expect(names).to_have_text(["negative", "neutral", "positive"])
    several.get_by_role("combobox", name="Model").select_option("b")
    expect(several.locator("#model")).to_contain_text("b ·")
    expect(names).to_have_text(OTHER_LABELS)
    several.get_by_text("The same from your own code").first.click()
    expect(several.locator("#text-request code")).to_contain_text("/classify?model=b")


def test_a_file_is_labelled_by_the_model_chosen_when_it_was_opened(several: Page, tmp_path: Path) -> None:
    file = tmp_path / "texts.csv"
    file.write_text(f"text\n{TEXT}\n")
    several.get_by_role("combobox", name="Model").select_option("b")
    expect(several.locator("#model")).to_contain_text("b ·")
    several.get_by_role("tab", name="A file").click()
    several.locator("#chosen").set_input_files(file)
    several.get_by_role("combobox", name="Model").select_option("a")
    expect(several.locator("#model")).to_contain_text("a ·")
    several.get_by_role("button", name="Label 1 row").click()
    with several.expect_download() as download:
        several.get_by_role("link", name="Download 1 row").click()
    header, row = download.value.path().read_text("utf-8").splitlines()
    assert header == "text,label,score,bad,plain,good,valence,tokens,truncated,error"
    assert row.split(",")[1] in OTHER_LABELS
