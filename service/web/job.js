// A file being labelled: pick the column, start, stop, go on, download.

import { asking, pause, sentence } from "./api.js";
import { element, glyph } from "./dom.js";
import { labelled, output, wordiest } from "./labelling.js";

/** What is done stays done: a run that was stopped, or that failed, goes on where it ended. */
export class Job {
  /** `table` is what csv.js reads; `nodes` are what the page shows of the job. */
  constructor(name, table, { labels, limits }) {
    // The model chosen now labels all of the file, whichever is chosen later.
    const path = asking("classify");
    Object.assign(this, { name, table, labels, limits, path, results: [], running: null, url: "" });
    const options = table.header.map((text, value) => element("option", { value, text: text || `column ${value + 1}` }));
    this.column = element("select", {}, ...options);
    this.column.value = wordiest(table);
    this.preview = element("p", { class: "hint preview" });
    this.start = element("button", { type: "button", class: "button primary" });
    this.stop = element("button", { type: "button", class: "button", text: "Stop" });
    this.bar = element("progress", { max: Math.max(1, table.rows.length), "aria-label": "Rows labelled" });
    this.rate = element("p", { class: "hint" });
    this.status = element("div", { class: "outcome", role: "status" });
    const choice = element("label", {}, "Texts are in ", this.column);
    this.nodes = [
      element("h2", { text: `${name}: ${rows(table.rows.length)}` }),
      element("div", { class: "row" }, choice, this.start, this.stop),
      this.preview,
      this.bar,
      this.rate,
      this.status,
    ];
    this.column.addEventListener("change", () => this.reset());
    this.start.addEventListener("click", () => this.run());
    this.stop.addEventListener("click", () => this.cancel());
    this.reset();
  }

  cancel() {
    this.running?.abort();
  }

  reset() {
    this.results = [];
    this.status.replaceChildren();
    this.rate.textContent = "";
    const first = this.table.rows.slice(0, 3).map((row) => row[this.column.value]);
    this.preview.textContent = first.map((text) => `“${text.length > 90 ? `${text.slice(0, 90)}…` : text}”`).join(" · ");
    this.draw();
  }

  draw() {
    const left = rows(this.table.rows.length - this.results.length);
    this.bar.value = this.results.length;
    this.bar.hidden = !this.running && !this.results.length;
    this.start.textContent = this.results.length ? `Go on with ${left}` : `Label ${left}`;
    this.start.hidden = Boolean(this.running) || this.results.length === this.table.rows.length;
    this.stop.hidden = !this.running;
    this.column.disabled = Boolean(this.running);
  }

  async run() {
    this.running = new AbortController();
    const { signal } = this.running;
    this.status.replaceChildren();
    this.draw();
    this.stop.focus();
    let reason = "";
    try {
      await this.label(signal);
    } catch (error) {
      reason = signal.aborted ? "Stopped." : sentence(error.message);
    }
    this.running = null;
    this.draw();
    this.conclude(reason);
  }

  async label(signal) {
    const texts = this.table.rows.slice(this.results.length).map((row) => row[this.column.value]);
    const began = performance.now();
    const passed = () => (performance.now() - began) / 1000;
    let done = 0;
    const waiting = (seconds) => {
      this.rate.textContent = `The service is busy. Trying again in ${seconds} s …`;
    };
    for await (const results of labelled(this.path, texts, this.limits, signal, waiting)) {
      this.results.push(...results);
      done += results.length;
      const rate = done / passed();
      const left = time((texts.length - done) / rate);
      this.bar.value = this.results.length;
      this.rate.textContent = `${number(this.results.length)} of ${rows(this.table.rows.length)} · ${rate.toFixed(0)} a second · ${left} left`;
      await pause(0, signal); // a stop is heard between two parts even if every answer is there at once
    }
    this.rate.textContent = `${rows(done)} in ${time(passed())}`;
  }

  /** Shows how a run ended, `reason` if before its time, and what there is to download. */
  conclude(reason) {
    const failed = this.results.filter(({ error }) => error).length;
    const counts = this.labels.map((label) => {
      const found = this.results.filter((result) => result.label === label).length;
      return element("span", {}, glyph(label), `${number(found)} ${label}`);
    });
    if (failed) counts.push(element("span", { text: `${rows(failed)} with an error` }));
    if (reason) this.status.append(element("p", { class: "problem", text: reason }));
    if (!this.results.length) return this.start.focus();
    const link = this.link();
    this.status.append(element("p", { class: "counts" }, ...counts), link);
    link.focus(); // the stop button, which had the focus, is gone
  }

  link() {
    URL.revokeObjectURL(this.url);
    const text = output(this.table, this.results, this.labels);
    this.url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    const [, stem, ending = ".csv"] = /^(.+?)(\.[^.]*)?$/s.exec(this.name);
    return element("a", {
      class: "button primary",
      href: this.url,
      download: `${stem}.labelled${ending}`,
      text: `Download ${rows(this.results.length)}`,
    });
  }
}

const number = (count) => count.toLocaleString("en");
const rows = (count) => `${number(count)} ${count === 1 ? "row" : "rows"}`;
const time = (seconds) => (seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.round(seconds / 60)} min`);
