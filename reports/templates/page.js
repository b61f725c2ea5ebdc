"use strict";
(() => {
  const data = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map(); // element -> figure
  let axis = "seconds";
  let printing = false;

  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const style = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const colour = (framework) => data.palette[data.colours[framework] || "grey"][dark() ? 1 : 0];
  const phaseTints = ["import", "data", "build", "parity", "compile", "warm-up"];

  function painted(trace) {
    const meta = trace.meta || {};
    const tint = meta.phase ? style(`--phase-${phaseTints.indexOf(meta.phase) + 1}`) : colour(meta.framework);
    const out = { ...trace, marker: { ...trace.marker, color: tint } };
    if (meta.phase) out.marker.line = { width: 1, color: style("--card") };
    else if (trace.marker && trace.marker.line) out.marker.line = { ...trace.marker.line, color: meta.ring ? style("--card") : tint };
    if (trace.line) out.line = { ...trace.line, color: tint };
    if (trace.error_x) out.error_x = { ...trace.error_x, color: tint };
    if (axis === "steps" && meta.steps) out.x = meta.steps;
    return out;
  }

  function laid(figure) {
    const layout = structuredClone(figure.layout);
    const muted = style("--muted"), line = style("--line");
    layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.font = { family: style("--font"), size: 12.5, color: style("--ink") };
    layout.hoverlabel = { bgcolor: style("--card"), bordercolor: line, font: { color: style("--ink") } };
    for (const name of ["xaxis", "yaxis"]) {
      Object.assign(layout[name], { gridcolor: line, linecolor: line, zerolinecolor: line, fixedrange: true });
      layout[name].tickfont = { color: muted };
      layout[name].title = { ...layout[name].title, font: { color: muted, size: 12.5 } };
    }
    if (layout.yaxis.ticktext) layout.yaxis.tickfont = { color: style("--ink") };
    if (layout.legend) layout.legend.font = { color: muted };
    for (const shape of layout.shapes || []) shape.line.color = muted;
    for (const note of layout.annotations || []) note.font = { color: muted, size: 11.5 };
    if (layout.meta && layout.meta[axis]) layout.xaxis.title.text = layout.meta[axis];
    return layout;
  }

  function draw(element) {
    const figure = data.figures[element.id];
    const layout = laid(figure);
    if (printing) layout.width = 640;
    drawn.set(element, figure);
    exportable(element);
    return Plotly.react(element, figure.data.map(painted), layout, { displayModeBar: false, responsive: true });
  }

  const redraw = () => [...drawn.keys()].map(draw);
  const plots = [...document.querySelectorAll(".plot")];

  // A plot is drawn when it comes near the screen: a page of a thousand cells opens as fast as one of six.
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting && !drawn.has(entry.target)) draw(entry.target);
    }
  }, { rootMargin: "600px" });
  plots.forEach((element) => watcher.observe(element));

  const button = document.getElementById("theme");
  const label = () => { button.textContent = dark() ? "Light theme" : "Dark theme"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("report-theme", root.dataset.theme); } catch (refused) { /* see theme.js */ }
    label();
    redraw();
  });
  system.addEventListener("change", () => { label(); redraw(); });
  label();

  for (const choice of document.querySelectorAll(".axis input")) {
    choice.closest(".axis").hidden = false;
    choice.addEventListener("change", () => {
      axis = choice.value;
      for (const other of document.querySelectorAll(`.axis input[value=${axis}]`)) other.checked = true;
      redraw();
    });
  }

  // The overview, a workload at a time.
  for (const choice of document.querySelectorAll(".only input")) {
    choice.closest(".only").hidden = false;
    choice.addEventListener("change", () => {
      for (const cell of document.querySelectorAll(".matrix [data-of]")) cell.hidden = choice.value !== "" && cell.dataset.of !== choice.value;
    });
  }

  // Tables go out as CSV, plots as pictures.
  const words = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.textContent;
    if (node.hidden || node.getAttribute("aria-hidden")) return "";
    return [...node.childNodes].map(words).join(node.querySelector(":scope > .sub") ? " " : "");
  };
  const field = (node) => {
    const value = words(node).replace(/\s+/g, " ").trim();
    // A spreadsheet would compute what begins so.
    return `"${(/^[=+\-@]/.test(value) ? "'" : "") + value.replaceAll('"', '""')}"`;
  };
  const commaSeparated = (table) => [...table.rows].map((row) => [...row.cells].filter((cell) => !cell.hidden).map(field).join(",")).join("\n") + "\n";

  function save(name, content) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  async function copy(button, content) {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(content);
      button.textContent = "Copied";
    } catch (refused) {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = before; }, 2000);
  }

  const fileName = (label) => label.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60).replace(/^-|-$/g, "");

  function tools(label, actions) {
    const row = document.createElement("div");
    row.className = "tools";
    for (const [name, action] of actions) {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = name;
      made.setAttribute("aria-label", `${name}: ${label}`);
      made.addEventListener("click", () => action(made));
      row.append(made);
    }
    return row;
  }

  for (const box of document.querySelectorAll(".box")) {
    const table = box.querySelector("table");
    const label = box.getAttribute("aria-label");
    box.before(tools(label, [
      ["Copy", (made) => copy(made, commaSeparated(table))],
      ["CSV", () => save(`${fileName(label)}.csv`, commaSeparated(table))],
    ]));
  }

  function exportable(element) {
    const caption = element.closest("figure").querySelector("figcaption");
    if (caption.querySelector(".tools")) return;
    const label = element.getAttribute("aria-label");
    const picture = (format) => () => Plotly.downloadImage(element, {
      format, filename: fileName(label), width: element.clientWidth, height: element.clientHeight, scale: format === "png" ? 2 : 1,
    });
    caption.prepend(tools(label.slice(0, 100), [["PNG", picture("png")], ["SVG", picture("svg")]]));
  }

  // A link to something inside a closed section opens it.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();

  // Paper is light and narrow, whatever the screen is.
  let chosen;
  addEventListener("beforeprint", () => {
    chosen = root.dataset.theme;
    root.dataset.theme = "light";
    printing = true;
    plots.filter((element) => !element.closest("details:not([open])")).forEach(draw);
  });
  addEventListener("afterprint", () => {
    printing = false;
    if (chosen) root.dataset.theme = chosen; else delete root.dataset.theme;
    redraw();
  });
})();
