// Draws the network of a partition report. Every text from the model goes into the page as text
// (textContent), never as markup.
"use strict";

(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = (id) => document.getElementById(id);
  const LEFT = "#f7b2ad";
  const PLAIN = "#e3e7ec";
  // From this many boxes on, the layout takes the quicker, less tidy, assignment of ranks.
  const MANY = 1500;

  // Neighbouring regions differ most if hues advance by the golden angle.
  const colours = new Map();
  data.regions.forEach((name, index) => {
    colours.set(name, "hsl(" + ((150 + 137.5 * index) % 360).toFixed(0) + ", 52%, 74%)");
  });
  // From green to red, where nodes were compared or timed; what was not is grey.
  const heated = data.scale.length > 0;
  const heatColour = (heat) => "hsl(" + (120 - 120 * heat).toFixed(0) + ", 62%, 72%)";
  const colourOf = (node) =>
    heated ? (node.heat === null ? PLAIN : heatColour(node.heat))
    : node.region ? colours.get(node.region) || PLAIN : node.kind === "left" ? LEFT : PLAIN;

  const short = (text, length) =>
    text.length > length ? text.slice(0, length - 1) + "\u2026" : text;
  const labelOf = (node) => {
    const operator = node.operator.replace(/^(ext|relax)\./, "");
    return node.name ? short(operator, 30) + "\n" + short(node.name, 30) : short(operator, 30);
  };

  const began = performance.now();
  const cy = cytoscape({
    container: element("graph"),
    elements: {
      nodes: data.nodes.map((node, index) => ({
        data: { id: "n" + index, label: labelOf(node), colour: colourOf(node), index: index },
        classes: node.kind,
      })),
      edges: data.edges.map(([source, target], index) => ({
        data: { id: "e" + index, source: "n" + source, target: "n" + target },
      })),
    },
    style: [
      {
        selector: "node",
        style: {
          shape: "round-rectangle", width: 190, height: 38, "background-color": "data(colour)",
          "border-width": 1, "border-color": "#7b8794", label: "data(label)",
          "text-wrap": "wrap", "line-height": 1.2, "text-valign": "center", "font-size": 11, color: "#1c2430",
          "min-zoomed-font-size": 5,
        },
      },
      { selector: ".input, .output", style: { shape: "ellipse", "background-color": "white" } },
      { selector: ".left", style: { "border-width": 2, "border-color": "#d64545",
        "border-style": "dashed" } },
      {
        selector: "edge",
        style: {
          width: 1.5, "line-color": "#9aa5b1", "target-arrow-color": "#9aa5b1",
          "target-arrow-shape": "triangle", "curve-style": "bezier", "arrow-scale": 0.8,
        },
      },
      { selector: ".faded", style: { opacity: 0.25 } },
      { selector: ".hit", style: { "border-width": 4, "border-color": "#1f6feb" } },
      { selector: ":selected", style: { "border-width": 5, "border-color": "#0b3d91" } },
    ],
    layout: {
      name: "dagre", rankDir: "TB", nodeSep: 24, rankSep: 32, animate: false, fit: false,
      ranker: data.nodes.length > MANY ? "longest-path" : "network-simplex",
    },
    minZoom: 0.01,
    maxZoom: 4,
    autoungrabify: true,
    hideEdgesOnViewport: data.nodes.length > MANY,
  });

  // ------------------------------------------------------------------ texts about one operator

  const rows = (node) => [
    ["name", node.name], ["operator", node.operator], ["shapes", node.shapes],
    ["region", node.region], ["kernel", node.kernel],
    ["MACs", node.macs ? (node.macs / 1e6).toFixed(3) + " M" : ""], ["error", node.error], ["time", node.time],
    ["reason", node.reason],
  ].filter((row) => row[1]);

  const describe = (box, node) => {
    box.replaceChildren(...rows(node).map(([title, text]) => {
      const line = document.createElement("div");
      const name = document.createElement("b");
      name.textContent = title + "  ";
      line.append(name, text);
      return line;
    }));
  };
  const nodeOf = (drawn) => data.nodes[drawn.data("index")];

  const tip = element("tip");
  const place = (event) => {
    const at = event.originalEvent;
    if (!at) return;
    const right = at.clientX + 16 + tip.offsetWidth > innerWidth;
    const below = at.clientY + 16 + tip.offsetHeight > innerHeight;
    tip.style.left = Math.max(4, at.clientX + (right ? -16 - tip.offsetWidth : 16)) + "px";
    tip.style.top = Math.max(4, at.clientY + (below ? -16 - tip.offsetHeight : 16)) + "px";
  };
  cy.on("mouseover", "node", (event) => {
    describe(tip, nodeOf(event.target));
    tip.hidden = false;
    place(event);
  });
  cy.on("mousemove", "node", place);
  cy.on("mouseout", "node", () => { tip.hidden = true; });
  cy.on("viewport", () => { tip.hidden = true; });
  cy.on("select", "node", (event) => describe(element("selected"), nodeOf(event.target)));

  // ------------------------------------------------------------------ moving about

  const READABLE = 0.9;
  const show = (drawn) => {
    cy.nodes().unselect();
    drawn.select();
    cy.zoom(Math.max(cy.zoom(), READABLE));
    cy.center(drawn);
  };
  const fit = () => cy.fit(undefined, 20);
  const start = () => {
    const box = cy.elements().boundingBox();
    const first = cy.nodes(".input").nonempty() ? cy.nodes(".input")[0] : cy.nodes()[0];
    if (!first) return;
    cy.zoom(Math.min(1, Math.max(READABLE, cy.width() / (box.w + 40))));
    cy.center(first);
    cy.panBy({ x: 0, y: 40 - first.renderedPosition().y });
  };
  element("fit").onclick = fit;
  element("top").onclick = start;

  // ------------------------------------------------------------------ search

  const texts = data.nodes.map((node) =>
    [node.name, node.operator, node.kernel, node.region, node.shapes, node.reason, node.error]
      .join("\n").toLowerCase());
  let hits = [];
  let current = 0;
  const search = () => {
    const wanted = element("search").value.trim().toLowerCase();
    hits = [];
    if (wanted) texts.forEach((text, index) => { if (text.includes(wanted)) hits.push(index); });
    const found = new Set(hits);
    cy.batch(() => cy.nodes().forEach((drawn) => {
      const hit = found.has(drawn.data("index"));
      drawn.toggleClass("hit", hit);
      drawn.toggleClass("faded", Boolean(wanted) && !hit);
    }));
    current = 0;
    if (hits.length) show(cy.$id("n" + hits[0]));
    count(wanted);
  };
  const count = (wanted) => {
    element("found").textContent =
      !wanted ? "" : hits.length ? current + 1 + " of " + hits.length : "none";
  };
  const step = (by) => {
    if (!hits.length) return;
    current = (current + by + hits.length) % hits.length;
    show(cy.$id("n" + hits[current]));
    count(true);
  };
  element("search").oninput = search;
  element("search").onkeydown = (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
  };
  element("next").onclick = () => step(1);
  element("previous").onclick = () => step(-1);

  // ------------------------------------------------------------------ tables and legend

  const onRows = (selector, act) => {
    for (const row of document.querySelectorAll(selector)) {
      row.onclick = () => act(row);
      row.onkeydown = (event) => { if (event.key === "Enter") act(row); };
    }
  };
  onRows("#left tbody tr, #errors tbody tr", (row) => {
    const index = data.nodes.findIndex((node) =>
      node.name === row.dataset.name && node.operator === row.dataset.operator);
    if (index >= 0) show(cy.$id("n" + index));
  });
  onRows("#regions tbody tr", (row) => {
    cy.fit(cy.nodes().filter((drawn) => nodeOf(drawn).region === row.dataset.region), 20);
  });
  for (const row of document.querySelectorAll("#regions tbody tr")) {
    row.querySelector(".swatch").style.background = colours.get(row.dataset.region);
  }
  const legend = (colour, text) => {
    const line = document.createElement("div");
    const swatch = document.createElement("span");
    swatch.className = "swatch";
    swatch.style.background = colour;
    line.append(swatch, text);
    element("legend").append(line);
  };
  if (heated) {
    data.scale.forEach(([heat, text]) => legend(heatColour(heat), text));
    legend(PLAIN, data.without);
  } else {
    data.regions.slice(0, 6).forEach((name) => legend(colours.get(name), name));
    if (data.regions.length > 6) legend(PLAIN, data.regions.length - 6 + " more regions");
    if (data.nodes.some((node) => node.kind === "left")) legend(LEFT, "left to TVM");
  }

  // ------------------------------------------------------------------ first view

  fit();
  if (cy.zoom() < 0.5) start();
  const choose = (index) => show(cy.$id("n" + index));
  window.partition = { cy: cy, choose: choose, milliseconds: performance.now() - began };
  document.documentElement.dataset.ready = "true";
})();
