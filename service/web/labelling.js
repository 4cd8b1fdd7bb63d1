// A table's texts through the service, a few at a time, and the table with the answers.

import { ApiError, patiently } from "./api.js";
import { format } from "./csv.js";

const TEXTS = 50;
const CHARACTERS = 50_000;
/* Small enough for steady progress and to end well within the service's time limit, large enough to keep it busy. */

const HALVED = new Set([413, 422, 500, 504]);
/* A request that failed as a whole for what is in it, or for being too much at once: its halves may not. */

/** Yields the results of `texts` in order, some at a time. One that cannot be read is {error}, as the service says it. */
export async function* labelled(path, texts, limits, signal, onWait) {
  for (const chunk of chunks(texts, Math.min(TEXTS, limits.max_texts))) yield await label(path, chunk, signal, onWait);
}

async function label(path, texts, signal, onWait) {
  try {
    return (await patiently(path, { inputs: texts }, signal, onWait)).results;
  } catch (error) {
    if (!(error instanceof ApiError) || !HALVED.has(error.status)) throw error;
    if (texts.length === 1) return [{ error: { code: error.code, message: error.message } }];
    const half = Math.ceil(texts.length / 2);
    return [
      ...(await label(path, texts.slice(0, half), signal, onWait)),
      ...(await label(path, texts.slice(half), signal, onWait)),
    ];
  }
}

function* chunks(texts, most) {
  let chunk = [];
  let characters = 0;
  for (const text of texts) {
    if (chunk.length === most || (chunk.length && characters + text.length > CHARACTERS)) {
      yield chunk;
      chunk = [];
      characters = 0;
    }
    chunk.push(text);
    characters += text.length;
  }
  if (chunk.length) yield chunk;
}

/** Which column most likely holds the texts: the one with the longest cells, in the first rows. */
export function wordiest({ header, rows }) {
  const lengths = header.map((_, i) => rows.slice(0, 50).reduce((sum, row) => sum + row[i].length, 0));
  return lengths.indexOf(Math.max(...lengths));
}

/** The file: the rows that have a result, as they were, and the columns that `sentiment classify` adds. */
export function output({ header, rows, dialect }, results, labels) {
  const { labels: several, value } = results.find(({ error }) => !error) ?? {};
  const told = value === undefined ? ["label", "score", ...(several ? ["labels"] : []), ...labels, "valence"] : ["value"];
  const added = [...told, "tokens", "truncated", "error"];
  const prefix = added.some((name) => header.includes(name)) ? "sentiment_" : "";
  const answers = results.map(({ error, tokens, truncated, ...result }) =>
    error
      ? [...Array(added.length - 1).fill(""), error.message]
      : [...cells(result, labels), tokens, truncated, ""].map((cell) => String(cell ?? "")),
  );
  const names = added.map((name) => prefix + name);
  return format([[...header, ...names], ...answers.map((answer, i) => [...rows[i], ...answer])], dialect);
}

function cells({ label, score, labels: held, scores, valence, value }, labels) {
  if (value !== undefined) return [value];
  return [label, score, ...(held ? [JSON.stringify(held)] : []), ...labels.map((one) => scores[one]), valence];
}
