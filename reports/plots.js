/* Figures: drawn when they come into view, in the colours of the theme. */

const theme = JSON.parse(byId("theme").textContent);
const night = new Map(Object.values(theme.palette));
const plots = new Map(); // name -> { holder, figure, drawn }

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

/* The figure with every light colour exchanged for its dark one. */
function painted(value, dark) {
  if (!dark) return value;
  if (typeof value === "string") return night.get(value) ?? value;
  if (Array.isArray(value)) return typeof value.at(-1) === "number" ? value : value.map((v) => painted(v, dark));
  if (value && typeof value === "object") {
    const copy = {};
    for (const key in value) copy[key] = painted(value[key], dark);
    return copy;
  }
  return value;
}

const LEGEND_ROWS = 44; // px, of the rows that a legend takes on a narrow screen

const copyOf = (value) => JSON.parse(JSON.stringify(value));

function draw(name, { dark = isDark(), width, low = 1 } = {}) {
  const plot = plots.get(name);
  const { data, layout } = plot.figure;
  const first = !plot.drawn;
  plot.drawn = true;
  const room = width ?? plot.holder.clientWidth;
  const shown = painted(layout, dark);
  const narrow = room < 560 ? { margin: { ...shown.margin, l: Math.min(shown.margin.l, 48), r: 6 }, yaxis: narrowAxis(data[0], shown.yaxis) } : {};
  const tall = shown.height + (room < 560 && shown.showlegend ? LEGEND_ROWS : 0);
  const narrowed = room < 560 ? data.map(forNarrow) : data;
  const traces = data[0]?.type === "icicle" ? [shortened({ ...data[0], level: plot.inside ?? "" }, room)] : narrowed;
  if (traces[0]?.keys) tellKeys(plot.keys, { ...data[0], keys: traces[0].keys }, data[0]);
  const drawn = Plotly.react(plot.holder, copyOf(painted(traces, dark)), copyOf({ ...shown, ...narrow, width: room, height: Math.max(Math.min(tall, 160), Math.round(low * tall)), ...plot.view }), {
    displayModeBar: false,
    doubleClick: data[0]?.meta === "columns" ? false : "reset", // steps come back with their own numbers
    showTips: false,
  });
  if (first) plot.begin?.();
  if (first && data[0]?.meta === "rows") plot.holder.on("plotly_click", ({ points }) => showRow(plot.holder, points[0]));
  if (first && data[0]?.type === "icicle") plot.holder.on("plotly_icicleclick", ({ points }) => stepInto(name, points[0].id) && false);
  if (first && data[0]?.meta === "places") plot.holder.on("plotly_click", ({ points }) => openPlace(points[0].customdata));
  return drawn;
}

/* On a narrow screen marks are smaller, so that they do not cover each other, and names shorter. */
function forNarrow(trace) {
  if (Array.isArray(trace.marker?.size)) return { ...trace, marker: { ...trace.marker, size: trace.marker.size.map((size) => 0.55 * size) } };
  return trace;
}

const LONGEST_NAME = 18; // letters beside a map on a narrow screen
function narrowAxis({ type, y }, axis) {
  if (type !== "heatmap") return axis;
  const short = (name) => (name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name);
  return { ...axis, tickvals: y, ticktext: y.map(short) };
}

const PER_LETTER = 6.1; // px of the widest face in use, at 11 px

/* Words of an icicle as far as they fit: class, then share, then time are left out first. A name
   that does not fit is cut, and led by a letter, with which it stands below the drawing. */
function shortened(trace, room) {
  const width = room * (trace.domain.x[1] - trace.domain.x[0]);
  const all = trace.values[Math.max(0, trace.ids.indexOf(trace.level))];
  const wide = trace.values.map((value) => Math.min(width, (width * value) / all));
  const letters = wide.map((px) => Math.floor(px / PER_LETTER - 1));
  const text = trace.text.map((said, i) => {
    const parts = said.split(" · ");
    while (parts.length && parts.join(" · ").length > letters[i]) parts.pop();
    return parts.join(" · ");
  });
  const names = trace.labels.map(plainOf);
  const keys = keysOf(trace, names, wide, letters);
  const labels = names.map((name, i) => fitting(name, letters[i], keys.get(i)));
  const hover = trace.text.map((said, i) => `${trace.labels[i]}<br>${said}<br>${trace.customdata[i]}`);
  return { ...trace, text, labels, customdata: hover, hovertemplate: "%{customdata}<extra></extra>", keys };
}

/* The letters of the pieces in view whose names do not fit, the widest of them if there are many:
   row by row, from left to right. */
const KEYS = "abcdefghijklmnopqrstuvwxyz";
const NARROWEST = 13; // px: one letter and the room around it
function keysOf({ ids, parents, level }, names, wide, letters) {
  const depth = (i) => (ids[i] === level || !parents[i] ? 0 : 1 + depth(ids.indexOf(parents[i])));
  const inView = (i) => !level || ids[i] === level || (parents[i] && inView(ids.indexOf(parents[i])));
  const cut = names.map((_, i) => i).filter((i) => wide[i] >= NARROWEST && names[i].length > letters[i] && inView(i));
  const widest = cut.sort((one, other) => wide[other] - wide[one]).slice(0, KEYS.length);
  const rows = widest.sort((one, other) => depth(one) - depth(other) || one - other);
  return new Map(rows.map((i, nth) => [i, KEYS[nth]]));
}

/* A name as far as it fits; of few letters nothing could be told, and its letter stands alone. */
const FEWEST = 5;
function fitting(name, letters, key) {
  if (name.length <= letters) return escaped(name);
  if (!key) return " ";
  const room = letters - key.length - 2;
  return room < FEWEST ? key : `${key} ${escaped(name.slice(0, room))}…`;
}

/* Below the drawing: what the letters in it stand for. */
function tellKeys(place, { keys, labels }, { text }) {
  place.replaceChildren();
  place.hidden = !keys.size;
  for (const [i, key] of keys) {
    const item = element("li");
    item.append(element("b", key), ` ${plainOf(labels[i])} `, element("span", text[i].split(" · ").slice(0, 2).join(" · "), { class: "quiet" }));
    place.append(item);
  }
}

/* What markup says. */
const plainOf = (markup) => new DOMParser().parseFromString(markup, "text/html").body.textContent;

/* A phase fills the width, with what lies inside it; nothing lies inside of most of them. */
function stepInto(name, id) {
  const plot = plots.get(name);
  const { ids, parents } = plot.figure.data[0];
  const at = ids.indexOf(id);
  const whole = at <= 0 || id === plot.inside;
  if (!whole && !parents.includes(id)) return true;
  plot.inside = whole ? undefined : id;
  plot.tools.elements.phase.value = whole ? ids[0] : id;
  plot.tools.elements.whole.hidden = whole;
  draw(name);
  return true;
}

function leavePhases() {
  for (const [name, { inside, figure }] of plots) if (inside) stepInto(name, figure.data[0].ids[0]);
}

/* Which phase fills the width, to be chosen and left by keyboard as well. */
function icicleTools(name, chart) {
  const { ids, labels, parents } = plots.get(name).figure.data[0];
  const within = ids.map((id, i) => [id, labels[i]]).filter(([id], i) => !i || (parents.includes(id) && parents[i]));
  if (within.length < 2) return;
  const form = element("form", "", { class: "tools" });
  const choice = element("select", "", { name: "phase" });
  choice.append(...within.map(([id, label], i) => element("option", i ? plainOf(label) : "the whole step", { value: id })));
  const label = element("label", "Phases inside ");
  label.append(choice);
  const back = element("button", "Whole step", { type: "button", name: "whole", hidden: "" });
  form.append(label, back);
  chart.prepend(form);
  choice.addEventListener("change", () => stepInto(name, choice.value));
  back.addEventListener("click", () => stepInto(name, ids[0]));
  form.addEventListener("submit", (event) => event.preventDefault());
  plots.get(name).tools = form;
}

/* The row of the table that a mark or a cell is drawn from. */
function showRow(holder, { customdata, pointIndex, data }) {
  const place = holder.closest(".chart");
  const table = place.querySelector("table") ?? place.closest("section").querySelector("section > .scroll table");
  const row = table?.tBodies[0].rows[data.type === "heatmap" ? pointIndex[0] : customdata];
  if (!row) return;
  const details = row.closest("details");
  if (details) details.open = true;
  for (const other of table.querySelectorAll(".pointed")) other.classList.remove("pointed");
  row.classList.add("pointed");
  row.scrollIntoView({ block: "center" });
}

const openPlace = ([source, line]) => line && showLine(page.sources.indexOf(source), line);

function drawAll(options) {
  return Promise.all([...plots.keys()].map((name) => draw(name, options)));
}

function redrawDrawn() {
  for (const [name, plot] of plots) if (plot.drawn) draw(name);
}

function watchPlots(figures) {
  const seen = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        seen.unobserve(target);
        draw(target.dataset.chart);
      }
    },
    { rootMargin: "400px" },
  );
  for (const chart of document.querySelectorAll("[data-chart]")) {
    const name = chart.dataset.chart;
    plots.set(name, { holder: chart.querySelector(".plot"), figure: figures[name], drawn: false, view: {} });
    chart.querySelector(".plot").style.minHeight = `${figures[name].layout.height}px`;
    if (figures[name].data[0]?.type === "icicle") {
      icicleTools(name, chart);
      plots.get(name).keys = element("ul", "", { class: "legend keys", hidden: "", "aria-label": "Phases whose names do not fit" });
      chart.querySelector(".holder").after(plots.get(name).keys);
    }
    seen.observe(chart);
  }
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(watchPlots.later);
    watchPlots.later = setTimeout(redrawDrawn, 120);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawDrawn);
  addEventListener("beforeprint", () => drawAll({ dark: false, width: 700, low: 0.65 }));
  addEventListener("afterprint", redrawDrawn);
}
