"""A file labelled in the browser: cells stay as they were, and every row has its answer."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import FilePayload, Page, Route, expect

ADDED = ["label", "score", "negative", "neutral", "positive", "valence", "tokens", "truncated", "error"]

READ = """async (texts) => {
    const { decode } = await import("/assets/csv.js");
    return texts.map((text) => {
        try {
            return decode(new TextEncoder().encode(text));
        } catch (error) {
            return error.message;
        }
    });
}"""
WRITE = """async (tables) => {
    const { format } = await import("/assets/csv.js");
    return tables.map(([rows, dialect]) => format(rows, dialect));
}"""


def choose(page: Page, content: str | bytes, name: str = "reviews.csv") -> None:
    page.get_by_role("tab", name="A file").click()
    body = content if isinstance(content, bytes) else content.encode()
    page.locator("#chosen").set_input_files(FilePayload(name=name, mimeType="text/csv", buffer=body))


def label(page: Page, rows: int) -> None:
    page.get_by_role("button", name=f"Label {rows} row").click()


def download(page: Page, rows: int) -> tuple[str, bytes]:
    """The name and the bytes of what is downloaded."""
    link = page.get_by_role("link", name=f"Download {rows} row")
    expect(link).to_be_visible()
    with page.expect_download() as waiting:
        link.click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def parsed(text: str, delimiter: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


def many(rows: int) -> str:
    return "text\n" + "".join(f"the film number {i} was great\n" for i in range(rows))


def test_every_cell_comes_back_as_it_was_with_its_answer(page: Page, api: httpx2.Client) -> None:
    texts = ['The film, truly,\r\nwas "great" 😊', "=1+1", " a slow\nending ", "", "été", "@rude staff"]
    rows = [["id", "review", "note"], *([f"00{i}", text, "+49 30; x"] for i, text in enumerate(texts))]
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\r\n").writerows(rows)
    choose(page, b"\xef\xbb\xbf" + file.getvalue().encode())
    expect(page.get_by_role("combobox", name="Texts are in")).to_have_value("1")
    label(page, 6)
    name, content = download(page, 6)
    assert name == "reviews.labelled.csv"
    assert content.startswith(b"\xef\xbb\xbfid,review,note,label,")
    assert content.endswith(b"\r\n")
    labelled = parsed(content.decode("utf-8-sig"))
    assert [row[:3] for row in labelled] == rows
    assert labelled[0][3:] == ADDED
    results = api.post("/classify", json={"inputs": texts}).json()["results"]
    for row, result in zip(labelled[1:], results, strict=True):
        answer = dict(zip(ADDED, row[3:], strict=True))
        if "error" in result:
            assert answer == dict.fromkeys(ADDED, "") | {"error": result["error"]["message"]}
            continue
        assert (answer["label"], answer["error"], answer["truncated"]) == (result["label"], "", "false")
        assert float(answer["score"]) == result["score"]
        assert float(answer["valence"]) == result["valence"]
        assert {name: float(answer[name]) for name in result["scores"]} == result["scores"]
    expect(page.locator("#work")).to_contain_text("1 row with an error")


def test_semicolons_and_line_feeds_stay_and_a_column_called_label_too(page: Page) -> None:
    choose(page, "label;text\nx;the film, really\ny;great\n", "a.b.csv")
    label(page, 2)
    name, content = download(page, 2)
    assert name == "a.b.labelled.csv"
    assert b"\r" not in content
    labelled = parsed(content.decode(), ";")
    assert labelled[0] == ["label", "text", *(f"sentiment_{column}" for column in ADDED)]
    assert labelled[1][:2] == ["x", "the film, really"]


def test_a_column_is_picked(page: Page, api: httpx2.Client) -> None:
    choose(page, "short\tlonger\ngreat\tthis one is not read\n", "a.tsv")
    page.get_by_role("combobox", name="Texts are in").select_option("short")
    label(page, 1)
    name, content = download(page, 1)
    (result,) = api.post("/classify", json={"inputs": "great"}).json()["results"]
    assert name == "a.labelled.tsv"
    assert parsed(content.decode(), "\t")[1][3] == str(result["score"])


def test_a_file_can_be_dropped(page: Page) -> None:
    page.get_by_role("tab", name="A file").click()
    transfer = page.evaluate_handle("""() => {
        const transfer = new DataTransfer();
        transfer.items.add(new File(["text\\ngood\\n"], "dropped.csv"));
        return transfer;
    }""")
    page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})
    expect(page.locator("#work")).to_contain_text("dropped.csv: 1 row")


def test_what_is_no_table_is_refused_in_words(page: Page) -> None:
    for content, said in {
        b"text\ncaf\xe9\n": "not UTF-8",
        b"": "no header line",
        b"a,b\n1,2\n1,2,3\n": "Row 2 has 3 cells; the header has 2.",
        b'a,b\n1,2\n1,"2\n': "Row 2: a quoted cell is never closed.",
    }.items():
        choose(page, content)
        expect(page.get_by_role("alert").filter(has_text=said)).to_be_visible()
        expect(page.locator("#work")).to_be_hidden()


def test_a_stopped_run_keeps_what_is_done_and_goes_on(page: Page) -> None:
    held: list[Route] = []
    asked: list[list[str]] = []

    def hold_the_second(route: Route) -> None:
        asked.append(json.loads(route.request.post_data or "")["inputs"])
        if len(asked) == 2:
            held.append(route)
        else:
            route.fallback()

    page.route("**/classify", hold_the_second)
    choose(page, many(120))
    label(page, 120)
    expect(page.locator("#work progress")).to_have_js_property("value", 50)
    expect(page.locator("#work")).to_contain_text("50 of 120 rows")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#work")).to_contain_text("Stopped.")
    assert len(parsed(download(page, 50)[1].decode())) == 51
    page.get_by_role("button", name="Go on with 70 rows").click()
    labelled = parsed(download(page, 120)[1].decode())
    assert [row[0] for row in labelled[1:]] == [f"the film number {i} was great" for i in range(120)]
    assert all(row[1] for row in labelled)
    assert [len(texts) for texts in asked] == [50, 50, 50, 20]


def test_a_full_service_is_waited_for(page: Page) -> None:
    body = json.dumps({"error": {"code": "overloaded", "message": "full"}})
    page.route("**/classify", lambda route: route.fulfill(status=429, headers={"retry-after": "1"}, body=body), times=1)
    choose(page, many(3))
    label(page, 3)
    expect(page.locator("#work")).to_contain_text("The service is busy. Trying again in 1 s")
    assert len(parsed(download(page, 3)[1].decode())) == 4


def test_a_request_that_fails_as_a_whole_is_halved_until_the_text_at_fault_is_alone(page: Page) -> None:
    def slow(route: Route) -> None:
        texts = json.loads(route.request.post_data or "")["inputs"]
        if any("number 5 " in text for text in texts):
            route.fulfill(status=504, body=json.dumps({"error": {"code": "deadline_exceeded", "message": "too slow"}}))
        else:
            route.fallback()

    page.route("**/classify", slow)
    choose(page, many(12))
    label(page, 12)
    labelled = parsed(download(page, 12)[1].decode())
    assert [row[0] for row in labelled if row[-1]] == ["text", "the film number 5 was great"]


def test_a_column_of_empty_cells_is_answered_cell_by_cell(page: Page) -> None:
    choose(page, "id,text\n1,\n2,\n")
    page.get_by_role("combobox", name="Texts are in").select_option("text")
    label(page, 2)
    labelled = parsed(download(page, 2)[1].decode())
    assert all("empty" in row[-1] for row in labelled[1:])


def test_a_service_that_goes_away_is_said_and_nothing_is_lost(page: Page) -> None:
    choose(page, many(60))
    page.route("**/classify", lambda route: route.abort(), times=1)
    label(page, 60)
    expect(page.locator("#work")).to_contain_text("The service cannot be reached")
    label(page, 60)
    assert len(parsed(download(page, 60)[1].decode())) == 61


def test_tables_are_read_as_python_writes_them_and_written_as_python_reads_them(page: Page) -> None:
    random.seed(4180)
    alphabet = ["a", "é", "😡", " ", ",", ";", "\t", '"', '""', "\n", "\r\n", "\r", "'", "=", "\ufeff", "0"]
    tables: list[list[list[str]]] = []
    texts = []
    for i in range(300):
        width = random.randint(2, 4)
        cells = [["".join(random.choices(alphabet, k=random.randint(0, 6))) for _ in range(width)] for _ in range(5)]
        rows = [[f"column {j}" for j in range(width)], *cells]
        file = io.StringIO(newline="")
        csv.writer(
            file,
            delimiter=",;\t"[i % 3],
            lineterminator=["\r\n", "\n"][i % 2],
            # Python leaves a lone CR or LF bare unless lines end with it, which no other reader takes for a cell's.
            quoting=csv.QUOTE_ALL if i % 2 else csv.QUOTE_MINIMAL,
        ).writerows(rows)
        tables.append(rows)
        texts.append("\ufeff" * (i // 4 % 2) + file.getvalue())
    read: list[dict[str, Any]] = page.evaluate(READ, texts)
    assert [[table["header"], *table["rows"]] for table in read] == tables
    assert [table["dialect"] for table in read] == [
        {"delimiter": ",;\t"[i % 3], "newline": ["\r\n", "\n"][i % 2], "bom": bool(i // 4 % 2)} for i in range(300)
    ]
    written = page.evaluate(WRITE, [[rows, table["dialect"]] for rows, table in zip(tables, read, strict=True)])
    for text, rows, table in zip(written, tables, read, strict=True):
        assert (
            parsed(text.removeprefix("\ufeff") if table["dialect"]["bom"] else text, table["dialect"]["delimiter"])
            == rows
        )


def test_odd_but_common_tables_are_read(page: Page) -> None:
    tables = {
        "a,b\n1,2": [["a", "b"], ["1", "2"]],
        "a,b\r1,2\r": [["a", "b"], ["1", "2"]],
        "a,b\n1,2\n\n\n": [["a", "b"], ["1", "2"]],
        "a,b\n1,": [["a", "b"], ["1", ""]],
        'a,b\n5" disk,"x"': [["a", "b"], ['5" disk', "x"]],
        "a\nx\n\ny\n": [["a"], ["x"], [""], ["y"]],
        "a,b\n": [["a", "b"]],
    }
    read = page.evaluate(READ, list(tables))
    assert [[table["header"], *table["rows"]] for table in read] == list(tables.values())
