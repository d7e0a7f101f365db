// Draws tables as boxes in layers around the root, and foreign keys as lines; can be moved and enlarged.
"use strict";

const WIDTH = 172, HEIGHT = 44, GAP_X = 62, GAP_Y = 14;
const MOST_BOXES = 48, MOST_IN_LAYER = 16, DEPTH = 2, LONGEST = 20;

const svgElement = (name, attributes = {}, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

const shortened = (text) => {
  const line = text.replace(/\s+/g, " ");
  return line.length > LONGEST ? `${line.slice(0, LONGEST - 1)}…` : line;
};

// The tables that are linked to each other, both ways.
const neighbours = (tables) => {
  const found = new Map(tables.map((table) => [table.table, new Set()]));
  for (const table of tables) {
    for (const [, target] of table.points) {
      if (target === table.table) continue;
      found.get(table.table).add(target);
      found.get(target)?.add(table.table);
    }
  }
  return found;
};

// Layers of table names: around the root, or of everything while there is none.
const layers = (tables, root, taken) => {
  const linked = neighbours(tables);
  const seen = new Set();
  const result = [];
  let count = 0;
  let left = 0;
  const rank = (name) => (taken.has(name) ? 1e9 : 0) + linked.get(name).size;
  const spread = (start, depth) => {
    let layer = [start];
    seen.add(start);
    for (let at = 0; layer.length && at <= depth; at += 1) {
      const sorted = layer.sort((one, other) => rank(other) - rank(one) || one.localeCompare(other));
      const shown = sorted.filter((name, number) => taken.has(name)
        || (count + number < MOST_BOXES && (result[at] ?? []).length + number < MOST_IN_LAYER));
      left += layer.length - shown.length;
      count += shown.length;
      (result[at] ??= []).push(...shown);
      const next = new Set(shown.flatMap((name) => [...linked.get(name)]).filter((name) => !seen.has(name)));
      next.forEach((name) => seen.add(name));
      layer = [...next];
    }
  };
  if (root && linked.has(root)) {
    spread(root, DEPTH);
    for (const name of taken) if (linked.has(name) && !seen.has(name)) spread(name, 0);
  } else {
    const byLinks = [...linked.keys()].sort((one, other) => rank(other) - rank(one) || one.localeCompare(other));
    for (const name of byLinks) {
      if (seen.has(name)) continue;
      if (count >= MOST_BOXES) break;
      if (linked.get(name).size) spread(name, 6);
      else {
        seen.add(name);
        const at = result.length ? result.reduce((best, layer, number) => (layer.length < result[best].length ? number : best), 0) : 0;
        if (result[at] && result[at].length >= MOST_IN_LAYER) result.push([name]);
        else (result[at] ??= []).push(name);
        count += 1;
      }
    }
    left = tables.length - count;
  }
  return { layers: result.filter((layer) => layer.length), left, linked };
};

// Put each layer in the order of the middle of what its boxes are linked to.
const place = (found) => {
  const at = new Map();
  found.layers.forEach((layer, depth) => {
    const middle = (name) => {
      const before = [...found.linked.get(name)].filter((other) => at.has(other) && at.get(other).depth < depth);
      return before.length ? before.reduce((sum, other) => sum + at.get(other).y, 0) / before.length : 0;
    };
    const wanted = new Map(layer.map((name) => [name, middle(name)]));
    if (depth) layer.sort((one, other) => wanted.get(one) - wanted.get(other));
    const top = -((layer.length - 1) * (HEIGHT + GAP_Y)) / 2;
    layer.forEach((name, number) => at.set(name, { x: depth * (WIDTH + GAP_X), y: top + number * (HEIGHT + GAP_Y), depth }));
  });
  return at;
};

// A line from the table that has the foreign key, which gets a crow's foot, to the one that it points at.
const line = (from, to) => {
  const sameLayer = from.x === to.x;
  const right = sameLayer || from.x < to.x;
  const x1 = from.x + (right ? WIDTH : 0);
  const x2 = to.x + (sameLayer ? WIDTH : right ? 0 : WIDTH);
  const bend = sameLayer ? 46 : (right ? 1 : -1) * GAP_X * .55;
  const foot = right ? 8 : -8;
  return `M${x1} ${from.y - 5}L${x1 + foot} ${from.y}L${x1} ${from.y + 5}M${x1} ${from.y}L${x1 + foot} ${from.y}`
    + `C${x1 + bend} ${from.y} ${x2 + (sameLayer ? 46 : -bend)} ${to.y} ${x2} ${to.y}`;
};

/** A number of things: "1 row", "12,000 rows". */
export const quantity = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

export class Picture {
  constructor(svg, onChoose) {
    this.svg = svg;
    this.onChoose = onChoose;
    this.view = null;
    this.extent = { x: 0, y: 0, width: 100, height: 100 };
    this.drawn = "";
    svg.addEventListener("pointerdown", (event) => this.#drag(event));
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15);
    }, { passive: false });
    new ResizeObserver(() => this.fit()).observe(svg);
  }

  draw({ tables, root, taken, selected, used, can }) {
    const found = layers(tables, root, taken);
    const at = place(found);
    const known = new Map(tables.map((table) => [table.table, table]));
    const lines = svgElement("g");
    for (const [name, place_] of at) {
      for (const [columns, target] of known.get(name).points) {
        if (!at.has(target) || target === name) continue;
        const edge = svgElement("path", {
          d: line(place_, at.get(target)),
          class: used.has(`${name}|${target}`) || used.has(`${target}|${name}`) ? "edge taken" : "edge",
        });
        edge.append(svgElement("title", {}, `${name} (${columns}) → ${target}`));
        lines.append(edge);
      }
    }
    const boxes = svgElement("g");
    for (const [name, place_] of at) boxes.append(this.#box(known.get(name), place_, { root, taken, selected, can }));
    this.svg.replaceChildren(lines, boxes);
    const places = [...at.values()];
    const x = Math.min(0, ...places.map((one) => one.x)) - 20;
    const y = Math.min(0, ...places.map((one) => one.y)) - HEIGHT / 2 - 20;
    this.extent = {
      x, y,
      width: Math.max(0, ...places.map((one) => one.x)) + WIDTH + 60 - x,
      height: Math.max(0, ...places.map((one) => one.y)) + HEIGHT / 2 + 20 - y,
    };
    const drawn = [...at.keys()].join("\n");
    if (drawn !== this.drawn) this.fit();
    this.drawn = drawn;
    return found.left;
  }

  #box(table, { x, y }, { root, taken, selected, can }) {
    const classes = ["box"];
    if (table.table === root) classes.push("root");
    if (taken.has(table.table)) classes.push("taken");
    if (table.table === selected) classes.push("selected");
    if (can.has(table.table)) classes.push("can");
    const facts = `${quantity(table.rows, "row")} · ${quantity(table.columns, "column")}`;
    const box = svgElement("g", { class: classes.join(" "), tabindex: "0", role: "button", "data-table": table.table },
      svgElement("rect", { x, y: y - HEIGHT / 2, width: WIDTH, height: HEIGHT, rx: 8 }),
      svgElement("text", { x: x + 12, y: y - 3 }, `${taken.has(table.table) ? "✓ " : ""}${shortened(table.table)}`),
      svgElement("text", { x: x + 12, y: y + 14, class: "facts-line" }, facts),
      svgElement("title", {}, [table.table, table.comment, table.has_key ? "" : "no primary key"].filter(Boolean).join("\n")));
    box.addEventListener("click", () => { if (!this.dragged) this.onChoose(table.table); });
    box.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.onChoose(table.table); } });
    return box;
  }

  fit() {
    const { width, height } = this.svg.getBoundingClientRect();
    if (!width || !height) return;
    const scale = Math.max(this.extent.width / width, this.extent.height / height, .85);
    const view = { width: width * scale, height: height * scale };
    this.view = {
      ...view,
      x: this.extent.x + (this.extent.width - view.width) / 2,
      y: this.extent.y + (this.extent.height - view.height) / 2,
    };
    this.#show();
  }

  zoom(factor) {
    if (!this.view) return;
    const { x, y, width, height } = this.view;
    this.view = { width: width * factor, height: height * factor, x: x + (width * (1 - factor)) / 2, y: y + (height * (1 - factor)) / 2 };
    this.#show();
  }

  #show() {
    const { x, y, width, height } = this.view;
    this.svg.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
  }

  #drag(event) {
    if (!this.view) return;
    this.dragged = false;
    const begin = { x: event.clientX, y: event.clientY, view: this.view };
    const scale = this.view.width / this.svg.getBoundingClientRect().width;
    const move = (now) => {
      const x = now.clientX - begin.x, y = now.clientY - begin.y;
      if (Math.abs(x) + Math.abs(y) > 4) this.dragged = true;
      if (!this.dragged) return;
      this.svg.classList.add("is-dragged");
      this.view = { ...begin.view, x: begin.view.x - x * scale, y: begin.view.y - y * scale };
      this.#show();
    };
    const end = () => {
      removeEventListener("pointermove", move);
      this.svg.classList.remove("is-dragged");
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end, { once: true });
    addEventListener("pointercancel", end, { once: true });
  }
}
