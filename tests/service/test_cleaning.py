"""Clean-up: what each step does to a text, and the way back to the caller's own characters."""

import html
import json
import re
import unicodedata

import emoji
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.cleaning import _CONTROL, _LINK, LONGEST_RUN, STEPS, Cleaned, _runs, clean

ALL = tuple(STEPS)

FRAGMENTS = [
    *("&amp;", "&#39;", "&#x1F600;", "&notit;", "&", ";", "&#0;", "&#xD800;", "&#99999999;", "&nope;"),
    *("\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\u", "\\", "\\u002", "\\u0000"),
    *("https://a.b/c?d=e", "www.a.b", "http", "www.", "www...", "@", "@user", "@some_body", "a@b.c", "@@x"),
    *("\u2019", "\u201c", "\u2026", "'", '"'),
    *("\U0001f600", "\U0001f44d\U0001f3fd", "\U0001f3fd", "\u2764\ufe0f", "\U0001f468\u200d\U0001f469\u200d\U0001f467"),
    *("\U0001f1eb\U0001f1f7", "\U0001f1eb", "1\ufe0f\u20e3", "\u00a9", "\u200d", "\ufe0f"),
    *("\0", "\x07", "\x85", "\u200b", "\u202e", "\ufeff", "\u00ad", "\r\n", "\n", "\t", " ", "\u00a0", "\u2028"),
    *("e\u0301", "\u0301", "\u00df", "\u5b57", "\u0627\u0644", "word", "Ii", "0"),
]
ANY_TEXT = st.one_of(
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=3)), max_size=12).map("".join),
    st.text(alphabet=st.characters(), max_size=40),  # every code point, lone surrogates too
)
SOME_STEPS = st.lists(st.sampled_from(ALL), unique=True).map(tuple)


def run(text: str, *steps: str) -> str:
    return clean(text, steps or ALL).text


# What holds for every text


@given(text=ANY_TEXT, steps=SOME_STEPS)
def test_every_cleaned_character_stands_for_a_span_of_the_original_in_order(text: str, steps: tuple[str, ...]) -> None:
    cleaned = clean(text, steps)
    if cleaned.spans is None:
        assert cleaned.text == text
        return
    assert len(cleaned.spans) == len(cleaned.text)
    begins = [begin for begin, _ in cleaned.spans]
    ends = [end for _, end in cleaned.spans]
    assert all(0 <= begin < end <= len(text) for begin, end in cleaned.spans)
    assert begins == sorted(begins)
    assert ends == sorted(ends)


@given(text=ANY_TEXT)
@pytest.mark.parametrize(("step", "pattern"), [("links", _LINK), ("control", _CONTROL)])
def test_a_text_that_is_not_searched_holds_nothing_to_find(step: str, pattern: re.Pattern[str], text: str) -> None:
    assert len(list(STEPS[step](text))) == len(pattern.findall(text))


@given(text=ANY_TEXT, steps=SOME_STEPS)
def test_a_character_that_stands_for_one_other_is_that_character_or_a_replacement(
    text: str, steps: tuple[str, ...]
) -> None:
    """What no step has touched is found again at exactly its place."""
    cleaned = clean(text, steps)
    touched = re.compile(
        r"[&\\@\u2018-\u201f\u2026\u2032\u2033]|[^\w\s]|[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u206f\ufe00-\ufeff]"
    )
    for character, (begin, end) in zip(cleaned.text, cleaned.spans or (), strict=False):
        if end - begin == 1 and not touched.match(text[begin]) and text[begin] not in emoji.EMOJI_DATA:
            assert character == text[begin]


@given(text=ANY_TEXT)
def test_spans_of_the_original_are_found_for_every_part(text: str) -> None:
    cleaned = clean(text, ALL)
    for start in range(len(cleaned.text)):
        for end in range(start + 1, min(start + 4, len(cleaned.text)) + 1):
            begin, stop = cleaned.original(start, end)
            assert 0 <= begin < stop <= len(text)


@given(text=ANY_TEXT, step=st.sampled_from(["links", "handles", "quotes", "emoji", "control"]))
def test_a_step_finds_nothing_more_in_what_it_has_cleaned(text: str, step: str) -> None:
    """Entities and escapes are read once on purpose: `&amp;lt;` is how a text says `&lt;`."""
    once = clean(text, (step,)).text
    assert clean(once, (step,)) == Cleaned(once)


@given(text=ANY_TEXT)
def test_nothing_invisible_is_left(text: str) -> None:
    left = {c for c in run(text) if unicodedata.category(c) == "Cc"}
    assert left <= {"\t", "\n", "\r"}
    assert not re.search("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]", run(text))


@given(text=st.text(alphabet=st.characters(max_codepoint=127)), step=st.sampled_from(["quotes", "emoji"]))
def test_plain_text_has_neither_quotes_nor_emoji(text: str, step: str) -> None:
    """Both steps skip it unread: with a letter behind it that is not ASCII, they read it and find nothing."""
    assert clean(text, (step,)) == Cleaned(text)
    assert clean(text + "\u00e9", (step,)) == Cleaned(text + "\u00e9")


@given(text=ANY_TEXT)
@example(text="\\u0041&amp;@b")
def test_the_quick_look_that_skips_a_step_hides_nothing(text: str) -> None:
    for step, sign in (("html_entities", "&"), ("unicode_escapes", "\\u"), ("handles", "@")):
        if sign not in text:
            with_sign = clean(f"{text} {sign} ", (step,))
            assert with_sign.text.removesuffix(f" {sign} ") == clean(text, (step,)).text == text


@given(text=st.text(alphabet="abc \u00e9\u5b57.,!?-\n"))
def test_a_text_with_nothing_to_clean_costs_nothing(text: str) -> None:
    assert clean(text, ALL) == Cleaned(text, None)


def test_steps_are_applied_in_the_order_they_are_named() -> None:
    text = "&#64;someone"
    assert run(text, "html_entities", "handles") == "@user"
    assert run(text, "handles", "html_entities") == "@someone"
    assert clean(text, ()) == Cleaned(text)


def test_an_unknown_step_is_an_error() -> None:
    with pytest.raises(KeyError, match="nothing"):
        clean("text", ("nothing",))


# Each step


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fish &amp; chips", "fish & chips"),
        ("&lt;3 &#60;3 &#x3C;3 &#X3c;3", "<3 <3 <3 <3"),
        ("&amp;lt;", "&lt;"),
        ("don&#39;t &quot;go&quot;", 'don\'t "go"'),
        ("&eacute;&nbsp;&hellip;", "\u00e9\u00a0\u2026"),
        ("&#128514;", "\U0001f602"),
        ("&nosuchthing; & &; AT&T; &#; &#x;", "&nosuchthing; & &; AT&T; &#; &#x;"),
        ("&#0; &#xD800; &#x110000;", "\ufffd \ufffd \ufffd"),
        ("&amp", "&amp"),
        ("R&D &c.", "R&D &c."),
    ],
)
def test_entities(text: str, expected: str) -> None:
    assert run(text, "html_entities") == expected


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_what_was_escaped_for_a_page_is_read_back(text: str) -> None:
    assert run(html.escape(text), "html_entities") == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"caf\u00e9", "caf\u00e9"),
        (r"don\u2019t", "don\u2019t"),
        (r"\ud83d\ude00", "\U0001f600"),
        (r"\uD83D\uDE00", "\U0001f600"),
        (r"\ud83d alone, \ude00 too", r"\ud83d alone, \ude00 too"),
        (r"\ude00\ud83d", r"\ude00\ud83d"),
        (r"\ud83d\u0041", r"\ud83dA"),
        (r"C:\users \u12 \uxyzw", r"C:\users \u12 \uxyzw"),
        (r"\u0022\u005c", '"\\'),
    ],
)
def test_escapes(text: str, expected: str) -> None:
    assert run(text, "unicode_escapes") == expected


@given(text=st.text(alphabet=st.characters(min_codepoint=128, exclude_categories=["Cs"])))
def test_what_a_json_encoder_escaped_is_read_back(text: str) -> None:
    assert run(json.dumps(text)[1:-1], "unicode_escapes") == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://a.b/c?d=e#f now", "see http now"),
        ("HTTP://A.B and www.a.b and WWW.A.B", "http and http and http"),
        ('<a href="https://a.b">it</a>', '<a href="http">it</a>'),
        ("(www.a.b/c)", "(http"),
        ("http https:// httpd", "http https:// httpd"),
        ("Awww... so cute", "Awww... so cute"),
        ("www... www.", "www... www."),
        ("awww.yes", "awww.yes"),
    ],
)
def test_links(text: str, expected: str) -> None:
    assert run(text, "links") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@jack hi @Some_Body1!", "@user hi @user!"),
        ("@\u540d\u524d \u3068", "@user \u3068"),
        ('(@a) "@b" .@c', '(@user) "@user" .@c'),
        ("mail a.b@c.d or @", "mail a.b@c.d or @"),
        ("@user @users", "@user @user"),
        ("@@twice site/@path", "@@twice site/@path"),
    ],
)
def test_handles(text: str, expected: str) -> None:
    assert run(text, "handles") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it\u2019s \u2018so\u2019", "it's 'so'"),
        ("\u201cso\u201d \u201eso\u201f", '"so" "so"'),
        ("5\u2032 6\u2033", "5' 6\""),
        ("well\u2026", "well..."),
        ("\u00ab so \u00bb \u2014", "\u00ab so \u00bb \u2014"),
    ],
)
def test_quotes(text: str, expected: str) -> None:
    assert run(text, "quotes") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("good\U0001f600", "good grinning face "),
        ("\U0001f600\U0001f600\U0001f600", " grinning face "),
        ("\U0001f600 \U0001f600", " grinning face   grinning face "),
        ("\U0001f600\U0001f622\U0001f600", " grinning face  crying face  grinning face "),
        ("\U0001f44d\U0001f3fd", " thumbs up "),
        ("\U0001f44d\U0001f3fb\U0001f44d\U0001f3ff\U0001f44d", " thumbs up "),
        ("\u2764\ufe0f", " red heart "),
        ("\u2764", " red heart "),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", " family man woman girl "),
        ("\U0001f468\U0001f3fb\u200d\U0001f91d\u200d\U0001f468\U0001f3ff", " men holding hands "),
        ("\U0001faf1\U0001f3ff\u200d\U0001faf2\U0001f3fb", " handshake "),
        ("\U0001f1eb\U0001f1f7", " France "),
        ("\U0001f1eb", "\U0001f1eb"),
        ("1\ufe0f\u20e3 1", " keycap 1  1"),
        ("\u2122", " trade mark "),
        ("e\u0301 \u5b57 \u00df", "e\u0301 \u5b57 \u00df"),
    ],
)
def test_emoji(text: str, expected: str) -> None:
    assert run(text, "emoji") == expected


@given(text=ANY_TEXT)
@example(
    text="\U0001f468\u200d\U0001f469\u200d\U0001f467" * 3 + "1\ufe0f\u20e3" + "\u5b57" * 300 + "\U0001f44d\U0001f3fd"
)
@example(text="\u5b57" * 255 + "\U0001f468\u200d\U0001f469\u200d\U0001f467" + "\U0001f1eb\U0001f1f7" * 9)
@example(text="\U0001f468\u200d\U0001f469\u200d\U0001f467 x" * 200)
def test_emoji_are_found_in_a_part_of_a_text_as_in_the_whole(text: str) -> None:
    found = [(start, end) for start, end, _ in STEPS["emoji"](text)]
    assert found == [(one["match_start"], one["match_end"]) for one in emoji.emoji_list(text)]


@pytest.mark.parametrize("joined", ["\U0001f468\u200d", "\U0001f468\u200d\U0001f469\u200d", "\U0001f3fd\u200d"])
def test_emoji_joined_from_end_to_end_are_searched_in_parts(joined: str) -> None:
    """50,000 of them took minutes, in which the thread let nobody else run for long."""
    text = joined * (50_000 // len(joined))
    assert len(list(STEPS["emoji"](text))) >= 100
    assert max(end - start for start, end in _runs(text)) <= LONGEST_RUN
    assert "".join(text[start:end] for start, end in _runs(text)) == text


def test_every_emoji_has_words_without_a_skin_tone() -> None:
    tones = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
    for character in emoji.EMOJI_DATA:
        words = run(character, "emoji").strip()
        assert bool(words) is (character not in tones), character
        assert re.fullmatch(r"[\w\s.,:()!*#&\u2019\u201c\u201d'-]*", words), words
        assert "skin" not in words
        assert "_" not in words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\0b\x07c\x7fd\x85e", "a b c d e"),
        ("a\r\nb\tc\n", "a\r\nb\tc\n"),
        ("in\u200bvis\u00adi\ufeffble", "invisible"),
        ("\u202eright to left\u202c", "right to left"),
        ("a\ufe0f\u200db", "ab"),
        ("\x00\u200b\x00", "  "),
        ("\u200b\u200b", ""),
    ],
)
def test_control(text: str, expected: str) -> None:
    assert run(text, "control") == expected


# All steps, and the way back


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            r"@me it\u2019s gr8 \ud83d\ude02\ud83d\ude02 &amp; more https://t.co/x",
            "@user it's gr8  face with tears of joy  & more http",
        ),
        ("&#128077;&#127997;", " thumbs up "),
        ("\\u0000\\u200b", " "),
        ("", ""),
        ("\ud800", "\ud800"),
    ],
)
def test_all_steps_together(text: str, expected: str) -> None:
    assert run(text) == expected


def test_a_word_is_found_again_behind_what_grew_and_what_shrank() -> None:
    text = "@someone \U0001f600\U0001f600 &lt;3 caf\u00e9\u200b\u2026 https://a.b fine"
    cleaned = clean(text, ALL)
    for word, original in [
        ("@user", "@someone"),
        ("user", "@someone"),
        ("grinning face", "\U0001f600"),
        ("<3", "&lt;3"),
        ("caf\u00e9", "caf\u00e9"),
        ("caf\u00e9...", "caf\u00e9\u200b\u2026"),
        ("...", "\u2026"),
        ("http", "https://a.b"),
        ("fine", "fine"),
    ]:
        start = cleaned.text.index(word)
        begin, end = cleaned.original(start, start + len(word))
        assert text[begin:end] == original


def test_a_replacement_of_a_replacement_stands_for_the_first_original() -> None:
    cleaned = clean(r"a\u0026#39;b", ("unicode_escapes", "html_entities"))
    assert cleaned.text == "a'b"
    assert cleaned.spans == ((0, 1), (1, 11), (11, 12))


def test_without_changes_the_way_back_is_the_same_place() -> None:
    assert clean("plain", ALL).original(1, 3) == (1, 3)


def test_a_long_text_of_nothing_but_edits_is_cleaned_in_one_pass() -> None:
    """Every step is linear: nothing here may grow with the square of the length."""
    for fragment in ("@a ", "&amp;", r"\u0041", "\u2026", "\0", "www.a ", "@", "&", "\\u", "\U0001f600a"):
        cleaned = clean(fragment * 20_000, ALL)
        assert cleaned.original(0, len(cleaned.text))[1] <= 20_000 * len(fragment)
