"use strict";
// Plotly and the figures lie in the page compressed. They are unpacked when the first plot comes near the screen.
const plots = (() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map(); // element -> figure
  let signs = null; // framework -> colour, and the palette
  let figures = null; // id -> JSON, until it is drawn
  let loading = null;
  let axis = "seconds";

  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const style = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const colour = (framework) => signs.palette[signs.colours[framework] || "grey"][dark() ? 1 : 0];

  function inflated(id) {
    const packed = atob(document.getElementById(id).textContent);
    const bytes = new Uint8Array(packed.length);
    for (let at = 0; at < packed.length; at += 1) bytes[at] = packed.charCodeAt(at);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  async function load() {
    const [code, lines] = await Promise.all([inflated("plotly"), inflated("figures")]);
    const script = document.createElement("script");
    script.textContent = code; // the content security policy names its digest
    document.head.append(script);
    const [first, ...others] = lines.split("\n");
    signs = JSON.parse(first);
    figures = new Map();
    for (let at = 0; at < others.length; at += 2) figures.set(others[at], others[at + 1]);
  }

  // Resolves when plots can be drawn.
  const ready = () => { loading = loading || load(); return loading; };

  function painted(trace) {
    const meta = trace.meta || {};
    const tint = meta.phase ? style(`--phase-${meta.phase}`) : meta.tint ? style(meta.tint) : colour(meta.framework);
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
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
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

  function paint(element, width) {
    const figure = drawn.get(element) || JSON.parse(figures.get(element.id));
    const layout = laid(figure);
    if (width) layout.width = width;
    drawn.set(element, figure);
    return Plotly.react(element, figure.data.map(painted), layout, { displayModeBar: false, responsive: true });
  }

  async function draw(element, done) {
    if (!window.DecompressionStream) {
      element.textContent = "This browser cannot draw the plots (it has no DecompressionStream); every number is in the tables.";
      return;
    }
    await ready();
    if (!drawn.has(element)) paint(element);
    done(element);
  }

  return {
    dark, draw, inflated, ready, system,
    // At once, if the figures are unpacked: printing does not wait.
    print(elements, width) { if (figures) for (const element of elements) paint(element, width); },
    redraw() { for (const element of drawn.keys()) paint(element); },
    against(name) { axis = name; this.redraw(); },
  };
})();
