/* One step taken apart, and the mean step of a range. */

/* Seconds of one step per phase, as PhaseTable.mean of dsprof.charts has them. */
function phaseTotals({ size, phases: { names, classes } }, columns, rows) {
  const sums = new Float64Array(names.length);
  const rare = classes.map((word) => word === "checkpoint");
  let told = 0;
  for (const i of rows) {
    let any = false;
    for (let p = 0; p < names.length; p++) {
      const value = columns[p * size + i];
      if (!Number.isFinite(value)) continue;
      sums[p] += value;
      any ||= !rare[p];
    }
    told += any;
  }
  return sums.map((sum, p) => sum / Math.max(rare[p] ? rows.length : told, 1));
}

/* What two timers measure is counted where it is shown, as PhaseTable.drawn has it. */
function drawnOnce({ parents, shared }, totals) {
  const once = Float64Array.from(totals);
  for (const [timer, phase] of shared)
    for (let above = timer; above >= 0; above = parents[above]) once[above] = Math.max(0, once[above] - totals[phase]);
  return once;
}

/* What no timer covers of a step of so many seconds. */
function untimed(phases, totals, step) {
  const once = drawnOnce(phases, totals.map((value) => value || 0)); // NaN of a phase that did not run
  return Math.max(0, phases.parents.reduce((left, parent, i) => (parent < 0 ? left - once[i] : left), step));
}

function selfTimes(phases, totals) {
  const once = drawnOnce(phases, totals);
  const own = Float64Array.from(once);
  phases.parents.forEach((parent, child) => {
    if (parent >= 0) own[parent] -= once[child];
  });
  return own.map((value) => Math.max(0, value));
}

/* Icicle and table of a range, from every step's own numbers. */
function showRange(track, from, to) {
  const note = document.querySelector(`[data-range="${track.name}"]`);
  const name = `phases-${track.name}`;
  const plot = plots.get(name);
  if (!note || !plot) return;
  const all = from === 0 && to === track.size;
  plot.whole ??= plot.figure;
  const { noun } = timelines.get(track.name);
  const range = rangeOf(track, from, to);
  note.textContent = all ? hint(noun) : rangeWords(track, range, noun, from, to);
  note.classList.toggle("hint", all);
  note.previousElementSibling.hidden = !all; // it tells of the mean of the whole run
  const totals = phaseTotals(track, track.phaseColumns, range.rows);
  track.range = range;
  const step = meanAt(range.seconds ?? [], range.rows);
  plot.figure = all ? plot.whole : icicleOf(track, plot.whole, totals, step);
  if (plot.drawn) draw(name);
  fillPhases(track, name, totals, step, all);
}

const middle = (values) => Float64Array.from(values).sort()[values.length >> 1];

/* The steps that the mean of a range is of, and what each takes: where a source says of enough
   of them how long all of it took, or of one that timers leave much of it out, these alone, as
   dsprof.analysis.breakdown.main_steps has it. */
function rangeOf(track, from, to) {
  const rows = Array.from({ length: to - from }, (_, i) => from + i);
  const told = track.whole_seconds ? rows.filter((row) => Number.isFinite(track.whole_seconds[row])) : [];
  const usual = middle(rows.map((row) => track.seconds[row]));
  const leftOut = told.some((row) => track.seconds[row] < Math.min(0.9 * track.whole_seconds[row], 1.5 * usual));
  return told.length >= 2 || leftOut ? { rows: told, seconds: track.whole_seconds, told: true } : { rows, seconds: track.seconds, told: false };
}

const hint = (noun) => `Zoom the chart of ${noun}s to see the mean of another range here.`;

function rangeWords(track, { rows, told }, noun, from, to) {
  const ends = `${fromTo(track, from, to)}, the range chosen above`;
  const which = rows.length === 1 ? "the one" : "those";
  if (told) return `Mean of ${count(rows.length, noun)} of ${ends}: ${which} whose whole time is known.`;
  const sum = track.measures.includes("whole_seconds") ? ` Of too few of them the whole time is told: a ${noun} is what its timers sum to.` : "";
  return `Mean of ${noun}s ${ends}.${sum}`;
}

function meanAt(values, rows) {
  const known = rows.map((row) => values[row]).filter(Number.isFinite);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

function icicleOf(track, figure, totals, step) {
  const { parents, classes, names, shared } = track.phases;
  const once = drawnOnce(track.phases, totals);
  const all = step || parents.reduce((sum, parent, i) => (parent < 0 ? sum + once[i] : sum), 0);
  const rest = untimed(track.phases, totals, all);
  const own = selfTimes(track.phases, totals);
  const fitted = fit(parents, once, all);
  const values = [all, ...fitted, rest];
  const real = [all, ...totals, rest];
  const notes = ["all of it", ...[...own].map((value, i) => `self ${seconds(value)} · ${theme.labels[classes[i]] ?? classes[i]}`), "no timer covers it"];
  for (const [timer, phase] of shared) notes[timer + 1] += `<br>${seconds(totals[phase])} of it drawn as ${escaped(names[phase])}`;
  const words = ["", ...classes.map((word, i) => (parents.includes(i) ? "" : ` · ${theme.short[word] ?? word}`)), ""];
  const trace = figure.data[0];
  return {
    ...figure,
    data: [{
      ...trace,
      values: trace.meta.map((i) => values[i]),
      text: trace.meta.map((i) => `${seconds(real[i])} · ${share(real[i] / all)}${words[i]}`),
      customdata: trace.meta.map((i) => notes[i]),
    }],
  };
}

function fit(parents, totals, whole) {
  const fitted = Float64Array.from(totals);
  for (let parent = -1; parent < fitted.length; parent++) {
    const inside = parents.reduce((sum, above, i) => (above === parent ? sum + fitted[i] : sum), 0);
    const room = parent < 0 ? whole : fitted[parent];
    if (inside > room)
      parents.forEach((above, i) => {
        if (above === parent) fitted[i] *= room / inside;
      });
  }
  return fitted;
}

function fillPhases(track, name, totals, step, whole) {
  const rows = document.querySelectorAll(`table[data-table="${name}"] tbody tr`);
  const { parents } = track.phases;
  const own = selfTimes(track.phases, totals);
  const all = step || parents.reduce((sum, parent, i) => (parent < 0 ? sum + totals[i] : sum), 0);
  const widest = Math.max(...own, 1e-12);
  const inUnit = oneUnit(totals);
  const alone = oneUnit(own);
  const rest = untimed(track.phases, totals, all);
  rows.forEach((row, i) => {
    if (i === parents.length) return putRest(row, inUnit(rest), share(rest / all), whole);
    for (const cell of row.cells) aim(cell, whole ? null : [track.name, i, cell.cellIndex === 4 && parents.includes(i)]);
    put(row.cells[2], inUnit(totals[i]), whole);
    put(row.cells[3], share(totals[i] / all), whole);
    put(row.cells[4], `${alone(own[i])} `, whole);
    for (const rect of row.cells[4].querySelectorAll("rect")) {
      rect.whole ??= rect.getAttribute("width");
      rect.setAttribute("width", whole ? rect.whole : `${(100 * own[i]) / widest}%`);
    }
    return undefined;
  });
}

/* The last row, of what no timer covers. */
function putRest(row, time, part, whole) {
  put(row.cells[2], time, whole);
  put(row.cells[3], part, whole);
}

/* A number of a range is proved by the steps of that range. */
function aim(cell, range) {
  const proof = cell.querySelector(".proof");
  if (!proof) return;
  if (range) proof.dataset.mean = JSON.stringify(range);
  else delete proof.dataset.mean;
}

function showRangeProof(proof) {
  const [name, phase, self] = JSON.parse(proof.dataset.mean);
  const { track, noun } = timelines.get(name);
  const { rows } = track.range;
  const value = (row) => track.phaseColumns[phase * track.size + row];
  const told = rows.filter((row) => Number.isFinite(value(row)) && track.first_line[row] > 0);
  const longest = told.reduce((best, row) => (value(row) > value(best) ? row : best), told[0]);
  const lines = [...new Set([told[0], longest, told.at(-1)])].filter((row) => row !== undefined).sort((a, b) => a - b);
  const parts = [element("p", `Mean of ${count(told.length, noun)}, ${fromTo(track, rows[0], rows.at(-1) + 1)}. Here: the lines of the first, the longest and the last.`, { class: "quiet" })];
  if (self) parts.push(element("p", `Self time is what is left of ${track.phases.names[phase]} without the phases inside it, whose lines are among these.`, { class: "quiet" }));
  for (const row of lines) {
    const word = row === longest && told.length > 1 ? ", the longest" : "";
    parts.push(element("h3", `${capital(noun)} ${whole(track.step[row])}${word}: ${seconds(value(row))}`), ...linesOfStep(track, row));
  }
  openDrawer(`What ${proof.textContent.trim()} is made of`, parts);
}

/* Another text for a cell; the one it came with when the whole run is shown again. */
function put(cell, text, whole) {
  const holder = cell.querySelector(".proof") ?? cell.firstChild;
  cell.whole ??= holder.textContent;
  holder.textContent = whole ? cell.whole : text;
}

/* The drawer with one step: its measures, its phases, its lines. */
function showStep(timeline, row) {
  const { track } = timeline;
  const parts = [pairsOf(track, row)];
  if (track.phases) parts.push(phasesOf(track, row));
  parts.push(element("h3", `Lines of this ${timeline.noun}`), ...linesOfStep(track, row));
  const launch = track.segment[track.size - 1] > track.segment[0] ? `, launch ${track.segment[row] + 1}` : "";
  openDrawer(`${capital(timeline.noun)} ${whole(track.step[row])}${launch}`, parts, (by) => timeline.open(row + by));
}

function pairsOf(track, row) {
  const list = element("dl", "", { class: "pairs" });
  const said = [["held back by", track.bounds[track.bound[row]]]];
  for (const name of toldOf(track))
    if (Number.isFinite(track[name][row])) said.push([measureWords(track, name), cellOf(name, partOf(track, name, row))]);
  if (track.loss_broken?.[row]) said.push(["loss", Number.isNaN(track.loss?.[row] ?? NaN) ? "nan" : "inf"]);
  if (track.validated?.[row]) said.push(["follows", "a validation"]);
  for (const [label, value] of said) {
    const pair = element("div");
    pair.append(element("dt", label), element("dd", value));
    list.append(pair);
  }
  return list;
}

/* A number of one step; what its timers leave of the whole step is other time. */
function partOf(track, name, row) {
  const left = name === "other" ? (track.whole_seconds?.[row] ?? NaN) - track.seconds[row] : NaN;
  return track[name][row] + (left > 0 ? left : 0);
}

function phasesOf(track, row) {
  const { names, parents } = track.phases;
  const { size } = track;
  const at = (columns, p) => columns[p * size + row];
  const all = track.whole_seconds?.[row] || track.seconds?.[row] || parents.reduce((sum, parent, p) => (parent < 0 ? sum + (at(track.phaseColumns, p) || 0) : sum), 0);
  const rows = [];
  const columns = track.slowest ? [track.phaseColumns, track.longest] : [track.phaseColumns];
  const rest = untimed(track.phases, names.map((_, p) => at(track.phaseColumns, p)), all);
  const inUnit = oneUnit([rest, ...columns.flatMap((column) => names.map((_, p) => at(column, p)))]);
  names.forEach((name, p) => {
    const value = at(track.phaseColumns, p);
    if (!Number.isFinite(value)) return;
    let depth = 0;
    for (let above = parents[p]; above >= 0; above = parents[above]) depth++;
    const cells = ["\u2003".repeat(depth) + name, inUnit(value), share(value / all)];
    if (track.slowest) cells.push(`${inUnit(at(track.longest, p))}, rank ${at(track.slowest, p)}`);
    rows.push(cells);
  });
  if (rows.length && rest > LEAST * all) rows.push([theme.labels.unknown, inUnit(rest), share(rest / all), ...(track.slowest ? ["–"] : [])]);
  const head = ["phase", track.slowest ? "mean of the ranks" : "time", "of the step", ...(track.slowest ? ["slowest rank"] : [])];
  return rows.length ? tableOf("Phases of this step", head, rows) : element("p", "The source does not break this step into phases.", { class: "why" });
}
