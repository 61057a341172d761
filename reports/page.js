/* Where the page starts: what needs no data first, then data and charts. */

let page = { sources: [], lines: {} };
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
  const seen = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(target.id)?.setAttribute("aria-current", "true");
      }
    },
    { rootMargin: "-15% 0px -75% 0px" },
  );
  for (const section of document.querySelectorAll("main > section")) seen.observe(section);
}

/* A table that is wider than its place says so; a shade alone is easily missed. */
function watchTables() {
  const seen = new ResizeObserver((entries) => {
    for (const { target } of entries) target.classList.toggle("wide", target.scrollWidth > target.clientWidth + 1);
  });
  for (const place of document.querySelectorAll(".scroll")) seen.observe(place);
}

async function startTimeline(name, track) {
  const figure = `steps-${name}`;
  if (!plots.has(figure)) return;
  const loaded = await loadTrack(name, track);
  loaded.phaseColumns = loaded.phases ? loaded.phaseSeconds : null;
  const timeline = new Timeline(loaded, figure);
  timelines.set(name, timeline);
  await timeline.listen();
}

async function start() {
  wireTheme();
  wireSearch();
  wireContents();
  watchTables();
  await Promise.all([loading, loadPlotly()]);
  watchPlots(page.figures);
  for (const [name, track] of Object.entries(page.tracks)) await startTimeline(name, track);
  document.documentElement.dataset.ready = "yes";
}

start();
