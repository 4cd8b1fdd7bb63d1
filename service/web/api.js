// The service's answers, and its errors in words.

import { askForKey, keyHeaders } from "./key.js";

export class ApiError extends Error {
  /** `wait` is how many seconds the service asks to be left alone for, if it does. */
  constructor(status, code, message, wait = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.wait = wait;
  }
}

const UNREACHABLE = "the service cannot be reached; is it running, and is the network up?";

async function ask(path, options) {
  let response;
  try {
    // Relative to the page, so that it works behind a proxy that serves it under a prefix.
    const headers = { ...options.headers, ...keyHeaders() };
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", UNREACHABLE);
  }
  if (response.status === 401) {
    await askForKey();
    return ask(path, options);
  }
  const body = await response.json().catch((error) => {
    if (options.signal?.aborted) throw error;
    return {};
  });
  if (response.ok) return body;
  const { code = "http_error", message = `the service answered with status ${response.status}` } = body.error ?? {};
  throw new ApiError(response.status, code, message, seconds(response.headers.get("retry-after")));
}

// A proxy may send a date instead of seconds: then a second, and the next answer says more.
const seconds = (header) => (header === null ? null : Number.parseInt(header, 10) || 1);

let chosen = "";

/** The model asked from now on; none is the default. */
export const choose = (model) => {
  chosen = model;
};

/** A path that asks the model chosen now. */
export const asking = (path) =>
  chosen ? `${path}${path.includes("?") ? "&" : "?"}model=${encodeURIComponent(chosen)}` : path;

export const info = () => ask(asking("info"), {});

export const models = () => ask("models", {});

/** POSTs once. */
const post = (path, body, signal) =>
  ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });

/** POSTs, and for as long as the service says it is full, waits for as long as it asks and tries again. */
export async function patiently(path, body, signal, onWait = () => {}) {
  for (;;) {
    try {
      return await post(path, body, signal);
    } catch (error) {
      if (error.status !== 429) throw error;
      onWait(error.wait ?? 1);
      await pause(error.wait ?? 1, signal);
    }
  }
}

/** Waits so many seconds, or throws as soon as the signal says so. */
export function pause(length, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, length * 1000);
    signal?.addEventListener("abort", stop, { once: true });
    if (signal?.aborted) stop();
  });
}

/** The one result of a request for one text; a text's own error is thrown like any other. */
export async function one(path, text, signal, onWait) {
  const { results } = await patiently(asking(path), { inputs: [text] }, signal, onWait);
  const { error } = results[0];
  if (error) throw new ApiError(422, error.code, error.message);
  return results[0];
}

/** A message of the service as a sentence. */
export const sentence = (message) => `${message[0].toUpperCase()}${message.slice(1)}${/[.?!]$/.test(message) ? "" : "."}`;
