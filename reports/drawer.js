/* The drawer at the side: lines of a source in their context. Text only, never markup. */

const CONTEXT = 3;
let opener = null;

function openDrawer(title, parts, onward) {
  byId("drawer-back").hidden = byId("drawer-on").hidden = !onward;
  const drawer = byId("drawer");
  if (drawer.hidden) opener = focused();
  byId("drawer-title").textContent = visible(title);
  byId("drawer-body").replaceChildren(...parts);
  byId("drawer-body").scrollTop = 0;
  drawer.hidden = false;
  drawer.onward = onward;
  byId("drawer-title").focus({ preventScroll: true });
}

/* What had the focus; a chart that was clicked takes none by itself. */
const focused = () => (document.activeElement === document.body ? document.querySelector(".holder:hover") : document.activeElement);

function closeDrawer() {
  if (byId("drawer").hidden) return;
  byId("drawer").hidden = true;
  opener?.focus({ preventScroll: true });
}

/* Tab goes round inside the drawer; behind it nothing that is covered is reached. */
function keepFocus(event) {
  const drawer = byId("drawer");
  if (drawer.hidden || !drawer.contains(document.activeElement)) return;
  const stops = [...drawer.querySelectorAll("button, [tabindex='0']")].filter((stop) => stop.offsetParent);
  const at = stops.indexOf(document.activeElement);
  const ends = event.shiftKey ? at <= 0 : at === stops.length - 1;
  if (!ends) return;
  event.preventDefault();
  stops.at(event.shiftKey ? -1 : 0).focus();
}

function showLine(source, line) {
  const name = page.sources[source] ?? "an unknown source";
  const file = name.split("/").pop();
  openDrawer(`${file}, line ${whole(line)}`, linesOf(source, line, line, CONTEXT), (by) => line + by > 0 && showLine(source, line + by));
}

/* The lines a mean or a sum is made of: all of them, or the first, the longest and the last. */
function showAmong(words, lines, of) {
  const once = eachOnce(lines);
  const parts = [element("p", amongWords(lines.length, of, once.length), { class: "quiet" }), ...windowNote(once)];
  const list = element("ol", "", { class: "lines among" });
  for (const [source, line, word] of once) list.append(amongItem(source, line, word));
  openDrawer(`What ${words.trim()} is made of`, [...parts, list, ...new Set(lines.map(([source]) => source))].map((part) => (typeof part === "number" ? element("p", page.sources[part] ?? "", { class: "quiet" }) : part)));
}

/* Timers of a line may sum over several steps, while the page tells of one. */
function windowNote(lines) {
  const sizes = new Set(lines.map(([source, line]) => page.windows[source]?.[line]).filter(Boolean));
  if (!sizes.size) return [];
  const each = sizes.size > 1 ? "several" : whole([...sizes][0]);
  return [element("p", `Timers on ${lines.length > 1 ? "these lines" : "this line"} are sums over ${each} steps; this page divides them to tell of one.`, { class: "quiet" })];
}

/* A line that gives several of the numbers stands there once. */
function eachOnce(lines) {
  const found = new Map();
  for (const [source, line, word] of lines) {
    const words = found.get(`${source}:${line}`)?.[2] ?? [];
    found.set(`${source}:${line}`, [source, line, word ? [...words, word] : words]);
  }
  return [...found.values()].map(([source, line, words]) => [source, line, words.join(", ")]);
}

function amongWords(shown, of, lines) {
  if (of === 1) return "One line of the source gives this number.";
  const which = shown >= of ? "all of them" : `the lines of ${whole(shown)} of them`;
  const where = lines < shown && shown >= of ? ` on ${count(lines, "line")}` : "";
  return `${whole(of)} numbers of the source${where} give this one. Here: ${which}. A line's number opens it in its context.`;
}

function amongItem(source, line, word) {
  const item = element("li");
  const number = element("button", String(line), { type: "button", class: "proof", "data-source": source, "data-line": line });
  const text = page.lines[source]?.[line];
  const missing = page.sources[source]?.endsWith(".dsprof") ? "a row of the recording" : "(not carried by this page)";
  const said = element("span", text ?? missing, text === undefined ? { class: "quiet" } : {});
  if (word) said.prepend(element("b", `${word} `));
  item.append(number, said);
  return item;
}

function linesOfStep(track, row) {
  const parts = [];
  if (track.source[row] >= 0 && track.first_line[row] > 0) parts.push(...linesOf(track.source[row], track.first_line[row], track.last_line[row], 0));
  track.elsewhere.forEach((source, i) => {
    const at = i * track.size + row;
    if (track.firsts[at] > 0) parts.push(...linesOf(source, track.firsts[at], track.lasts[at], 0));
  });
  return parts.length ? parts : [element("p", "No line of a source is known for this step.", { class: "why" })];
}

function linesOf(source, first, last, context) {
  const known = page.lines[source] ?? {};
  const name = page.sources[source] ?? "";
  const list = element("ol", "", { class: "lines" });
  let missing = 0;
  for (let number = Math.max(1, first - context); number <= last + context; number++) {
    const hit = number >= first && number <= last;
    if (known[number] === undefined) {
      missing += hit;
      continue;
    }
    const item = element("li", "", hit && context ? { class: "hit" } : {});
    item.append(element("span", String(number)), element("span", known[number]));
    list.append(item);
  }
  const parts = list.children.length ? [list] : [];
  if (missing) parts.push(elsewhere(name, first, last));
  const shown = Array.from({ length: last - first + 1 }, (_, i) => [source, first + i]);
  parts.push(...windowNote(shown));
  parts.push(element("p", name, { class: "quiet" }));
  return parts;
}

function elsewhere(name, first, last) {
  if (name.endsWith(".dsprof")) return recorded(name, first, last);
  const place = first === last ? `line ${whole(first)}` : `lines ${whole(first)} to ${whole(last)}`;
  const note = element("p", `This page does not carry ${place} of the source. To see them: `, { class: "quiet" });
  const quoted = name === "-" ? "SAVED.log" : `'${name.replaceAll("'", "'\\''")}'`;
  note.append(element("code", `sed -n '${first},${last}p' ${quoted}`));
  return note;
}

/* A recording has rows and no lines: nothing to quote, and no text tool shows them. */
function recorded(name, first, last) {
  const rows = first === last ? `Row ${whole(first)}` : `Rows ${whole(first)} to ${whole(last)}`;
  const note = element("p", `${rows} of a recording, which holds no text. All rows as a table: `, { class: "quiet" });
  const folder = name.replace(/\/[^/]*$/, "");
  note.append(element("code", `dsprof export '${folder.replaceAll("'", "'\\''")}' -o rows.csv`));
  return note;
}

byId("drawer-close").addEventListener("click", closeDrawer);
byId("drawer-back").addEventListener("click", () => byId("drawer").onward?.(-1));
byId("drawer-on").addEventListener("click", () => byId("drawer").onward?.(1));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    if (byId("drawer").hidden) leavePhases();
    else closeDrawer();
  }
  if (event.key === "Tab") keepFocus(event);
});
document.addEventListener("click", ({ target }) => {
  const proof = target.closest?.(".proof");
  if (!proof) return;
  if (proof.dataset.mean) showRangeProof(proof);
  else if (proof.dataset.among) showAmong(proof.textContent, JSON.parse(proof.dataset.among), Number(proof.dataset.of));
  else showLine(Number(proof.dataset.source), Number(proof.dataset.line));
});
