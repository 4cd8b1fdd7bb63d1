"""The page in a browser: one text, two texts, and what it says when something is wrong."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from ast import literal_eval
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect
from pydantic import SecretStr

from service.settings import Settings
from tests.service.api.conftest import TINY
from tests.web.browser import PATIENCE, serving

TEXT = (
    "The plot is thin &amp; slow 😡 but I don’t mind: café <b>é</b>!\nAn excellent end. \U0001f469\u200d\U0001f680 So!"
)


def ask(api: httpx2.Client, path: str, inputs: str | list[str]) -> dict[str, Any]:
    response = api.post(path, json={"inputs": inputs})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def settled(page: Page) -> None:
    """Everything asked for is there."""
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def write(page: Page, text: str) -> None:
    page.get_by_label("Your text").fill(text)
    expect(page.locator("#marked .text")).to_be_visible()
    settled(page)


def marked(page: Page, selector: str) -> list[str]:
    """The texts of marked parts, without the numbers and shapes that the page adds."""
    script = """(all) => all.map((one) => {
        const copy = one.cloneNode(true);
        copy.querySelectorAll("rt, .glyph").forEach((added) => added.remove());
        return copy.textContent;
    })"""
    found: list[str] = page.locator(selector).evaluate_all(script)
    return found


def percent(locator: Locator) -> float:
    return float(locator.inner_text().replace("\u00a0%", "")) / 100


def test_what_is_typed_is_answered_as_the_api_answers(page: Page, api: httpx2.Client) -> None:
    (result,) = ask(api, "classify", TEXT)["results"]
    write(page, TEXT)
    expect(page.locator(".label")).to_contain_text(result["label"])
    shown = dict(zip(page.locator(".bars .name").all_inner_texts(), page.locator(".bars .number").all(), strict=True))
    assert list(shown) == list(result["scores"])
    for label, score in result["scores"].items():
        assert percent(shown[label]) == pytest.approx(score, abs=0.006)
    valence = page.locator("#result .scale strong").inner_text().replace("−", "-")
    assert float(valence) == pytest.approx(result["valence"], abs=0.006)
    expect(page.locator("#spoken")).to_contain_text(result["label"])
    expect(page.locator("#result")).to_contain_text(f"{result['tokens']} tokens")


def test_words_are_marked_where_they_stand(page: Page, api: httpx2.Client) -> None:
    (explained,) = ask(api, "explain", TEXT)["results"]
    write(page, TEXT)
    assert marked(page, "#marked .text") == [TEXT]
    assert marked(page, "#marked .text .word") == [word["word"] for word in explained["words"]]
    titles = page.locator("#marked .text .word").evaluate_all("(all) => all.map((one) => one.title)")
    sides = page.locator("#marked .text .word").evaluate_all("(all) => all.map((one) => one.classList.contains('for'))")
    for word, title, supports in zip(explained["words"], titles, sides, strict=True):
        assert float(title.split()[0].replace("−", "-")) == pytest.approx(word["effect"] * 100, abs=0.06)
        assert supports == (word["effect"] >= 0)
    assert page.locator(".numbers tbody tr").count() == len(explained["words"])


def test_sentences_are_marked_where_they_stand(page: Page, api: httpx2.Client) -> None:
    (result,) = ask(api, "classify?detail=sentences", TEXT)["results"]
    write(page, TEXT)
    page.get_by_role("radio", name="Words").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#marked .text .sentence")).to_have_count(len(result["sentences"]))
    settled(page)
    assert marked(page, "#marked .text") == [TEXT]
    assert marked(page, "#marked .text .sentence") == [TEXT[s["start"] : s["end"]] for s in result["sentences"]]
    for shown, part in zip(page.locator("#marked .text .sentence").all(), result["sentences"], strict=True):
        assert (shown.get_attribute("title") or "").startswith(part["label"])


def test_a_text_with_too_many_words_shows_its_sentences(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    write(page, "The film was great . " * 50)
    expect(page.locator("#note")).to_contain_text("up to 200 words; this one has 250. Sentences are shown instead.")
    expect(page.locator("#marked .text .sentence")).to_have_count(50)
    assert not [url for url in asked if "explain" in url]


def test_a_text_with_too_many_sentences_still_has_its_label(page: Page) -> None:
    page.get_by_label("Your text").fill("No! " * 300)
    expect(page.locator("#note")).to_contain_text("The text has 300 sentences; 256 are allowed.")
    expect(page.locator(".label")).to_be_visible()


def test_markup_is_text(page: Page) -> None:
    text = '<img src="x" onerror="alert(1)"><script>alert(2)</script>'
    write(page, text)
    assert marked(page, "#marked .text") == [text]
    assert page.locator("main :is(img, script)").count() == 0


def test_an_error_is_said_in_words(page: Page) -> None:
    for text, said in {"a\0b": "NUL", "\u200b": "text is empty", "a" * 100_001: "100000"}.items():
        page.get_by_label("Your text").evaluate("(area, text) => { area.value = text; }", text)
        page.get_by_label("Your text").dispatch_event("input")
        expect(page.get_by_role("alert").filter(has_text=said)).to_be_visible()
        settled(page)


def test_an_emptied_text_leaves_nothing_behind(page: Page) -> None:
    write(page, TEXT)
    page.get_by_label("Your text").fill("")
    expect(page.locator("#result")).to_contain_text("Type something")
    expect(page.locator("#reading")).to_be_hidden()


def test_an_answer_to_an_older_text_is_never_shown(page: Page) -> None:
    held: list[Route] = []
    page.route("**/classify", lambda route: route.fallback() if held else held.append(route))
    with page.expect_request("**/classify"):
        page.get_by_label("Your text").fill("An older text")
    write(page, "a newer text was great")
    before = page.locator("#result").inner_text()
    assert held[0].request.failure, "the older request should have been given up"
    assert page.locator("#result").inner_text() == before


def test_a_full_service_is_waited_for_as_long_as_it_asks(page: Page) -> None:
    times = 0

    def full(route: Route) -> None:
        nonlocal times
        times += 1
        body = json.dumps({"error": {"code": "overloaded", "message": "full"}})
        route.fulfill(status=429, headers={"retry-after": "1", "content-type": "application/json"}, body=body)

    page.route("**/classify", full, times=2)
    page.get_by_label("Your text").fill(TEXT)
    expect(page.locator("#result")).to_contain_text("The service is busy. Trying again in 1 s")
    expect(page.locator(".label")).to_be_visible()
    assert times == 2


def test_a_service_that_is_gone_is_said_and_one_that_is_back_is_used(page: Page) -> None:
    page.route("**/classify", lambda route: route.abort())
    page.get_by_label("Your text").fill(TEXT)
    expect(page.get_by_role("alert").filter(has_text="cannot be reached")).to_be_visible()
    page.unroute("**/classify")
    page.get_by_label("Your text").press("Control+Enter")
    expect(page.locator(".label")).to_be_visible()


def test_the_page_waits_for_a_service_that_is_not_ready(page: Page) -> None:
    body = json.dumps({"error": {"code": "unavailable", "message": "the model is being loaded"}})
    page.route("**/info", lambda route: route.fulfill(status=503, body=body), times=1)
    page.reload()
    expect(page.locator("#model")).to_have_text("The model is being loaded.")
    page.get_by_label("Your text").fill(TEXT)
    expect(page.locator("#model")).to_contain_text("dimensions")
    expect(page.locator(".label")).to_be_visible()


def test_an_example_is_a_click_away(page: Page) -> None:
    page.get_by_role("button", name="Praise").click()
    expect(page.get_by_label("Your text")).to_have_value("I laughed, I cried, and I would see it again tomorrow.")
    expect(page.locator(".label")).to_be_visible()


def test_two_texts_are_compared_by_cosine(page: Page, api: httpx2.Client) -> None:
    texts = ["The soup was cold.", "The soup was great 😊."]
    page.get_by_role("tab", name="Two texts").click()
    page.get_by_label("One text").last.fill(texts[0])
    page.get_by_label("Another text").fill(texts[1])
    expect(page.locator(".pool")).to_have_count(2)
    settled(page)
    for shown, pool in zip(page.locator(".pool strong").all(), ("mean", "cls"), strict=True):
        first, second = ask(api, f"embed?pool={pool}", texts)["embeddings"]
        dot = sum(a * b for a, b in zip(first, second, strict=True))
        cosine = dot / math.sqrt(sum(a * a for a in first) * sum(b * b for b in second))
        assert float(shown.inner_text().replace("−", "-")) == pytest.approx(cosine, abs=0.006)


NASTY = "It's \"quoted\" \\ $HOME `id` !! %s {x}\n\ttab, é 😡 ' done"


def test_the_request_shown_asks_for_the_same(page: Page, api: httpx2.Client) -> None:
    write(page, NASTY)
    panel = page.locator("#text-request")
    panel.locator("summary").click()
    kind, language = panel.get_by_role("combobox").all()
    for chosen, path in {"Label": "classify", "Sentences": "classify?detail=sentences", "Words": "explain"}.items():
        expected = ask(api, path, NASTY)
        kind.select_option(chosen)
        language.select_option("curl")
        shell = panel.locator("code").inner_text().replace("curl ", "curl -sS ", 1)
        assert json.loads(output("bash", "-c", shell)) == expected
        language.select_option("Python")
        assert literal_eval(output(sys.executable, "-c", panel.locator("code").inner_text())) == expected


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_request_is_copied_or_selected(page: Page) -> None:
    page.get_by_role("tab", name="Two texts").click()
    page.get_by_role("button", name="Same matter, same feeling").click()
    panel = page.locator("#compare-request")
    panel.locator("summary").click()
    panel.get_by_role("combobox").first.select_option("cls")
    code = panel.locator("code").inner_text()
    assert "/embed?pool=cls&normalize=true" in code
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel.get_by_role("button", name="Copy").click()
    expect(panel.get_by_role("status")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == code
    # As in every page that came over plain HTTP from another machine.
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    panel.get_by_role("button", name="Copy").click()
    expect(panel.get_by_role("status")).to_contain_text("Selected")
    assert page.evaluate("getSelection().toString()") == code


def test_a_key_is_asked_for_where_the_service_wants_one_and_kept_nowhere(browser: Browser) -> None:
    with serving(Settings(model=TINY, workers=1, api_keys=SecretStr("the-key"))) as address:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        field = page.get_by_label("This service asks for a key")
        expect(field).to_be_focused()
        expect(page.locator("#key-problem")).to_be_hidden()
        field.fill("another")
        field.press("Enter")
        expect(page.locator("#key-problem")).to_be_visible()
        field.fill("the-key")
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("#model")).to_contain_text("dimensions")
        expect(page.locator("#key")).to_be_hidden()
        write(page, "It was good.")
        expect(page.locator(".label")).to_be_visible()
        assert page.url == address
        kept = (
            "[document.cookie, localStorage.length, sessionStorage.length, document.body.innerHTML.includes('the-key')]"
        )
        assert page.evaluate(kept) == ["", 0, 0, False]
        page.close()
