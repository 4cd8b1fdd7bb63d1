// How one text's answer is drawn: its label, its bars, and its valence on a line from −1 to +1.

import { element, glyph, percent, said, signed, tone } from "./dom.js";

/** The children of the result card. */
export function answerCard(result, labels, milliseconds) {
  const windows = result.windows > 1 ? ` in ${result.windows} windows` : "";
  const mood = result.valence === null ? [] : [scale("Valence", result.valence)];
  return [
    element("p", { class: `label ${tone(result.label)}` }, ...heading(result, labels)),
    ...(result.value === undefined ? [bars(result.scores, labels), ...mood] : []),
    element("p", { class: "hint", text: `${result.tokens} tokens${windows} · ${Math.round(milliseconds)} ms there and back` }),
  ];
}

/** The label, or all that hold, with the score; of a model that gives one, the value. */
function heading({ label, labels: held, score, value }, labels) {
  if (value !== undefined) return [element("span", { text: labels[0] }), element("span", { class: "score", text: value })];
  const text = held ? held.join(", ") || "none" : label;
  return [glyph(label), element("span", { text }), element("span", { class: "score", text: percent(score) })];
}

const bars = (scores, labels) =>
  element("ul", { class: "bars", "aria-label": "Probabilities" }, ...labels.map((label) => bar(label, scores[label])));

/** What a screen reader is told of an answer, in one breath. */
export const spoken = (result) => `${said(result)}.${result.valence === null ? "" : ` Valence ${signed(result.valence)}.`}`;

function bar(label, share) {
  const fill = element("span", { class: `fill ${tone(label)}` });
  fill.style.setProperty("--share", share);
  return element(
    "li",
    {},
    element("span", { class: "name", text: label }),
    element("span", { class: "track", "aria-hidden": "true" }, fill),
    element("span", { class: "number", text: percent(share) }),
  );
}

/** A value between −1 and +1 as a mark on a line. */
export function scale(name, value) {
  const mark = element("span", { class: "mark" });
  mark.style.setProperty("--place", (value + 1) / 2);
  return element(
    "div",
    { class: "scale" },
    element("p", {}, element("span", { text: name }), element("strong", { text: signed(value) })),
    element("div", { class: "line", "aria-hidden": "true" }, mark),
    element("p", { class: "ends", "aria-hidden": "true" }, ...["−1", "0", "+1"].map((text) => element("span", { text }))),
  );
}
