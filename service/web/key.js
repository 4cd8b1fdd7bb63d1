// The key that a service may ask for. It lives in this page's memory and goes nowhere but into the header.

import { byId } from "./dom.js";

let key = "";
let asking;

/** The headers of a request: the key's, once there is one. */
export const keyHeaders = () => (key ? { authorization: `Bearer ${key}` } : {});

/** Asks the reader for a key; whoever else needs one meanwhile waits for the same answer. */
export function askForKey() {
  asking ??= new Promise((resolve) => {
    const form = byId("key");
    byId("key-problem").hidden = !key;
    form.hidden = false;
    byId("key-field").focus();
    form.addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        key = byId("key-field").value;
        byId("key-field").value = "";
        form.hidden = true;
        asking = undefined;
        resolve();
      },
      { once: true },
    );
  });
  return asking;
}
