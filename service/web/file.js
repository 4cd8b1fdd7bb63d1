// The view of a file: one is chosen or dropped, read, and becomes a job.

import { decode } from "./csv.js";
import { byId } from "./dom.js";
import { Job } from "./job.js";

const LARGEST = 64 * 1024 * 1024;
/* Bytes that a browser holds with ease as text, cells and result at once. */

/** Starts the view for a service with this /info. */
export function fileView(info) {
  const drop = byId("drop");
  const chosen = byId("chosen");
  let job = null;
  const open = async (file) => {
    job?.cancel();
    job = null;
    problem("");
    byId("work").hidden = true;
    try {
      if (file.size > LARGEST) throw new Error("The file is larger than 64 MB. The command “sentiment classify” has no such bound.");
      job = new Job(file.name, decode(await file.arrayBuffer()), info);
      byId("work").replaceChildren(...job.nodes);
      byId("work").hidden = false;
    } catch (error) {
      problem(error.message);
    }
  };
  chosen.addEventListener("change", async () => {
    if (chosen.files.length) await open(chosen.files[0]);
    chosen.value = ""; // so that the same file, changed, can be chosen again
  });
  for (const kind of ["dragenter", "dragover"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) open(event.dataTransfer.files[0]);
  });
}

function problem(text) {
  byId("file-problem").textContent = text;
  byId("file-problem").hidden = !text;
}
