"use strict";
// Windows of single repeats are drawn when they are seen. Their numbers lie packed at their places, uPlot at the page's end.
const plots = (() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map(); // place -> its plots
  let loading = null;

  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";

  function inflated(packed) {
    const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  async function load() {
    const script = document.createElement("script");
    script.textContent = await inflated(document.getElementById("uplot").textContent); // the policy names its digest
    document.head.append(script);
  }

  // Numbers are the differences between multiples of a unit.
  const numbers = ([unit, steps]) => { let at = 0; return steps.map((step) => (at += step) * unit); };

  function paint(place, data) {
    const style = getComputedStyle(place);
    const [tone, muted, line, card, bad] = ["--c", "--muted", "--line", "--card", "--bad"].map((name) => style.getPropertyValue(name).trim());
    const axis = { stroke: muted, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui, sans-serif" };
    const sides = { ...axis, size: 54, space: 24, labelSize: 16, labelFont: axis.font };
    const sync = { key: place.closest("figure").id, scales: ["x", null] };
    const ends = [...data.points.map(([x]) => numbers(x)), ...data.signals.map((signal) => numbers(signal.x))].flat();
    const range = [Math.min(...ends), Math.max(...ends)];
    function add(height, unit, lines, more) {
      const table = uPlot.join(lines.map(({ x, y }) => [x, y]));
      const options = {
        width: place.clientWidth, height, cursor: { sync, drag: { x: false, y: false } }, legend: { show: false }, padding: [8, 8, 0, 0],
        scales: { x: { time: false, range }, y: { range: more.range || ((self, low, high) => [Math.min(0, low), high * 1.05 || 1]) } },
        axes: [{ ...axis, size: more.last ? 30 : 8, values: more.last ? undefined : (self, ticks) => ticks.map(() => "") }, { ...sides, label: unit }],
        series: [{}, ...lines.map(({ series }) => series)], hooks: { draw: [(self) => more.draw && more.draw(self)] },
      };
      return new uPlot(options, table, place);
    }
    const held = data.signals.filter((signal) => signal.held);
    const units = [...new Set(data.signals.map((signal) => signal.unit))];
    const points = data.points.map(([x, y], at) => ({
      x: numbers(x), y: numbers(y),
      series: { paths: () => null, points: { show: true, size: 5, stroke: tone, fill: at ? tone : card, width: 1 } },
    })).filter(({ x }) => x.length);
    const levels = (self) => {
      const { ctx, bbox } = self;
      ctx.save();
      ctx.strokeStyle = muted;
      ctx.setLineDash([4, 4]);
      for (const level of data.levels) {
        const y = self.valToPos(level, "y", true);
        ctx.beginPath();
        ctx.moveTo(bbox.left, y);
        ctx.lineTo(bbox.left + bbox.width, y);
        ctx.stroke();
      }
      ctx.restore();
    };
    const made = [add(190, "ms a step", points, { range: [0, data.top], last: !units.length, draw: levels })];
    for (const unit of units) {
      const lines = data.signals.filter((signal) => signal.unit === unit && !signal.held).map((signal) => ({
        x: numbers(signal.x), y: numbers(signal.y), series: { stroke: signal.name.startsWith("GPU") ? tone : muted, width: 1.5, spanGaps: true, points: { show: signal.x[1].length === 1 } },
      }));
      const crosses = (self) => {
        self.ctx.fillStyle = bad;
        for (const { x, y } of held.filter((signal) => signal.unit === unit).map((signal) => ({ x: numbers(signal.x), y: numbers(signal.y) }))) {
          x.forEach((second, at) => self.ctx.fillText("✕", self.valToPos(second, "x", true), self.valToPos(y[at], "y", true)));
        }
      };
      if (lines.length) made.push(add(unit === units.at(-1) ? 96 : 74, unit, lines, { last: unit === units.at(-1), draw: crosses }));
    }
    return made;
  }

  async function draw(place) {
    if (drawn.has(place)) return;
    if (!window.DecompressionStream) {
      place.textContent = "This browser cannot draw the windows (it has no DecompressionStream); the list below has the numbers.";
      return;
    }
    drawn.set(place, []);
    loading = loading || load();
    await loading;
    place.samples = JSON.parse(await inflated(place.dataset.samples));
    drawn.set(place, paint(place, place.samples));
  }

  function redraw() {
    for (const [place, made] of drawn) {
      for (const plot of made) plot.destroy();
      if (place.samples) drawn.set(place, paint(place, place.samples));
    }
  }
  addEventListener("resize", redraw);

  // The text of a picture as a file of its own: with the page's styles for pictures, and with the colours of the theme.
  function picture(svg) {
    const { width, height } = svg.getBoundingClientRect();
    const style = getComputedStyle(svg);
    const left = parseFloat(style.paddingLeft), top = parseFloat(style.paddingTop);
    const copy = svg.cloneNode(true);
    const [from, to] = [svg, copy].map((whole) => [whole, ...whole.querySelectorAll("[class]")]);
    from.forEach((element, at) => to[at].style.setProperty("--c", getComputedStyle(element).getPropertyValue("--c") || "currentColor"));
    for (const name of ["--ink", "--muted", "--line", "--card", "--bad", "--good", "--wash"]) copy.style.setProperty(name, style.getPropertyValue(name));
    const inner = copy.querySelector("svg");
    inner.setAttribute("width", width - left - parseFloat(style.paddingRight));
    for (const mark of copy.querySelectorAll("[x$='%']")) mark.setAttribute("x", parseFloat(mark.getAttribute("x")) / 100 * inner.getAttribute("width"));
    for (const [name, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `${-left} ${-top} ${width} ${height}` })) copy.setAttribute(name, value);
    const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).filter((rule) => (rule.selectorText || "").startsWith(".chart"));
    const sheet = document.createElementNS("http://www.w3.org/2000/svg", "style");
    sheet.textContent = [...rules.map((rule) => rule.cssText), `.chart { padding: 0 !important; width: ${width}px !important; background: var(--card); font-family: sans-serif; }`].join("\n");
    copy.prepend(sheet);
    return new XMLSerializer().serializeToString(copy);
  }

  async function pixels(svg) {
    const image = new Image();
    image.src = `data:image/svg+xml,${encodeURIComponent(picture(svg))}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width * 2, image.height * 2];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  }

  return { dark, draw, inflated, picture, pixels, redraw, system };
})();
const drawSamples = plots.draw;
