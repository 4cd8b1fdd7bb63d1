// The view of one text: its answer as one types, and then where in the text it comes from.

import { ApiError, one, sentence } from "./api.js";
import { answerCard, spoken } from "./answer.js";
import { byId, debounced, element, latest } from "./dom.js";
import { sentences, words } from "./marks.js";
import { requestPanel } from "./snippet.js";

const TYPING = 350;
/* Milliseconds without a key after which a text is read. */

// Roughly as the service counts words; where it counts otherwise, its error says so.
const WORD = /[\p{L}\p{N}_]+(?:['-][\p{L}\p{N}_]+)*|[^\p{L}\p{N}_\s]+/gu;

/** Starts the view for a service with this /info. */
export function readingView(info) {
  const input = byId("input");
  const view = () => document.querySelector("input[name=view]:checked").value;
  const read = latest(async (signal) => {
    const text = input.value;
    byId("count").textContent = counted(text, info.limits);
    if (!text.trim()) return empty();
    busy(true);
    try {
      await show(text, view(), info, signal);
    } catch (error) {
      if (!signal.aborted) failed(error);
    } finally {
      if (!signal.aborted) busy(false);
    }
  });
  const typing = debounced(read, TYPING);
  input.addEventListener("input", typing.later);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) typing.now();
  });
  byId("view").addEventListener("change", typing.now);
  byId("examples").addEventListener("click", ({ target }) => {
    if (target.dataset.text === undefined) return;
    input.value = target.dataset.text;
    input.dispatchEvent(new Event("input"));
    typing.now();
  });
  requestPanel(byId("text-request"), [input], {
    Label: (texts) => ["classify", { inputs: texts[0] }],
    Sentences: (texts) => ["classify?detail=sentences", { inputs: texts[0] }],
    Words: (texts) => ["explain", { inputs: texts[0] }],
    Vector: (texts) => ["embed?pool=mean&normalize=true", { inputs: texts[0] }],
  });
  if (input.value) typing.now();
}

/** The label first, which is quick, and then where it comes from. */
async function show(text, view, { labels, limits }, signal) {
  const began = performance.now();
  const result = await one("classify", text, signal, waiting);
  byId("result").replaceChildren(...answerCard(result, labels, performance.now() - began));
  byId("spoken").textContent = spoken(result);
  byId("reading").hidden = false;
  note("");
  if (view === "sentences" || !(await showWords(text, result, limits, signal))) await showSentences(text, signal);
}

/** Whether the words could be weighed; if not, why is said. */
async function showWords(text, { tokens }, limits, signal) {
  let reason = tooLong(text, tokens, limits);
  if (!reason) {
    try {
      mark(words(text, await one("explain", text, signal, waiting)));
      return true;
    } catch (error) {
      if (signal.aborted || !(error instanceof ApiError)) throw error;
      reason = sentence(error.message);
    }
  }
  note(`${reason} Sentences are shown instead.`);
  return false;
}

async function showSentences(text, signal) {
  try {
    mark(sentences(text, await one("classify?detail=sentences", text, signal, waiting)));
  } catch (error) {
    if (error.code !== "too_many_sentences") throw error;
    note(sentence(error.message));
    mark([]);
  }
}

function tooLong(text, tokens, { max_words: most, max_tokens: longest }) {
  const count = text.match(WORD)?.length ?? 0;
  if (count > most) return `Words are weighed in texts of up to ${most} words; this one has ${count}.`;
  return tokens > longest ? `Words are weighed in texts of up to ${longest} tokens; this one has ${tokens}.` : "";
}

function counted(text, { max_characters: most }) {
  const count = Array.from(text).length;
  return count ? `${count.toLocaleString("en")} of ${most.toLocaleString("en")} characters` : "Read as you type.";
}

function mark(nodes) {
  byId("marked").replaceChildren(...nodes);
}

function note(text) {
  byId("note").textContent = text;
  byId("note").hidden = !text;
}

function busy(state) {
  for (const id of ["result", "marked"]) byId(id).setAttribute("aria-busy", state);
}

function waiting(seconds) {
  byId("spoken").textContent = "The service is busy.";
  byId("result").replaceChildren(element("p", { class: "empty", text: `The service is busy. Trying again in ${seconds} s …` }));
}

function empty() {
  busy(false);
  byId("reading").hidden = true;
  byId("spoken").textContent = "";
  byId("result").replaceChildren(element("p", { class: "empty", text: "Type something, or take an example. The answer appears here." }));
}

function failed(error) {
  byId("reading").hidden = true;
  byId("spoken").textContent = "";
  byId("result").replaceChildren(element("p", { class: "problem", role: "alert", text: sentence(error.message) }));
}
