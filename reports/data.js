"use strict";
/* Packed blocks of this file, back to JSON, script and columns of numbers. */

const byId = (id) => document.getElementById(id);

async function unpack(id) {
  const letters = atob(byId(id).textContent);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(plain);
}

const unpackText = async (id) => (await unpack(id)).text();

/* plotly.js writes a style element and style attributes, which the policy forbids.
   Its rules stand in our own style; its attributes go through the object model. */
async function loadPlotly() {
  const code = await unpackText("library");
  for (const [, id] of code.matchAll(/getElementById\("([0-9a-f]{64})"\)/g)) {
    const taken = document.createElement("template");
    taken.id = id;
    document.head.append(taken);
  }
  const set = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style") this.style.cssText = value;
    else set.call(this, name, value);
  };
  const script = document.createElement("script");
  script.textContent = code;
  document.head.append(script);
}

/* Columns as dsprof.page.pack wrote them: the first bytes of all values, then the second ... */
async function loadTrack(name, track) {
  const bytes = new Uint8Array(await (await unpack("track-" + name)).arrayBuffer());
  const columns = {};
  let start = 0;
  for (const { name: column, size, type } of track.index) {
    const whole = new Uint8Array(4 * size);
    for (let plane = 0; plane < 4; plane++)
      for (let i = 0, from = start + plane * size; i < size; i++) whole[4 * i + plane] = bytes[from + i];
    start += 4 * size;
    columns[column] = type === "i" ? summed(new Int32Array(whole.buffer)) : new Float32Array(whole.buffer);
  }
  return { ...track, ...columns, name };
}

function summed(differences) {
  for (let i = 1; i < differences.length; i++) differences[i] += differences[i - 1];
  return differences;
}
