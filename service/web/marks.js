// A text with its parts marked in place: words by their effect, sentences by their feeling.

import { element, glyph, said, signed, tone } from "./dom.js";

const NUMBERED = 0.03;
/* Effects from here on have their number above the word: more numbers than these would hide the text. */

const LONG = 24;
/* Characters. A word with its number above it is kept on one line, which a longer one may not fit. */

/** A text as nodes, with `mark(string, span)` for each span. Offsets count code points, as the service's do. */
export function annotated(text, spans, mark) {
  const points = Array.from(text);
  const nodes = [];
  let position = 0;
  for (const span of spans) {
    // One character can stand for two words (an emoji read as its name): it is marked once.
    if (span.start < position) continue;
    nodes.push(points.slice(position, span.start).join(""), mark(points.slice(span.start, span.end).join(""), span));
    position = span.end;
  }
  nodes.push(points.slice(position).join(""));
  return nodes;
}

/** The words of an explanation, in the text and as a table. */
export function words(text, { label: given, words: found }) {
  const label = given ?? "the value";
  const strongest = Math.max(NUMBERED, ...found.map(({ effect }) => Math.abs(effect)));
  const marked = annotated(text, found, (string, { effect }) => word(string, effect, effect / strongest, label));
  return [
    element("p", { class: "text" }, ...marked),
    element(
      "p",
      { class: "legend" },
      element("span", { class: `key word for ${tone(label)}`, text: `speaks for “${label}”` }),
      element("span", { class: "key word against", text: "speaks against it" }),
      element("span", { text: `Numbers: points of probability that “${label}” loses when the word is masked.` }),
    ),
    table(
      "All words as numbers",
      ["Word", `Points for “${label}”`],
      found.toSorted((a, b) => Math.abs(b.effect) - Math.abs(a.effect)).map((one) => [one.word, points(one.effect, 1)]),
    ),
  ];
}

/** The sentences of a classification, in the text and as a table. */
export function sentences(text, { sentences: found }) {
  const marked = annotated(text, found, (string, part) => {
    const title = part.valence === null ? said(part) : `${said(part)}; valence ${signed(part.valence)}`;
    const made = element("span", { class: `sentence ${tone(part.label)}`, title }, glyph(part.label), string);
    made.style.setProperty("--strength", part.score ?? 0);
    return made;
  });
  const points = Array.from(text);
  return [
    element("p", { class: "text" }, ...marked),
    element(
      "p",
      { class: "legend" },
      ...["negative", "neutral", "positive"].map((label) =>
        element("span", { class: `key sentence ${label}` }, glyph(label), label),
      ),
      element("span", { text: "The stronger the colour, the surer the label." }),
    ),
    table(
      "All sentences as numbers",
      ["Sentence", "Label", "Valence"],
      found.map((part) => [
        points.slice(part.start, part.end).join(""),
        said(part),
        part.valence === null ? "" : signed(part.valence),
      ]),
    ),
  ];
}

/** `strength` is the effect as a share of the strongest one. */
function word(string, effect, strength, label) {
  const side = effect >= 0 ? `for ${tone(label)}` : "against";
  const title = `${points(effect, 1)} points for ${label}`;
  const made =
    Math.abs(effect) < NUMBERED || string.length > LONG
      ? element("span", { class: `word ${side}`, title, text: string })
      : element("ruby", { class: `word ${side}`, title }, string, element("rt", { text: points(effect, 0) }));
  made.style.setProperty("--strength", Math.abs(strength));
  return made;
}

const points = (effect, digits) => signed(effect * 100, digits);

function table(summary, head, rows) {
  const header = element("tr", {}, ...head.map((text) => element("th", { scope: "col", text })));
  const body = rows.map((row) => element("tr", {}, ...row.map((text) => element("td", { text }))));
  return element(
    "details",
    { class: "numbers" },
    element("summary", { text: summary }),
    element("table", {}, element("thead", {}, header), element("tbody", {}, ...body)),
  );
}
