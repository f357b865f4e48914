// The roofline and the timeline of a profile. Texts go into the page as text, never as markup.
"use strict";

(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = (id) => document.getElementById(id);
  const make = (parent, name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  // Kernels differ in hue, by the golden angle in the order of their first calls.
  const kernels = [...new Set(data.calls.map((call) => call.kernel))];
  const colourOf = ({ kernel }) =>
    "hsl(" + ((210 + 137.5 * kernels.indexOf(kernel)) % 360).toFixed(0) + ", 55%, 58%)";
  for (const swatch of document.querySelectorAll("#by-kernel .swatch"))
    swatch.style.background = colourOf(swatch.dataset);
  const round = (value) => Number(value.toPrecision(3));

  // ------------------------------------------------------------------ what a shape tells

  const tip = element("tip");
  document.body.append(tip); // the drawing would cut it off
  const tells = (shape, lines) => {
    shape.addEventListener("mousemove", (event) => {
      tip.replaceChildren(...lines.map((text) => {
        const line = document.createElement("div");
        line.textContent = text;
        return line;
      }));
      tip.hidden = false;
      tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4)) + "px";
      const below = event.clientY + 14 + tip.offsetHeight > innerHeight;
      tip.style.top = event.clientY + (below ? -14 - tip.offsetHeight : 14) + "px";
    });
    shape.addEventListener("mouseout", () => { tip.hidden = true; });
  };
  const choose = (index) => {
    const box = data.calls[index].box;
    if (box >= 0) window.partition.choose(box);
  };
  for (const row of document.querySelectorAll("#calls tbody tr")) {
    const index = Number(row.dataset.call);
    row.onclick = () => choose(index);
    row.onkeydown = (event) => { if (event.key === "Enter") choose(index); };
  }

  // ------------------------------------------------------------------ roofline, both axes by powers

  const plot = element("roofline");
  const [LEFT, RIGHT, TOP, BOTTOM] = [52, 596, 12, 318];
  const points = data.calls.map((call, index) => ({ call, index }))
    .filter(({ call }) => call.gflops > 0 && call.intensity > 0);
  const peaks = Object.entries(data.roofs.gflops);
  const drawRoofline = () => {
    const slope = data.roofs.gbytes;
    const ridges = peaks.map(([, peak]) => peak / slope);
    const across = [...points.map(({ call }) => call.intensity), ...ridges];
    const high = [...points.map(({ call }) => call.gflops), ...peaks.map(([, peak]) => peak)];
    const from = Math.floor(Math.log10(Math.min(...across) / 1.5));
    const to = Math.ceil(Math.log10(Math.max(...across) * 1.5));
    const low = Math.floor(Math.log10(Math.min(...high) / 1.5));
    const top = Math.ceil(Math.log10(Math.max(...high) * 1.2));
    const x = (value) => LEFT + (RIGHT - LEFT) * (Math.log10(value) - from) / (to - from);
    const y = (value) => BOTTOM - (BOTTOM - TOP) * (Math.log10(value) - low) / (top - low);
    const grid = { stroke: "#d5dbe3", "stroke-width": 1 };
    const small = { "font-size": 11, fill: "#5d6b7c" };
    for (let power = from; power <= to; power++) {
      const at = x(10 ** power);
      make(plot, "line", { x1: at, x2: at, y1: TOP, y2: BOTTOM, ...grid });
      make(plot, "text", { x: at, y: BOTTOM + 15, "text-anchor": "middle", ...small }, round(10 ** power));
    }
    for (let power = low; power <= top; power++) {
      const at = y(10 ** power);
      make(plot, "line", { x1: LEFT, x2: RIGHT, y1: at, y2: at, ...grid });
      make(plot, "text", { x: LEFT - 6, y: at + 4, "text-anchor": "end", ...small }, round(10 ** power));
    }
    make(plot, "text", { x: (LEFT + RIGHT) / 2, y: 350, "text-anchor": "middle", ...small }, "flop per byte");
    make(plot, "text", { x: LEFT + 6, y: TOP + 13, ...small }, "GFLOP/s");
    const roof = { stroke: "#1c2430", "stroke-width": 1.5, fill: "none" };
    const most = Math.max(...peaks.map(([, peak]) => peak));
    const begin = Math.max(10 ** from, 10 ** low / slope);
    make(plot, "line", { class: "slope", x1: x(begin), y1: y(begin * slope), x2: x(most / slope), y2: y(most), ...roof });
    const [middleX, middleY] = [(x(begin) + x(most / slope)) / 2, (y(begin * slope) + y(most)) / 2];
    const turn = Math.atan2(y(most) - y(begin * slope), x(most / slope) - x(begin)) * 180 / Math.PI;
    make(plot, "text", { x: middleX, y: middleY - 6, "text-anchor": "middle",
      transform: "rotate(" + [turn, middleX, middleY] + ")", ...small }, "read " + round(slope) + " GB/s");
    for (const [name, peak] of peaks) {
      make(plot, "line", { class: "peak", x1: x(peak / slope), x2: RIGHT, y1: y(peak), y2: y(peak), ...roof });
      make(plot, "text", { x: RIGHT, y: y(peak) - 5, "text-anchor": "end", ...small },
        name + " " + round(peak) + " GFLOP/s");
    }
    for (const { call, index } of points) {
      const dot = make(plot, "circle", {
        class: "call", "data-call": index, cx: x(call.intensity), cy: y(call.gflops),
        r: 3 + 14 * Math.sqrt(call.ms / data.whole_ms), fill: colourOf(call),
        "fill-opacity": 0.7, stroke: "#1c2430", "stroke-width": 0.7,
      });
      tells(dot, [call.name, call.text, round(call.gflops) + " GFLOP/s at " + round(call.intensity) +
        " flop per byte, in " + call.precision]);
      dot.addEventListener("click", () => choose(index));
    }
  };
  if (peaks.length && points.length) drawRoofline();
  else make(plot, "text", { x: LEFT, y: 40, "font-size": 13 }, "No call multiplies.");

  // ------------------------------------------------------------------ timeline

  const lanes = element("lanes");
  const line = lanes.querySelector("svg");
  const [NAMES, LANE, AXIS] = [120, 24, 22];
  const workers = [...new Set(data.spans.map((span) => span[1]))].sort((a, b) => a - b);
  const laneOf = new Map(workers.map((worker, index) => [worker, index]));
  const nameOf = (worker) =>
    worker < 0 ? "calls" : worker === 0 ? "worker 0 (caller)" : "worker " + worker;
  line.setAttribute("height", AXIS + LANE * workers.length + 4);
  for (const [worker, lane] of laneOf)
    make(line, "text", { x: 4, y: AXIS + LANE * lane + 16, "font-size": 12 }, nameOf(worker));
  const ticks = make(line, "g", {});
  const shapes = data.spans.map(([index, worker, begin, end]) => {
    const call = data.calls[index];
    const shape = make(line, "rect", {
      class: "span", "data-call": index, "data-worker": worker, y: AXIS + LANE * laneOf.get(worker),
      height: LANE - 4, fill: colourOf(call),
    });
    tells(shape, [call.name, nameOf(worker) + ": " + (end - begin).toFixed(4) + " ms, from " +
      begin.toFixed(4) + " ms on; median of the call: " + call.text]);
    shape.addEventListener("click", () => choose(index));
    return [shape, begin, end];
  });
  let zoom = 1;
  const stretch = () => {
    const width = Math.max(200, lanes.clientWidth - 4) * zoom;
    line.setAttribute("width", width);
    const scale = (width - NAMES - 30) / data.run_ms;
    for (const [shape, begin, end] of shapes) {
      shape.setAttribute("x", NAMES + begin * scale);
      shape.setAttribute("width", Math.max(0.5, (end - begin) * scale));
    }
    ticks.replaceChildren();
    // Of 1, 2, 5, 10, 20, ... the first that leaves room for a number.
    const least = 80 / scale, power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((times) => times * power).find((value) => value >= least);
    for (let i = 0; i * step <= data.run_ms; i++) {
      const at = NAMES + i * step * scale;
      make(ticks, "line", { x1: at, x2: at, y1: 16, y2: AXIS + LANE * workers.length, stroke: "#d5dbe3" });
      make(ticks, "text", { x: at, y: 12, "font-size": 11, fill: "#5d6b7c", "text-anchor": "middle" },
        round(i * step) + " ms");
    }
  };
  const zoomBy = (factor) => {
    const before = zoom, middle = lanes.scrollLeft + lanes.clientWidth / 2;
    zoom = Math.min(512, Math.max(1, zoom * factor));
    stretch();
    lanes.scrollLeft = middle * zoom / before - lanes.clientWidth / 2;
  };
  element("wider").onclick = () => zoomBy(2);
  element("narrower").onclick = () => zoomBy(0.5);
  addEventListener("resize", stretch);
  stretch();
  document.documentElement.dataset.profile = "true";
})();
