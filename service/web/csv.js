// RFC 4180, as spreadsheets write it: read and written without changing a cell.

const BOM = "\ufeff";
const DELIMITERS = [",", ";", "\t"];

/** The table in a file's bytes. Throws an Error that says what is wrong, and in which row. */
export function decode(bytes) {
  try {
    return parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new Error("The file is not UTF-8. In a spreadsheet, save it as “CSV UTF-8”.");
  }
}

/** {header, rows, dialect}: cells as strings, every row as wide as the header; `dialect` is what `format` writes in. */
export function parse(text) {
  const bom = text.startsWith(BOM);
  const body = bom ? text.slice(1) : text;
  const delimiter = sniff(body);
  const newline = /\r\n|\n|\r/.exec(withoutQuoted(body))?.[0] ?? "\r\n";
  const [header, ...all] = cells(body, delimiter);
  if (!header || (header.length === 1 && !header[0].trim())) throw new Error("The file has no header line.");
  // Blank lines stand in many files, at the end above all. In a file of one column they are empty cells.
  const rows = header.length === 1 ? all : all.filter((row) => row.length > 1 || row[0] !== "");
  const odd = rows.findIndex((row) => row.length !== header.length);
  if (odd >= 0) throw new Error(`Row ${odd + 1} has ${rows[odd].length} cells; the header has ${header.length}.`);
  return { header, rows, dialect: { delimiter, newline, bom } };
}

/** The text of a file with these rows, the header among them. */
export function format(rows, { delimiter, newline, bom }) {
  const special = new RegExp(`["\\r\\n${delimiter}]`);
  const cell = (value) => (special.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  return (bom ? BOM : "") + rows.map((row) => row.map(cell).join(delimiter) + newline).join("");
}

// What no quotes enclose: a doubled quote inside quotes ends one run and starts the next, which comes to the same.
const withoutQuoted = (text) => text.replaceAll(/"[^"]*"/g, "");

function sniff(text) {
  const line = withoutQuoted(text).split(/[\r\n]/, 1)[0];
  const counts = DELIMITERS.map((delimiter) => line.split(delimiter).length);
  return DELIMITERS[counts.indexOf(Math.max(...counts))];
}

function cells(text, delimiter) {
  const plain = new RegExp(`[^\\r\\n${delimiter}]*`, "y");
  const rows = [];
  let row = [];
  let at = 0;
  while (at < text.length || row.length) {
    let value = "";
    if (text[at] === '"') {
      [value, at] = quoted(text, at, rows.length);
    }
    plain.lastIndex = at;
    const [rest] = plain.exec(text);
    row.push(value + rest);
    at += rest.length;
    if (text[at] === delimiter) {
      at += 1;
      continue;
    }
    rows.push(row);
    row = [];
    at += text.startsWith("\r\n", at) ? 2 : 1;
  }
  return rows;
}

/** The value of a quoted cell that starts at a quote, and where it ends. */
function quoted(text, start, row) {
  let value = "";
  let at = start + 1;
  for (;;) {
    const end = text.indexOf('"', at);
    if (end < 0) throw new Error(`Row ${row}: a quoted cell is never closed.`);
    value += text.slice(at, end);
    if (text[end + 1] !== '"') return [value, end + 1];
    value += '"';
    at = end + 2;
  }
}
