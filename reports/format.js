/* Numbers with units, as dsprof.units writes them; elements that hold text and nothing else. */

/* So many significant digits, `most` behind the point; 9.996 is 10.0. */
function digits(value, significant = 3, most = 4) {
  if (value === 0) return "0";
  const rounded = Math.abs(value) * (1 + 0.5 * 10 ** -significant);
  const decimals = Math.min(most, Math.max(0, significant - 1 - Math.floor(Math.log10(rounded))));
  return value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 3600) {
    const minutes = Math.round(value / 60);
    return `${Math.floor(minutes / 60).toLocaleString("en-US")} h ${String(minutes % 60).padStart(2, "0")} min`;
  }
  if (size >= 120) return `${Math.floor(Math.round(value) / 60)} min ${String(Math.round(value) % 60).padStart(2, "0")} s`;
  if (size < 0.5e-9) return "0 s"; // what is left of rounding
  if (size >= 0.9995) return `${digits(value)} s`;
  return size >= 0.9995e-3 ? `${digits(value * 1e3)} ms` : `${digits(value * 1e6, 2)} µs`;
}

/* How to write the numbers of one column: all in one unit, as dsprof.page.words has it. */
function oneUnit(values) {
  let largest = 0;
  for (const value of values) if (Number.isFinite(value)) largest = Math.max(largest, Math.abs(value));
  if (largest >= 7200) return seconds;
  const [size, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]].find(([size]) => largest >= 0.9995 * size) ?? [1e-6, "µs"];
  let most = 2;
  for (const value of values) if (Number.isFinite(value) && !inHundredths(value / size)) most = 4;
  return (value) => {
    if (!Number.isFinite(value)) return "–";
    const number = value / size;
    return `${number !== 0 && Math.abs(number) < 0.00005 ? "under 0.0001" : digits(number, unit === "µs" ? 2 : 3, most)} ${unit}`;
  };
}

/* Whether two digits behind the point say all of a number, as far as four bytes hold it. */
const inHundredths = (value) => Math.abs(value) >= 1 || Math.abs(100 * value - Math.round(100 * value)) < 1e-4;

function share(part) {
  if (!Number.isFinite(part)) return "–";
  const percent = part * 100;
  if (percent > 0 && percent < 0.1) return "under 0.1 %";
  if (percent >= 99.5 && percent < 100 - 1e-4) return `${(Math.floor(percent * 10 + 1e-9) / 10).toFixed(1)} %`; // not all
  return `${percent.toFixed(Math.abs(percent) < 9.95 ? 1 : 0)} %`;
}

const whole = (number) => number.toLocaleString("en-US");
const count = (number, one) => `${whole(number)} ${one}${number === 1 ? "" : "s"}`;
function plainNumber(value) {
  if (!Number.isFinite(value)) return "–";
  const short = Number(value.toPrecision(5));
  return Math.abs(short) >= 1000 && Math.abs(short) < 1e12 ? short.toLocaleString("en-US", { maximumFractionDigits: 1 }) : String(short);
}

/* How to write the numbers of one column: all with the digits behind the point that the largest
   has of five, and no more than any of them needs. */
function sameDigits(values) {
  const known = [...values].filter(Number.isFinite);
  const largest = Math.max(...known.map(Math.abs), 0);
  if (!largest || largest >= 1e12) return plainNumber;
  const needed = Math.max(...known.map((value) => Number(value.toPrecision(5)).toFixed(10).replace(/0+$/, "").split(".")[1].length));
  const digits = Math.min(needed, Math.max(0, 4 - Math.floor(Math.log10(largest))));
  return (value) => (Number.isFinite(value) ? value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }) : "–");
}

/* Letters that turn the direction of writing, and those that no face draws, as escapes: a name must read as it is. */
const visible = (text) => String(text).replace(/[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, escapeOf);

function escapeOf(letter) {
  const code = letter.charCodeAt(0);
  return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

/* The same where plotly reads markup. */
const escaped = (text) => visible(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  if (text !== "") made.textContent = visible(text);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function tableOf(caption, head, rows, firstNumber = 1) {
  const table = element("table");
  table.append(element("caption", caption));
  const top = table.createTHead().insertRow();
  head.forEach((label, i) => top.append(element("th", label, { scope: "col", ...(i >= firstNumber ? { class: "number" } : {}) })));
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((text, i) => line.append(element(i ? "td" : "th", text, { ...(i ? {} : { scope: "row" }), ...(i >= firstNumber ? { class: "number" } : {}) })));
  }
  return table;
}
