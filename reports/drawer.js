/* The drawer at the side: lines of a source in their context. Text only, never markup. */

const CONTEXT = 3;
let opener = null;

function openDrawer(title, parts, onward) {
  const drawer = byId("drawer");
  if (drawer.hidden) opener = document.activeElement;
  byId("drawer-title").textContent = visible(title);
  byId("drawer-body").replaceChildren(...parts);
  byId("drawer-body").scrollTop = 0;
  drawer.hidden = false;
  drawer.onward = onward;
  byId("drawer-title").focus({ preventScroll: true });
}

function closeDrawer() {
  if (byId("drawer").hidden) return;
  byId("drawer").hidden = true;
  opener?.focus({ preventScroll: true });
}

function showLine(source, line) {
  const name = page.sources[source] ?? "an unknown source";
  const file = name.split("/").pop();
  openDrawer(`${file}, line ${whole(line)}`, linesOf(source, line, line, CONTEXT), (by) => line + by > 0 && showLine(source, line + by));
}

function linesOfStep(track, row) {
  if (track.source[row] < 0 || track.first_line[row] < 1) return [element("p", "No line of a source is known for this step.", { class: "why" })];
  return linesOf(track.source[row], track.first_line[row], track.last_line[row], 0);
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
  parts.push(element("p", name, { class: "quiet" }));
  return parts;
}

function elsewhere(name, first, last) {
  const place = first === last ? `line ${whole(first)}` : `lines ${whole(first)} to ${whole(last)}`;
  const note = element("p", `This page does not carry ${place} of the source. To see them: `, { class: "quiet" });
  const quoted = name === "-" ? "SAVED.log" : `'${name.replaceAll("'", "'\\''")}'`;
  note.append(element("code", `sed -n '${first},${last}p' ${quoted}`));
  return note;
}

byId("drawer-close").addEventListener("click", closeDrawer);
byId("drawer-back").addEventListener("click", () => byId("drawer").onward?.(-1));
byId("drawer-on").addEventListener("click", () => byId("drawer").onward?.(1));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeDrawer();
});
document.addEventListener("click", ({ target }) => {
  const proof = target.closest?.(".proof");
  if (proof) showLine(Number(proof.dataset.source), Number(proof.dataset.line));
});
