/* The chart of steps: zoom by brush, buttons or keys; every zoom shows the steps anew. */

const COLUMNS = 320;
const AIRY = 60;
const POINTS = 1200;
const TICKS = 9;
const LEAST = 1e-3; // of a step: what takes less is neither drawn nor named
const TWICE = 280; // ms within which a second click belongs to the first
const timelines = new Map(); // engine -> its chart of steps

class Timeline {
  constructor(track, name) {
    this.track = track;
    this.name = name;
    this.plot = plots.get(name);
    this.whole = this.plot.figure;
    this.noun = this.whole.layout.meta.noun; // a step, or a record that nobody knows the step of
    this.from = 0;
    this.to = track.size;
    this.row = -1;
    this.holder = document.querySelector(`[data-steps="${track.name}"]`);
    this.form = document.querySelector(`form[data-engine="${track.name}"]`);
    this.wire();
    if (this.plot.drawn) this.listen();
    else this.plot.begin = () => this.listen();
  }

  wire() {
    const form = this.form;
    this.launches(form.elements.launch);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.find(form.elements.step.value);
    });
    form.elements.in.addEventListener("click", () => this.scale(0.5));
    form.elements.out.addEventListener("click", () => this.scale(2));
    form.elements.all.addEventListener("click", () => this.show(0, this.track.size));
    this.holder.addEventListener("keydown", (event) => this.key(event));
    const table = document.querySelector(`[data-steps-table="${this.track.name}"]`);
    table.addEventListener("toggle", () => this.fillTable(table));
    this.table = table;
  }

  /* Numbers of steps begin anew with a launch: which one is meant must be said. */
  launches(choice) {
    const { segment, step, size } = this.track;
    const starts = [];
    for (let i = 0; i < size; i++) if (!i || segment[i] !== segment[i - 1]) starts.push(i);
    if (starts.length < 2) return;
    starts.forEach((start, i) => {
      const end = (starts[i + 1] ?? size) - 1;
      choice.append(element("option", `${segment[start] + 1}, ${this.noun}s ${whole(step[start])} to ${whole(step[end])}`, { value: `${start}:${end}` }));
    });
    choice.selectedIndex = starts.length - 1;
    choice.parentElement.hidden = false;
  }

  /* plotly's own events exist once the figure is drawn */
  listen() {
    this.plot.holder.on("plotly_relayout", (change) => this.zoomed(change));
    this.plot.holder.on("plotly_click", ({ points }) => this.clicked(this.slowestOf(points)));
  }

  /* One click opens a step, two show the whole run. plotly's own count of clicks begins anew
     with every drawing, and the drawer must not lie under the second one. */
  clicked(row) {
    if (this.waiting) {
      clearTimeout(this.waiting);
      this.waiting = 0;
      this.show(0, this.track.size);
      return;
    }
    this.waiting = setTimeout(() => {
      this.waiting = 0;
      this.open(row);
    }, TWICE);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      ArrowLeft: () => this.select(this.row < 0 ? this.to - 1 : this.row - 1),
      ArrowRight: () => this.select(this.row < 0 ? this.from : this.row + 1),
      Home: () => this.select(this.from),
      End: () => this.select(this.to - 1),
      Enter: () => this.row >= 0 && this.open(this.row),
      "+": () => this.scale(0.5),
      "-": () => this.scale(2),
      0: () => this.show(0, this.track.size),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  zoomed(change) {
    if (change["xaxis.autorange"]) return this.show(0, this.track.size);
    const low = change["xaxis.range[0]"] ?? change["xaxis.range"]?.[0];
    const high = change["xaxis.range[1]"] ?? change["xaxis.range"]?.[1];
    if (low === undefined || this.busy) return undefined;
    const from = lowerBound(this.track.x, low);
    return this.show(from, Math.max(from + 1, lowerBound(this.track.x, high)));
  }

  scale(factor) {
    const center = this.row >= this.from && this.row < this.to ? this.row : (this.from + this.to) / 2;
    const half = Math.max(2, ((this.to - this.from) * factor) / 2);
    this.show(Math.round(center - half), Math.round(center + half));
  }

  async show(from, to) {
    const { size, x, low } = this.track;
    this.from = Math.max(0, Math.min(from, size - 1));
    this.to = Math.max(this.from + 1, Math.min(to, size));
    const all = this.from === 0 && this.to === size;
    this.plot.figure = all ? this.whole : this.part();
    const edge = this.spacing() / 2;
    const few = this.to - this.from < 12 && !low && !this.whole.layout.xaxis.tickvals ? { dtick: 2 * edge, tick0: x[this.from] } : this.ticks();
    const range = this.edges(this.from, this.to);
    this.plot.view = all ? {} : { xaxis: { ...painted(this.whole.layout.xaxis, isDark()), ...few, range } };
    await this.redraw();
    this.say();
    showRange(this.track, this.from, this.to);
    if (this.table.open) this.fillTable(this.table);
  }

  async redraw() {
    this.busy = true;
    this.plot.view.shapes = [...painted(this.whole.layout.shapes ?? [], isDark()), ...this.mark()];
    await draw(this.name);
    this.busy = false;
  }

  /* Step numbers of the range where the axis is not the step number itself, as step_ticks of
     dsprof.charts.columns has them: a window is named at its last step. */
  ticks() {
    if (!this.whole.layout.xaxis.tickvals) return {};
    const { x, high, step } = this.track;
    const [many, last] = [Math.min(this.to - this.from, TICKS), this.to - 1 - this.from];
    const rows = [...new Set(Array.from({ length: many }, (_, i) => this.from + Math.floor((i * last) / Math.max(many - 1, 1))))];
    return { tickvals: rows.map((row) => (high ? high[row] - 0.5 : x[row])), ticktext: rows.map((row) => whole(step[row])) };
  }

  spacing() {
    const { x, size } = this.track;
    return size > 1 ? (x[size - 1] - x[0]) / (size - 1) : 1;
  }

  /* Where the columns of the steps from `a` up to `b` begin and end: those of windows span them. */
  edges(a, b) {
    const { x, low, high } = this.track;
    const half = this.spacing() / 2;
    return low ? [low[a], high[b - 1]] : [x[a] - half, x[b - 1] + half];
  }

  /* The first step of the window that a row stands for; of a single step that itself. */
  begin(row) {
    const { step, low, high } = this.track;
    return low ? step[row] - Math.round(high[row] - low[row]) + 1 : step[row];
  }

  /* The steps from `from` to `to` as columns and lines, drawn from every step's own numbers. */
  part() {
    const columns = this.columns();
    const data = this.whole.data.map((trace) => {
      if (trace.meta === "beyond") return trace;
      if (trace.meta === "columns") return { ...trace, ...this.heading(columns) };
      if (trace.type === "scatter") return { ...trace, ...this.line(trace.meta) };
      const places = { x: columns.map((c) => c.x), width: columns.map((c) => c.width) };
      if (trace.yaxis === "y2") return { ...trace, ...places, ...this.held(trace.meta, columns) };
      const values = trace.meta === "unknown" ? this.unexplained() : this.track[trace.meta];
      return { ...trace, ...places, y: this.means(values, columns), customdata: columns.map((c) => c.label) };
    });
    return { ...this.whole, data };
  }

  columns() {
    const { step, segment } = this.track;
    const each = Math.ceil((this.to - this.from) / COLUMNS);
    const starts = [];
    for (let i = this.from; i < this.to; i++) if ((i - this.from) % each === 0 || segment[i] !== segment[i - 1]) starts.push(i);
    const air = starts.length <= AIRY ? 0.92 : 1;
    const found = [];
    for (const [nth, a] of starts.entries()) {
      const b = starts[nth + 1] ?? this.to;
      const { noun } = this;
      const [first, last] = [this.begin(a), step[b - 1]];
      const [low, high] = this.edges(a, b);
      const label = first === last ? `${noun} ${whole(last)}` : `${noun}s ${whole(first)} to ${whole(last)}, mean`;
      found.push({ a, b, x: (low + high) / 2, width: (high - low) * air, label });
    }
    return found;
  }

  /* Mean seconds of every column, in the unit of the chart. */
  means(values, columns) {
    const { unit } = this.whole.layout.meta;
    return columns.map(({ a, b }) => {
      const mean = meanOf(values, a, b);
      return mean === null ? null : mean / unit;
    });
  }

  heading(columns) {
    return { x: columns.map((c) => c.x), y: this.means(this.track.seconds, columns), customdata: columns.map((c) => c.label) };
  }

  /* Steps that communication holds back, and by how much, as dsprof.charts.timeline has them. */
  held(name, columns) {
    const parts = this.track[name];
    const told = columns.map(({ a, b }) => {
      const count = parts.subarray(a, b).reduce((sum, part) => sum + Number.isFinite(part), 0);
      return { count, of: b - a, mean: meanOf(parts, a, b) };
    });
    const words = ({ count, of, mean }) => (!count ? "" : of === 1 ? share(mean) : `${whole(count)} of ${whole(of)} steps, ${share(mean)} of their time`);
    return { y: told.map(({ count, of, mean }) => (count ? (mean * count) / of : null)), customdata: told.map(words) };
  }

  line(name) {
    const values = this.track[name];
    const broken = this.track[`${name}_broken`];
    const customdata = [];
    const unit = name === "seconds" ? this.whole.layout.meta.unit : 1;
    const [from, to] = this.reach(values);
    const each = Math.max(1, Math.ceil((2 * (to - from)) / POINTS));
    const x = [];
    const y = [];
    let before = 0;
    const point = (i, value) => {
      x.push(this.track.x[i]);
      y.push(value);
      customdata.push(whole(this.track.step[i]));
    };
    for (let a = from; a < to; a += each)
      for (const i of pointsOf(values, broken, a, Math.min(a + each, to))) {
        const launch = this.track.segment[i];
        if (x.length && launch !== before) point(i, null); // no line leads from one launch to another
        point(i, Number.isFinite(values[i]) ? values[i] / unit : null);
        before = launch;
      }
    return { x, y, customdata, mode: x.length <= 60 ? "lines+markers" : "lines" };
  }

  /* The range and the nearest known value on either side, so that a line does not end inside. */
  reach(values) {
    let from = this.from - 1;
    while (from >= 0 && !Number.isFinite(values[from])) from--;
    let to = this.to;
    while (to < this.track.size && !Number.isFinite(values[to])) to++;
    return [Math.max(0, from), Math.min(this.track.size, to + 1)];
  }

  unexplained() {
    const { seconds: all, classes, size } = this.track;
    this.rest ??= Float32Array.from({ length: size }, (_, i) => {
      const known = classes.reduce((sum, name) => sum + (this.track[name][i] || 0), 0);
      return all[i] - known > LEAST * all[i] ? all[i] - known : NaN;
    });
    return this.rest;
  }

  /* The slowest step of the column that was clicked; lines have no width and do not count. */
  slowestOf(points) {
    const bar = points.find(({ data }) => data.type === "bar");
    if (!bar) return Math.min(lowerBound(this.track.x, points[0].x), this.track.size - 1);
    const { a, b } = this.columns()[bar.pointNumber];
    const { seconds: time } = this.track;
    const lasting = (i) => time?.[i] || 0; // NaN where no time is told
    let slowest = a;
    for (let i = a; i < b; i++) if (lasting(i) > lasting(slowest)) slowest = i;
    return slowest;
  }

  mark() {
    if (this.row < 0) return [];
    const at = this.track.x[this.row];
    const line = { color: painted(theme.palette.ink[0], isDark()), width: 1 };
    return [{ type: "line", xref: "x", yref: "paper", x0: at, x1: at, y0: 0, y1: 1, line }];
  }

  async select(row) {
    this.row = Math.max(0, Math.min(row, this.track.size - 1));
    if (this.row < this.from || this.row >= this.to) {
      const half = Math.max(10, (this.to - this.from) / 2);
      await this.show(Math.round(this.row - half), Math.round(this.row + half));
    } else await this.redraw();
    this.say();
  }

  async open(row) {
    await this.select(row);
    showStep(this, this.row);
  }

  /* Look a step up by its number; the nearest one printed, if the source skips it. */
  find(text) {
    const typed = text.replace(/^\s*(?:#|[a-z]+)/i, "").replace(/[\s,]/g, ""); // "step 1,200" is one, too
    const number = Number(typed);
    if (!typed || !Number.isFinite(number)) {
      this.form.elements.says.value = `Type the number of a ${this.noun}.`;
      return;
    }
    const { step, size } = this.track;
    const [start, end] = (this.form.elements.launch.value || `0:${size - 1}`).split(":").map(Number);
    let best = start;
    for (let i = start + 1; i <= end; i++) if (Math.abs(step[i] - number) <= Math.abs(step[best] - number)) best = i;
    const where = end - start + 1 < size ? "this launch" : "the source";
    this.missed = step[best] === number ? "" : `${capital(this.noun)} ${whole(number)} is not in ${where}; this is the nearest. `;
    this.open(best);
  }

  say() {
    const { step, seconds: time } = this.track;
    const range = `${capital(this.noun)}s ${fromTo(this.track, this.from, this.to)}.`;
    const inView = this.row >= this.from && this.row < this.to;
    const chosen = !inView ? "" : ` ${capital(this.noun)} ${whole(step[this.row])}${time ? `: ${seconds(time[this.row])}` : ""}.`;
    this.form.elements.says.value = (this.missed ?? "") + range + chosen;
    this.missed = "";
  }

  fillTable(details) {
    if (!details.open) return;
    const { step } = this.track;
    const rows = [];
    const shown = (name) => this.track[name].subarray(this.from, Math.min(this.to, this.from + 200));
    const { names, same } = worthColumns(toldOf(this.track), shown);
    const times = names.filter((name) => TIMES.has(name));
    const inUnit = oneUnit(times.flatMap((name) => [...shown(name)]));
    const forms = Object.fromEntries(names.map((name) => [name, formOf(name, inUnit, shown(name))]));
    for (let i = this.from; i < Math.min(this.to, this.from + 200); i++)
      rows.push([whole(step[i]), ...names.map((name) => forms[name](partOf(this.track, name, i)))]);
    const more = this.to - this.from > 200 ? `, the first 200 of ${whole(this.to - this.from)}; zoom in for others` : "";
    const alike = same.map((name) => `, ${measureWords(this.track, name)} ${cellOf(name, shown(name)[0])} in all of them`).join("");
    details.querySelector(".scroll").replaceChildren(tableOf(`${capital(this.noun)}s${more}${alike}`, [this.noun, ...names.map((n) => measureWords(this.track, n))], rows));
  }
}

/* The first and the last of some steps; numbers of several launches need theirs. */
function fromTo({ step, segment }, from, to) {
  const one = segment[from] === segment[to - 1];
  const [first, last] = [from, to - 1].map((row) => (one ? whole(step[row]) : `${whole(step[row])} of launch ${segment[row] + 1}`));
  return `${first} to ${last}`;
}

const capital = (word) => word[0].toUpperCase() + word.slice(1);
const measureWords = (track, name) => track.words[name] ?? theme.labels[name] ?? name.replaceAll("_", " ");
const TIMES = new Set(["seconds", "whole_seconds", ...Object.keys(theme.labels)]);

/* What is told of a step: how long it takes and where that goes, before what it trains. */
function toldOf({ measures, classes }) {
  const ofTime = (name) => TIMES.has(name) || name === "communication_share";
  return [...new Set([...measures.filter(ofTime), ...classes, ...measures])];
}

/* Measures that the steps shown tell of: classes that take some of their time, and what is not
   the same in all of them, which the caption says. */
function worthColumns(names, shown) {
  const largest = (name) => shown(name).reduce((most, value) => (value > most ? value : most), 0);
  const least = LEAST * Math.max(...names.filter((name) => TIMES.has(name)).map(largest), 0);
  const told = names.filter((name) => (name in theme.labels ? largest(name) > least : shown(name).some(Number.isFinite)));
  const isSame = (name) => !TIMES.has(name) && shown(name).length > 1 && shown(name).every((value) => value === shown(name)[0]);
  return { names: told.filter((name) => !isSame(name)), same: told.filter(isSame) };
}

const formOf = (name, inUnit, values) => (TIMES.has(name) ? inUnit : name === "communication_share" ? share : sameDigits(values));

const cellOf = (name, value) => (TIMES.has(name) ? seconds(value) : name === "communication_share" ? share(value) : plainNumber(value));

function lowerBound(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function meanOf(values, a, b) {
  let sum = 0;
  let count = 0;
  for (let i = a; i < b; i++)
    if (Number.isFinite(values[i])) {
      sum += values[i];
      count++;
    }
  return count ? sum / count : null;
}

/* The extremes, and a step whose value is no number: there the line is interrupted. */
function pointsOf(values, broken, a, b) {
  const found = extremes(values, a, b);
  const gap = broken ? broken.subarray(a, b).indexOf(1) : -1;
  return gap < 0 ? found : [...found, a + gap].sort((one, other) => one - other);
}

function extremes(values, a, b) {
  let low = -1;
  let high = -1;
  for (let i = a; i < b; i++) {
    if (!Number.isFinite(values[i])) continue;
    if (low < 0 || values[i] < values[low]) low = i;
    if (high < 0 || values[i] > values[high]) high = i;
  }
  return low < 0 ? [] : [...new Set([Math.min(low, high), Math.max(low, high)])];
}
