/* Where the page starts: what needs no data first, then data and charts. */

let page = { sources: [], lines: {}, windows: {} };
const loading = unpackText("data").then((text) => (page = JSON.parse(text)));

function setTheme(choice) {
  const root = document.documentElement;
  if (choice === "auto") delete root.dataset.theme;
  else root.dataset.theme = choice;
  for (const button of document.querySelectorAll("[data-theme-to]"))
    button.setAttribute("aria-pressed", String(button.dataset.themeTo === choice));
  redrawDrawn();
}

function wireTheme() {
  for (const button of document.querySelectorAll("[data-theme-to]"))
    button.addEventListener("click", () => {
      setTheme(button.dataset.themeTo);
      try {
        localStorage.setItem("dsprof-theme", button.dataset.themeTo);
      } catch {
        /* a page opened from a file may have no storage; the choice then lasts as long as the page */
      }
    });
  try {
    const kept = localStorage.getItem("dsprof-theme");
    if (kept) setTheme(kept);
  } catch {
    /* as above */
  }
}

function wireSearch() {
  const search = byId("search");
  if (!search) return;
  const rows = [...document.querySelectorAll("#settings tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const [row, text] of rows) {
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    byId("search-says").value = search.value ? `${whole(shown)} of ${whole(rows.length)}` : "";
  });
}

function wireContents() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.getAttribute("href").slice(1), link]));
  const sections = [...document.querySelectorAll("main > section")];
  const mark = () => {
    const line = 0.25 * innerHeight;
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
    const current = atEnd ? sections.at(-1) : sections.findLast((section) => section.getBoundingClientRect().top <= line) ?? sections[0];
    for (const [name, link] of links) {
      if (name === current.id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  };
  addEventListener("scroll", mark, { passive: true });
  mark();
}

const SHORT = 840; // px: a table that is not much higher than its box is shown whole

/* A table that is wider than its place says so; a shade alone is easily missed. */
function watchTables() {
  const seen = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      target.classList.toggle("wide", target.scrollWidth > target.clientWidth + 1);
      if (target.clientHeight) target.classList.toggle("short", target.firstElementChild?.offsetHeight < SHORT);
      countBelow(target);
    }
  });
  for (const place of document.querySelectorAll(".scroll")) {
    seen.observe(place);
    place.addEventListener("scroll", () => countBelow(place), { passive: true });
  }
}

/* How many rows lie below the edge, in a line that covers the one cut in two. */
function countBelow(place) {
  const hidden = place.scrollHeight - place.clientHeight - place.scrollTop;
  delete place.dataset.more;
  if (hidden < 4 || !place.clientHeight) return;
  const edge = place.getBoundingClientRect().bottom - 26;
  const below = [...place.querySelectorAll("tbody tr")].filter((row) => row.getBoundingClientRect().bottom > edge);
  if (below.length) place.dataset.more = `${count(below.length, "more row")} below`;
}

/* A number and its unit stay on one line. */
function tieUnits() {
  const unit = /(\d) (?=(?:%|s|ms|µs|min|h|[KMGT]?i?B(?:\/s)?)(?![\w]))/g;
  const places = document.querySelectorAll("h1, h2, h3, main p:not(.evidence *), .facts dd, figcaption, .legend li");
  for (const place of places) {
    const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replace(unit, "$1\u00a0");
  }
}

async function startTimeline(name, track) {
  const figure = `steps-${name}`;
  if (!plots.has(figure)) return;
  const loaded = await loadTrack(name, track);
  loaded.phaseColumns = loaded.phases ? loaded.phaseSeconds : null;
  const timeline = new Timeline(loaded, figure);
  timelines.set(name, timeline);
  const note = document.querySelector(`[data-range="${name}"]`);
  if (note) note.textContent = hint(timeline.noun);
}

async function start() {
  wireTheme();
  wireSearch();
  wireContents();
  watchTables();
  tieUnits();
  await Promise.all([loading, loadPlotly()]);
  watchPlots(page.figures);
  for (const [name, track] of Object.entries(page.tracks)) await startTimeline(name, track);
  document.documentElement.dataset.ready = "yes";
}

start();
