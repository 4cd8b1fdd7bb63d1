// Starts the page: waits for the service, says which model answers, and lets one tab be seen at a time.

import { choose, info, models, pause, sentence } from "./api.js";
import { compareView } from "./compare.js";
import { byId, element } from "./dom.js";
import { fileView } from "./file.js";
import { readingView } from "./reading.js";

const AGAIN = 3;
/* Seconds between questions to a service that is not ready yet. */

async function ready() {
  for (;;) {
    try {
      return await info();
    } catch (error) {
      byId("model").textContent = sentence(error.message);
      byId("model").classList.add("problem");
      await pause(AGAIN);
    }
  }
}

/** The pattern for tabs: one stop for the Tab key, arrows between them. */
function tabs() {
  const all = [...document.querySelectorAll("[role=tab]")];
  const choose = (chosen) => {
    for (const tab of all) {
      tab.setAttribute("aria-selected", tab === chosen);
      tab.tabIndex = tab === chosen ? 0 : -1;
      byId(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
    }
  };
  for (const [index, tab] of all.entries()) {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", ({ key }) => {
      const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: all.length - 1 }[key];
      if (to === undefined) return;
      const next = all.at(to % all.length);
      next.focus();
      choose(next);
    });
  }
}

function describe({ model, limits, dimensions }) {
  byId("model").classList.remove("problem");
  byId("model").textContent = `${model} · ${limits.max_tokens} tokens a window · ${dimensions} dimensions`;
}

/** Lets one of several models be chosen: the views hold `found` and see its new /info, and what is written is read again. */
async function choice(found) {
  const names = (await models()).models.filter(({ state }) => state === "ready").map(({ name }) => name);
  const select = byId("choice");
  select.replaceChildren(...names.map((text) => element("option", { text, selected: text === found.model })));
  byId("models").hidden = names.length < 2;
  select.addEventListener("change", async () => {
    choose(select.value);
    try {
      describe(Object.assign(found, await info()));
      for (const written of document.querySelectorAll("textarea")) written.dispatchEvent(new Event("input"));
    } catch (error) {
      byId("model").textContent = sentence(error.message);
      byId("model").classList.add("problem");
    }
  });
}

tabs();
const found = await ready();
describe(found);
readingView(found);
compareView();
fileView(found);
await choice(found);
