// The request behind what is shown, as something to paste into a shell or a program.

import { asking } from "./api.js";
import { element } from "./dom.js";

const HEADER = "content-type: application/json";

/** A POST for a POSIX shell: nothing in single quotes means anything to it but the quote itself. */
export const curl = (url, body) => `curl '${url}' \\
  -H '${HEADER}' \\
  -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;

/** A POST with Python's standard library. What JSON writes of texts and lists of them, Python reads alike. */
export const python = (url, body) => `import json
from urllib.request import Request, urlopen

body = ${JSON.stringify(body)}
request = Request("${url}", json.dumps(body).encode(), {"content-type": "application/json"})
with urlopen(request) as response:
    print(json.load(response))`;

const LANGUAGES = { curl, Python: python };

/** Fills a <details>: `kinds` are names and what each makes of the inputs' texts, as [path, body]. */
export function requestPanel(details, inputs, kinds) {
  const kind = element("select", {}, ...Object.keys(kinds).map((text) => element("option", { text })));
  const language = element("select", {}, ...Object.keys(LANGUAGES).map((text) => element("option", { text })));
  const code = element("code");
  const block = element("pre", { tabindex: "0", "aria-label": "Request" }, code);
  const copy = element("button", { type: "button", class: "button", text: "Copy" });
  const said = element("span", { class: "hint", role: "status" });
  const write = () => {
    if (!details.open) return;
    const [path, body] = kinds[kind.value](inputs.map(({ value }) => value));
    code.textContent = LANGUAGES[language.value](new URL(asking(path), document.baseURI).href, body);
    said.textContent = "";
  };
  details.addEventListener("toggle", write);
  for (const one of [kind, language]) one.addEventListener("change", write);
  for (const input of inputs) input.addEventListener("input", write);
  copy.addEventListener("click", async () => {
    said.textContent = (await copied(code)) ? "Copied." : "Selected: press Ctrl+C or ⌘C.";
  });
  details.append(
    element(
      "div",
      { class: "row" },
      element("label", {}, "Ask for ", kind),
      element("label", {}, "as ", language),
      copy,
      said,
    ),
    block,
  );
}

/** Copies, where the browser lets it (over HTTPS or on this machine); else selects, for the reader to copy. */
async function copied(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(code);
    return false;
  }
}
