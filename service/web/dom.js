// Elements made from data. Text is only ever set as text: nothing here, or anywhere on this page, parses HTML.

/** An element with attributes (`text` is its text; false, null and undefined leave an attribute out) and children. */
export function element(name, { text, ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false && value != null) made.setAttribute(key, value === true ? "" : value);
  }
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Runs the last call once `milliseconds` have passed without another. `now` runs it at once. */
export function debounced(run, milliseconds) {
  let timer;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(run, milliseconds);
  };
  const now = () => {
    clearTimeout(timer);
    run();
  };
  return { later, now };
}

/** A function that runs an async task, aborting the run before it: an answer to an older text is never shown. */
export function latest(task) {
  let running = new AbortController();
  return async (...values) => {
    running.abort();
    running = new AbortController();
    const { signal } = running;
    try {
      await task(signal, ...values);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  };
}

const GLYPHS = { positive: "▲", neutral: "●", negative: "▼" };

/** Which of the three looks a label has; one that is no sentiment looks neutral. */
export const tone = (label) => (Object.hasOwn(GLYPHS, label) ? label : "neutral");

/** The shape that says what colour says, for those who do not see the colour. */
export const glyph = (label) => element("span", { class: `glyph ${tone(label)}`, "aria-hidden": "true", text: GLYPHS[tone(label)] });

export const percent = (share) => `${(share * 100).toFixed(share < 0.0995 || share > 0.9905 ? 1 : 0)}\u00a0%`;

/** A label with its probability, or a value. */
export const said = ({ label, score, value }) => (value === undefined ? `${label}, ${percent(score)}` : `${value}`);

/** A number with its sign, with a true minus. */
export const signed = (value, digits = 2) => {
  const shown = Math.abs(value).toFixed(digits);
  return Number(shown) === 0 ? shown : `${value < 0 ? "−" : "+"}${shown}`;
};
