// The view of two texts: the cosine of their vectors, under each way of making one.

import { ApiError, asking, patiently, sentence } from "./api.js";
import { scale } from "./answer.js";
import { byId, debounced, element, latest } from "./dom.js";
import { requestPanel } from "./snippet.js";

const TYPING = 500;

const POOLS = {
  mean: ["Mean of all tokens", "How near they are in what they talk about."],
  cls: ["[CLS] token", "How near they are in what the label is read from."],
};

/** Starts the view. */
export function compareView() {
  const inputs = [byId("first"), byId("second")];
  const card = byId("similarity");
  const compare = latest(async (signal) => {
    const texts = inputs.map(({ value }) => value);
    if (!texts.every((text) => text.trim())) return;
    card.setAttribute("aria-busy", "true");
    try {
      const cosines = await Promise.all(Object.keys(POOLS).map((pool) => cosine(texts, pool, signal)));
      card.replaceChildren(element("div", { class: "columns even" }, ...Object.keys(POOLS).map((pool, i) => block(pool, cosines[i]))));
    } catch (error) {
      if (!signal.aborted) card.replaceChildren(element("p", { class: "problem", text: sentence(error.message) }));
    } finally {
      if (!signal.aborted) card.setAttribute("aria-busy", "false");
    }
  });
  const typing = debounced(compare, TYPING);
  for (const input of inputs) input.addEventListener("input", typing.later);
  byId("pairs").addEventListener("click", ({ target }) => {
    if (target.dataset.first === undefined) return;
    inputs[0].value = target.dataset.first;
    inputs[1].value = target.dataset.second;
    inputs[0].dispatchEvent(new Event("input"));
    typing.now();
  });
  requestPanel(
    byId("compare-request"),
    inputs,
    Object.fromEntries(
      Object.keys(POOLS).map((pool) => [pool, (texts) => [`embed?pool=${pool}&normalize=true`, { inputs: texts }]]),
    ),
  );
}

async function cosine(texts, pool, signal) {
  const { embeddings } = await patiently(asking(`embed?pool=${pool}&normalize=true`), { inputs: texts }, signal);
  const wrong = embeddings.find(({ error }) => error)?.error;
  if (wrong) throw new ApiError(422, wrong.code, wrong.message);
  const [first, second] = embeddings;
  // Of unit vectors; seven decimals each can sum to a little over one.
  return Math.max(-1, Math.min(1, first.reduce((sum, value, i) => sum + value * second[i], 0)));
}

const block = (pool, value) =>
  element("div", { class: "pool" }, scale(POOLS[pool][0], value), element("p", { class: "hint", text: POOLS[pool][1] }));
