// The designer's page. Its state is the text of the schema file; the server edits, reads and measures it.
"use strict";

import { Picture, quantity } from "./picture.js";

const byId = (id) => document.getElementById(id);
const LINE = 19, PADDING = 8; // of the text field, as in the style sheet
const OPERATORS = ["eq", "neq", "lt", "lte", "gt", "gte", "like", "ilike", "in", "not_in", "between", "is_null", "is_not_null"];
const KINDS = { belongs_to: "one", has_one: "one", has_many: "list", many_to_many: "list" };
const MOST_LISTED = 200;

let token = location.hash.slice(1) || sessionStorage.getItem("headrace-token") || "";
sessionStorage.setItem("headrace-token", token);
history.replaceState(null, "", location.pathname);

let database = { tables: [], files: [], problems: [] };
let schema = null; // file, index, text, fingerprint, tree
let tree = null; // of the last text without mistakes
let selected = []; // the keys of the join that is shown
let saved = ""; // the text that is on disk
let past = [];
let looked = { problems: [] };
let mistakes = [];
let body = "";
let asked = 0; // the newest question; answers to older ones are dropped
let isOpened = false; // a tree was shown since the file was opened
const timers = {};

// Elements, made of text alone: whatever a name holds stays text.

const element = (tag, properties = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
};

const later = (name, milliseconds, action) => {
  clearTimeout(timers[name]);
  timers[name] = setTimeout(action, milliseconds);
};

// Questions to the server.

class Refused extends Error {
  constructor(status, problems) {
    super(problems.map((problem) => problem.text).join("; "));
    this.status = status;
    this.problems = problems;
  }
}

const ask = async (what, content = {}) => {
  let answer;
  try {
    answer = await fetch(`api/${what}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
      body: JSON.stringify(content),
    });
  } catch {
    tell("No answer: headrace design has ended. What is on this page is not lost while it stays open.");
    throw new Refused(0, []);
  }
  const found = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, found.problems ?? [{ level: "error", text: found.detail, remedy: found.remedy, sql: [] }]);
  tell("");
  return found;
};

const tell = (text) => {
  byId("trouble").textContent = text;
  byId("trouble").hidden = !text;
};

const choose = (question, answers) => new Promise((resolve) => {
  const dialog = byId("question");
  byId("asked").textContent = question;
  byId("answers").replaceChildren(...answers.map(([text, value], number) => element("button", {
    type: "button", className: number ? "plain" : "", onclick: () => { dialog.close(); resolve(value); },
  }, text)));
  dialog.oncancel = () => resolve(null);
  dialog.showModal();
});

const content = (more = {}) => ({ index: schema.index, file: schema.file, text: schema.text, fingerprint: schema.fingerprint, ...more });

// The state, and what follows from a change of it.

const take = (found, { isEdit = false } = {}) => {
  const before = schema?.text ?? "";
  if (isEdit && before !== found.text) past.push(before);
  schema = found;
  mistakes = found.problems;
  if (found.tree) tree = found.tree;
  document.body.classList.toggle("is-wrong", !found.tree);
  if (!nodeAt(selected)) selected = [];
  if (byId("text").value !== found.text) showText(found.text, before);
  byId("tables-part").open &&= !found.tree || !isOpened;
  if (found.tree) isOpened = true;
  show();
  if (found.tree) later("look", 120, () => look());
};

const showRefusal = (error) => {
  if (!(error instanceof Refused)) throw error;
  mistakes = error.problems;
  show();
};

const edit = async (change) => {
  const mine = asked += 1;
  try {
    const found = await ask("view", content({ edit: change }));
    if (mine === asked) take(found, { isEdit: true });
  } catch (error) {
    showRefusal(error);
  }
};

const typed = () => {
  if (schema === null) return;
  const before = schema.text;
  if (byId("text").value !== before && past.at(-1) !== before) past.push(before);
  schema = { ...schema, text: byId("text").value };
  byId("band").hidden = true;
  const mine = asked += 1;
  later("view", 350, async () => {
    try {
      const found = await ask("view", content());
      if (mine === asked) take(found);
    } catch (error) { showRefusal(error); }
  });
};

const look = async (more = {}) => {
  if (!schema?.tree) return;
  const mine = asked;
  const text = schema.text;
  document.body.classList.add("is-waiting");
  try {
    const found = await ask("look", content({ id: byId("id").value.trim() || null, ...more }));
    if (mine !== asked || text !== schema.text) return;
    looked = found;
    if (more.another && found.document) byId("id").value = found.document.id;
    showDocument();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (mine === asked) looked = { problems: error.problems };
  } finally {
    if (mine === asked) document.body.classList.remove("is-waiting");
  }
  showProblems();
  showNode();
};

const isDirty = () => schema !== null && schema.text !== saved;

const mayLeave = async () => !isDirty() || (await choose(`${schema.file} is not saved.`, [["Keep working on it", false], ["Leave it", true]])) === true;

const open = async (what, body_) => {
  if (!(await mayLeave())) { byId("files").value = schema?.fingerprint ? schema.file : ""; return; }
  try {
    const found = await ask(what, body_);
    asked += 1;
    past = [];
    selected = [];
    looked = { problems: [] };
    body = "";
    byId("id").value = "";
    byId("saved").hidden = true;
    isOpened = false;
    saved = found.fingerprint ? found.text : "";
    if (!found.tree) tree = null;
    byId("text").value = "";
    byId("file").value = found.file;
    byId("index").value = found.index;
    byId("naming").hidden = Boolean(found.fingerprint);
    byId("files").value = found.fingerprint ? found.file : "";
    take(found);
    byId("text").scrollTop = 0;
    byId("band").hidden = true;
  } catch (error) {
    showRefusal(error);
  }
};

const save = async (force = false) => {
  schema.file = byId("file").value.trim();
  schema.index = byId("index").value.trim();
  try {
    const found = await ask("save", content({ force }));
    saved = schema.text;
    schema.fingerprint = found.fingerprint;
    byId("naming").hidden = true;
    byId("saved").replaceChildren(
      element("div", {}, `Saved: ${found.written.join(", ")}. Next:`),
      ...found.next.map((line) => element("code", {}, line)));
    byId("saved").hidden = false;
    byId("saved").scrollIntoView({ block: "nearest" });
    await describe();
    byId("files").value = schema.file;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 409) {
      const answer = await choose(`${error.message}. Nothing was written.`, [
        ["Keep both: change the name", "name"], ["Load it from disk", "load"], ["Replace it", "replace"]]);
      if (answer === "replace") return save(true);
      if (answer === "load") { saved = schema.text; return open("open", { file: schema.file }); }
      byId("naming").hidden = false;
      byId("file").focus();
      return undefined;
    }
    mistakes = error.problems;
  }
  show();
  return undefined;
};

// What is shown.

const show = () => {
  document.body.classList.toggle("is-empty", schema === null);
  byId("save").disabled = schema === null || !schema.tree || (!isDirty() && Boolean(schema.fingerprint));
  byId("undo").disabled = past.length === 0;
  document.title = `${schema ? `${isDirty() ? "• " : ""}${schema.file} · ` : ""}headrace design`;
  byId("design-part").hidden = tree === null;
  showTables();
  showOutline();
  showNode();
  showPicture();
  showProblems();
};

const nodes = (node, depth = 0) => (node ? [[node, depth], ...node.joins.flatMap((join) => nodes(join, depth + 1))] : []);
const same = (one, other) => one.length === other.length && one.every((key, number) => key === other[number]);
const nodeAt = (at) => nodes(tree).map(([node]) => node).find((node) => same(node.at, at)) ?? null;

const showTables = () => {
  const words = byId("search").value.toLowerCase();
  const found = database.tables.filter((table) => table.table.toLowerCase().includes(words));
  const listed = found.slice(0, MOST_LISTED);
  byId("tables-hint").textContent = database.tables.length === 0 ? "No table can be shown."
    : `${words ? `${found.length.toLocaleString("en")} of ` : ""}${quantity(database.tables.length, "table")}. Each row of the one that you choose becomes a document.${found.length > MOST_LISTED ? ` The first ${MOST_LISTED} are listed: type to find others.` : ""}`;
  byId("tables").replaceChildren(...listed.map((table) => element("li", {}, element("button", {
    type: "button",
    disabled: !table.has_key,
    title: table.comment,
    onclick: () => open("start", { table: table.table }),
  }, element("bdi", {}, table.table), element("span", { className: "quiet" },
    table.has_key ? quantity(table.rows, "row") : "no primary key")))));
};

const showOutline = () => {
  byId("outline").replaceChildren(...nodes(tree).map(([node, depth]) => {
    const button = element("button", {
      type: "button", onclick: () => { selected = node.at; show(); goTo(node.line); },
      "aria-current": String(same(node.at, selected)),
    }, element("bdi", {}, node.key), element("span", { className: "mark" }, node.kind === "root" ? "root" : KINDS[node.kind]));
    button.style.marginLeft = `${depth}rem`;
    button.style.width = `calc(100% - ${depth}rem)`;
    return element("li", {}, button);
  }));
};

const tick = (label, type, at, why, change, title = "") => {
  const box = element("input", {
    type: "checkbox", checked: at !== null, disabled: Boolean(why) && at === null,
    onchange: () => edit({ ...change, on: box.checked }),
  });
  return element("li", { className: why ? "off" : "", title },
    element("label", {}, box, element("bdi", {}, label), element("span", { className: "type" }, type)),
    why && at === null ? element("span", { className: "why" }, why) : null);
};

const aggregates = (node, relation) => {
  if (relation.kind === "belongs_to") return null;
  const options = [["", "+ figure"], ["count", "count"], ["ids", "ids"],
    ...relation.numbers.flatMap((column) => [[`sum ${column}`, `sum ${column}`], [`avg ${column}`, `avg ${column}`]]),
    ...relation.ordered.flatMap((column) => [[`min ${column}`, `min ${column}`], [`max ${column}`, `max ${column}`]])];
  const select = element("select", {
    "aria-label": `A figure of ${relation.name}`,
    onchange: () => {
      const [word, ...column] = select.value.split(" ");
      edit({ op: "aggregate", at: node.at, relation: relation.id, word, column: column.length ? column.join(" ") : null });
    },
  }, ...options.map(([value, text]) => element("option", { value }, text)));
  return select;
};

const relationLine = (node, relation) => {
  const most = relation.most === null ? "" : `, up to ${relation.most.toLocaleString("en")}`;
  const line = tick(relation.name, `${KINDS[relation.kind]}${most}`, relation.at,
    null,
    { op: "relation", at: node.at, relation: relation.id }, `${relation.table} by ${relation.via}`);
  const figure = aggregates(node, relation);
  if (figure) line.append(figure);
  return line;
};

const removable = (text, action) => element("li", {}, element("bdi", {}, text),
  element("button", { type: "button", "aria-label": `Remove ${text}`, onclick: action }, "×"));

const group = (title, ...children) => [element("p", { className: "group" }, title), ...children];

const columnSelect = (columns, empty, chosen, onchange) => {
  const select = element("select", { onchange: () => onchange(select.value) },
    element("option", { value: "" }, empty), ...columns.map((column) => element("option", { value: column }, column)));
  select.value = chosen ?? "";
  return select;
};

const filterLine = (node) => {
  const column = columnSelect(node.columns.map((each) => each.name), "column…", "", () => {});
  const operator = element("select", { "aria-label": "operator" }, ...OPERATORS.map((word) => element("option", { value: word }, word)));
  const value = element("input", { placeholder: "value", "aria-label": "value" });
  column.setAttribute("aria-label", "column of a filter");
  return element("form", { className: "line", onsubmit: (event) => {
    event.preventDefault();
    if (column.value) edit({ op: "filter", at: node.at, column: column.value, word: operator.value, value: value.value });
  } }, column, operator, value, element("button", { className: "plain" }, "Add"));
};

const listLines = (node) => {
  const limit = element("input", {
    type: "number", min: 1, value: node.limit ?? "", placeholder: "no limit", "aria-label": "limit",
    onchange: () => edit({ op: "limit", at: node.at, value: limit.value }),
  });
  const order = columnSelect(node.columns.filter((column) => column.ordered).map((column) => column.name), "by key", node.order?.column,
    (column) => edit({ op: "order", at: node.at, column: column || null, value: direction.value }));
  const direction = element("select", { "aria-label": "direction", onchange: () => edit({ op: "order", at: node.at, column: order.value || null, value: direction.value }) },
    element("option", { value: "" }, "ascending"), element("option", { value: "desc" }, "descending"));
  direction.value = node.order?.descending ? "desc" : "";
  order.setAttribute("aria-label", "order");
  return group("Its list",
    element("div", { className: "line" }, "Order", order, direction),
    element("div", { className: "line" }, "At most", limit),
    element("p", { className: "quiet hint", id: "measured-list" }, measuredList(node)));
};

const measuredList = (node) => {
  const measured = looked.cost?.lists?.[node.at.join(".")];
  return measured ? `Measured: ${measured[0]} on average, at most ${measured[1]} in one document.` : "";
};

const showNode = () => {
  const node = nodeAt(selected);
  if (node === null) { byId("node").replaceChildren(); return; }
  if (byId("node").contains(document.activeElement) && ["INPUT", "SELECT"].includes(document.activeElement.tagName)
      && document.activeElement.type !== "checkbox" && document.activeElement.value) {
    if (byId("measured-list")) byId("measured-list").textContent = measuredList(node);
    return; // somebody types in it
  }
  byId("node").replaceChildren(
    ...(node.missing ? [element("p", {}, `The database has no table ${node.table}.`)] : []),
    ...group(`Columns of ${node.table}`, element("ul", { className: "ticks", id: "columns" },
      ...node.columns.map((column) => tick(column.name, column.type, column.at, column.why_not, { op: "column", at: node.at, column: column.name }, column.comment)))),
    ...(node.relations.length ? group("Related rows", element("ul", { className: "ticks", id: "relations" },
      ...node.relations.map((relation) => relationLine(node, relation)))) : []),
    ...(node.aggregates.length || node.others.length ? group("Figures and more", element("ul", { className: "small" },
      ...node.aggregates.map((each) => removable(`${each.key}: ${each.op} of ${each.table}`, () => edit({ op: "remove", at: each.at }))),
      ...node.others.map((each) => removable(each.key, () => edit({ op: "remove", at: each.at }))))) : []),
    ...group(node.kind === "root" ? "Only rows that" : "Only related rows that",
      element("ul", { className: "small" }, ...node.filters.map((text, number) => removable(text, () => edit({ op: "filter", at: node.at, on: false, number })))),
      node.missing ? "" : filterLine(node)),
    ...(node.kind === "root" && !node.missing ? group("A row counts as deleted by", columnSelect(
      node.columns.map((column) => column.name), "no column", node.soft_delete, (column) => edit({ op: "soft_delete", at: [], column: column || null }))) : []),
    ...(node.to_many ? listLines(node) : []),
  );
};

const picture = new Picture(byId("picture"), (name) => {
  const all = nodes(tree).map(([node]) => node);
  const there = all.filter((node) => node.table === name);
  if (there.length) {
    const now = there.findIndex((node) => same(node.at, selected));
    selected = there[(now + 1) % there.length].at;
    show();
    goTo(nodeAt(selected).line);
    return;
  }
  if (tree === null) {
    const table = database.tables.find((each) => each.table === name);
    if (table.has_key) open("start", { table: name });
    return;
  }
  const from = [nodeAt(selected), ...all].filter(Boolean);
  for (const node of from) {
    const relation = node.relations.find((each) => each.table === name && each.at === null);
    if (relation) { selected = node.at; edit({ op: "relation", at: node.at, relation: relation.id }); return; }
  }
  byId("legend").textContent = `${name.replace(/\s+/g, " ")} is not linked to what is chosen.`;
});

const showPicture = () => {
  const all = nodes(tree).map(([node]) => node);
  const used = new Set();
  const taken = new Set(all.map((node) => node.table));
  for (const [node] of nodes(tree)) for (const join of node.joins) {
    used.add(`${node.table}|${join.table}`);
    const through = node.relations.find((relation) => relation.at && same(relation.at, join.at) && relation.kind === "many_to_many");
    if (through) { used.add(`${node.table}|${through.via}`); used.add(`${through.via}|${join.table}`); }
  }
  const can = new Set((nodeAt(selected)?.relations ?? []).map((relation) => relation.table));
  const left = picture.draw({ tables: database.tables, root: tree?.table, taken, selected: nodeAt(selected)?.table, used, can });
  byId("legend").textContent = (tree === null ? "Click a table to make documents of its rows." : "Click a table to add its rows, or to choose among its columns.")
    + (left > 0 ? ` ${quantity(left, "more table")} ${left === 1 ? "is" : "are"} not drawn.` : "");
};

const showProblems = () => {
  const problems = [...database.problems, ...mistakes, ...(mistakes.length ? [] : looked.problems)];
  const lines = problems.map((problem) => element("li", { className: problem.level },
    element("span", {}, problem.text),
    problem.line ? element("button", { type: "button", onclick: () => goTo(problem.line) }, ` line ${problem.line}`) : null,
    problem.remedy ? element("span", { className: "remedy" }, problem.remedy) : null,
    ...(problem.sql ?? []).filter((sql) => !problem.remedy?.includes(sql)).map((sql) => element("code", {}, sql))));
  if (database.problems.length) lines.unshift(element("li", { className: "error" }, element("button", { type: "button", onclick: refresh }, "Try again")));
  if (!problems.length && looked.cost) lines.push(element("li", { className: "good" }, "Nothing to warn of: every lookup has an index, and every list is of a size that clusters like."));
  byId("problems").replaceChildren(...lines);
};

// The lines that differ: the first, and how many of the new text.
const difference = (before, after) => {
  const old = before.split("\n"), now = after.split("\n");
  let first = 0;
  while (first < now.length && first < old.length && old[first] === now[first]) first += 1;
  let end = 0;
  while (end < now.length - first && end < old.length - first && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
  return [first, now.length - first - end];
};

const showText = (text, before) => {
  const field = byId("text");
  const top = field.scrollTop;
  const [first, count] = difference(before, text);
  field.value = text;
  field.scrollTop = top;
  const band = byId("band");
  band.hidden = !before || count === 0;
  band.dataset.first = first;
  band.dataset.count = count;
  if (!before) return;
  const y = first * LINE;
  if (y < field.scrollTop || y + count * LINE > field.scrollTop + field.clientHeight - 2 * LINE) {
    field.scrollTop = Math.max(0, y - field.clientHeight / 3);
  }
  placeBand();
};

const placeBand = () => {
  const band = byId("band");
  band.style.top = `${PADDING + Number(band.dataset.first) * LINE - byId("text").scrollTop}px`;
  band.style.height = `${Number(band.dataset.count) * LINE}px`;
};

const goTo = (line) => {
  const field = byId("text");
  field.scrollTop = Math.max(0, (line - 3) * LINE);
  const band = byId("band");
  band.dataset.first = line - 1;
  band.dataset.count = 1;
  band.hidden = false;
  placeBand();
};

const size = (bytes) => (bytes < 1024 ? `${bytes} B` : bytes < 1048576 ? `${(bytes / 1024).toFixed(1)} kB` : `${(bytes / 1048576).toFixed(1)} MB`);

const showDocument = () => {
  const { document: found, cost } = looked;
  const now = found?.body ?? (found ? `There is no live row with the key ${found.id}.` : "There is no document: no row is left, or an error keeps it from being read.");
  const [first, count] = body ? difference(body, now) : [0, 0];
  const lines = now.split("\n");
  const text = (part) => (part.length ? `${part.join("\n")}\n` : "");
  byId("body").replaceChildren(text(lines.slice(0, first)),
    count && body ? element("mark", {}, text(lines.slice(first, first + count))) : text(lines.slice(first, first + count)),
    text(lines.slice(first + count)));
  const mark = byId("body").querySelector("mark");
  if (mark) byId("body").scrollTop = Math.max(0, mark.offsetTop - byId("body").offsetTop - 60);
  body = now;
  byId("measured").textContent = [
    found ? `key ${found.id} · ${size(new Blob([found.body ?? ""]).size)} indented · ${found.milliseconds} ms` : "",
    cost?.documents ? `of ${quantity(cost.documents, "document")}: ${size(cost.bytes)} on average, ${size(cost.most_bytes)} at most; ${cost.lucene} Lucene documents each, ${cost.most_lucene} at most` : "",
  ].filter(Boolean).join(" — ");
};

// The beginning.

const describe = async (what = "database") => {
  try {
    database = await ask(what);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    database = { ...database, problems: error.problems };
    if (error.status === 401) tell(`${error.problems[0].text}. ${error.problems[0].remedy}`);
  }
  byId("place").textContent = database.place ?? "";
  byId("files").replaceChildren(element("option", { value: "" }, database.files.length ? "a file…" : "no file is there"),
    ...database.files.map((file) => element("option", { value: file.file }, file.file)));
  show();
};

const refresh = async () => {
  await describe("refresh");
  if (schema) typed();
};

byId("search").addEventListener("input", showTables);
byId("files").addEventListener("change", () => { if (byId("files").value) open("open", { file: byId("files").value }); });
byId("text").addEventListener("input", typed);
byId("text").addEventListener("scroll", placeBand);
byId("save").addEventListener("click", () => save());
byId("file").addEventListener("input", () => { schema.file = byId("file").value.trim(); });
byId("undo").addEventListener("click", async () => {
  const text = past.pop();
  if (text === undefined) return;
  asked += 1;
  try {
    take(await ask("view", content({ text })));
  } catch (error) {
    past.push(text);
    showRefusal(error);
  }
});
byId("which").addEventListener("submit", (event) => { event.preventDefault(); look(); });
byId("another").addEventListener("click", () => look({ another: true, id: null }));
byId("in").addEventListener("click", () => picture.zoom(1 / 1.25));
byId("out").addEventListener("click", () => picture.zoom(1.25));
byId("fit").addEventListener("click", () => picture.fit());
addEventListener("beforeunload", (event) => { if (isDirty()) event.preventDefault(); });
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "s") { event.preventDefault(); if (!byId("save").disabled) save(); }
});

await describe();
if (database.open) await open("open", { file: database.open });
