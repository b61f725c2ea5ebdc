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
