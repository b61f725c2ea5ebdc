// An address is #device/workload, or #device/workload/cell. The cells of the two are a script that calls cells(text).
const at = (id) => document.getElementById(id);
const known = new Map();
let wanted = null;
const heads = document.querySelectorAll("#cells thead th");

function asked() {
  const parts = decodeURIComponent(location.hash.slice(1)).split("/");
  const fits = parts.length > 1 && parts.length < 4 && parts.every((part) => /^[a-z0-9][a-z0-9.-]{0,99}$/.test(part));
  return fits ? { file: `${parts[0]}/${parts[1]}`, cell: parts[2] } : null;
}

function cells(text) {
  const content = JSON.parse(text);
  known.set(`${content.device_slug}/${content.workload_slug}`, content);
  show();
}

function failed() {
  at("cells-note").textContent = "This file of cells cannot be loaded. The address may be of another index.";
}

function load(file) {
  const script = document.createElement("script");
  script.src = `cells/${file}.js`;
  script.onerror = failed;
  document.head.append(script);
}

const milliseconds = (seconds) => (1e3 * seconds).toPrecision(4);

function row(cell, file) {
  const line = document.createElement("tr");
  line.id = cell.id;
  const facts = cell.facts;
  const mode = facts.mode === "default" ? "" : ` ${facts.mode}`;
  const count = facts.devices > 1 ? ` on ${facts.devices}` : "";
  const head = document.createElement("th");
  head.scope = "row";
  const link = document.createElement("a");
  link.href = `#${file}/${cell.id}`;
  link.textContent = `${facts.framework}${mode}${count}`;
  head.append(link);
  const spread = cell.spread === null ? `not known of ${cell.machines.length}` : `${(100 * cell.spread).toPrecision(2)} %`;
  const words = [facts.precision, facts.cuda_version ?? "–", facts.image, cell.machines.length, milliseconds(cell.seconds),
    `${milliseconds(cell.fastest)} to ${milliseconds(cell.slowest)}`, spread];
  line.append(head, ...words.map((word, column) => {
    const entry = document.createElement("td");
    entry.textContent = word;
    entry.dataset.of = heads[column + 1].textContent;
    return entry;
  }));
  return line;
}

function filter() {
  const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const line of at("rows").rows) line.hidden = !words.every((word) => line.textContent.toLowerCase().includes(word));
}

function show() {
  wanted = asked();
  at("cells").hidden = !wanted;
  if (!wanted) return;
  const content = known.get(wanted.file);
  if (!content) {
    at("cells-head").textContent = wanted.file;
    at("cells-note").textContent = "Loading the cells.";
    at("rows").replaceChildren();
    load(wanted.file);
    return;
  }
  at("cells-head").textContent = `${content.device}: ${content.workload}`;
  at("cells-note").textContent = `${content.cells.length} cells. The name of a cell is a link to it that stays.`;
  at("rows").replaceChildren(...content.cells.map((cell) => row(cell, wanted.file)));
  filter();
  const chosen = wanted.cell && at(wanted.cell);
  if (chosen) chosen.classList.add("best");
  if (wanted.cell && !chosen) at("cells-note").textContent = "This cell is not in the index any more: it was measured with other code or another image.";
  (chosen || at("cells-head")).scrollIntoView({ block: "center" });
  at("cells-head").focus({ preventScroll: true });
}

at("filter").addEventListener("input", filter);
addEventListener("hashchange", show);
show();
