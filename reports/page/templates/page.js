"use strict";
(() => {
  const root = document.documentElement;

  // What a reader does not see at first lies packed in the page. It is built where it is opened, linked to or printed. So a page of a
  // thousand cells opens as fast as a page of six.
  let parts = null;
  let loading = null;
  const loaded = () => { loading = loading || plots.inflated(document.getElementById("parts").textContent).then((text) => { parts = JSON.parse(text); }); return loading; };
  const waiting = (element) => [...element.querySelectorAll(".later")].filter((part) => !part.closest("details:not([open])"));

  // Build what is open in an element. The parts must be loaded.
  function build(element) {
    for (let found = waiting(element); found.length; found = waiting(element)) {
      for (const part of found) {
        const made = document.createElement("template");
        made.innerHTML = parts[part.dataset.part];
        const nodes = [...made.content.children];
        part.replaceWith(made.content);
        for (const node of nodes) equip(node);
      }
    }
  }
  const complete = async (element) => { if (waiting(element).length) { await loaded(); build(element); } };
  document.addEventListener("toggle", (event) => { if (event.target.open) complete(event.target); }, true);

  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      drawSamples(target);
    }
  }, { rootMargin: "600px" });

  // Equip a part of the page: its tables and pictures with buttons, its samples with their plots, its files with a choice.
  function equip(element) {
    const all = (selector) => [...(element.matches && element.matches(selector) ? [element] : []), ...element.querySelectorAll(selector)];
    all(".box").forEach(furnish);
    all("svg.chart").forEach(exportable);
    all(".samples").forEach((place) => near.observe(place));
    all(".stones").forEach(beside);
  }

  // What is linked to and printed comes at once when it is asked for.
  addEventListener("load", () => { if (window.DecompressionStream) (window.requestIdleCallback || setTimeout)(loaded); });

  const button = document.getElementById("theme");
  const label = () => { button.textContent = plots.dark() ? "Light theme" : "Dark theme"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = plots.dark() ? "light" : "dark";
    try { localStorage.setItem("report-theme", root.dataset.theme); } catch (refused) { /* see theme.js */ }
    label();
    plots.redraw();
  });
  plots.system.addEventListener("change", () => { label(); plots.redraw(); });
  label();

  // The Rosetta stone: two files of a workload stand side by side. The reader chooses them.
  function beside(stones) {
    const files = [...stones.children];
    if (files.length < 2) return;
    const chosen = [0, 1];
    const show = () => files.forEach((file, at) => {
      file.hidden = !chosen.includes(at);
      file.open = !file.hidden;
      file.style.order = chosen.indexOf(at);
    });
    const choices = document.createElement("p");
    choices.className = "choices";
    for (const side of [0, 1]) {
      const made = document.createElement("select");
      made.setAttribute("aria-label", side ? "Right file" : "Left file");
      for (const file of files) made.add(new Option(file.querySelector("summary").firstChild.textContent.trim()));
      made.selectedIndex = chosen[side];
      made.addEventListener("change", () => { chosen[side] = made.selectedIndex; show(); });
      choices.append(made);
    }
    stones.before(choices);
    stones.classList.add("beside");
    show();
  }

  // Tables are copied as CSV, plots are saved as pictures.
  const words = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.textContent;
    if (node.hidden || node.getAttribute("aria-hidden")) return "";
    return [...node.childNodes].map(words).join(node.querySelector(":scope > .sub") ? " " : "");
  };
  const field = (node) => quoted(words(node));
  const quoted = (content) => {
    const value = content.replace(/\s+/g, " ").trim();
    // A spreadsheet reads a text that begins like this as a formula.
    return `"${(/^[=+\-@]/.test(value) ? "'" : "") + value.replaceAll('"', '""')}"`;
  };
  const commaSeparated = (table) => [...table.rows].map((row) => [...row.cells].filter((cell) => !cell.hidden).map(field).join(",")).join("\n") + "\n";

  function save(name, content, type = "text/csv") {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
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

  const run = document.getElementById("results").dataset.run.replace(/[^\w-]+/g, "-").slice(0, 80);
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

  function furnish(box) {
    const label = box.getAttribute("aria-label");
    const table = () => commaSeparated(box.querySelector("table"));
    box.before(tools(label, [
      ["Copy", (made) => copy(made, table())],
      ["CSV", () => save(`${run}-${fileName(label)}.csv`, table())],
    ]));
  }

  function exportable(element) {
    const caption = element.closest("figure").querySelector("figcaption");
    const label = element.getAttribute("aria-label").slice(0, 100);
    const name = fileName(label);
    caption.prepend(tools(label, [
      ["PNG", async () => save(`${name}.png`, await plots.pixels(element), "image/png")],
      ["SVG", () => save(`${name}.svg`, plots.picture(element), "image/svg+xml")],
    ]));
  }

  // -- The table of results. The server writes every figure; here a slice is shown, its rows sorted and filtered, and its unit chosen.

  const controls = document.querySelector("#controls form");
  const sheets = [];
  const state = new URLSearchParams();
  const units = {
    x: { at: 0, head: "× fastest, less is better", said: "step time as a multiple of the fastest of its column; 1 is best", steps: true },
    rate: { at: 1, head: "%/s, more is better", more: true, said: "items a second; more is better", steps: true },
    ms: { at: 2, head: "ms a step, less is better", said: "milliseconds a step with the 95 % interval; less is better", steps: true },
    start: { at: 3, head: "s until the first step, less is better", said: "seconds of import, build and first step; less is better" },
    joules: { at: 4, head: "J a %1, less is better", said: "joules an item; less is better" },
    price: { at: 1, head: "price per million %, less is better", said: "price of a million items; less is better", steps: true },
  };
  const unit = () => Object.hasOwn(units, state.get("show")) ? state.get("show") : "x";
  const figure = (value) => {
    if (value >= 1e5 || value < 1e-3) return value.toExponential(2);
    return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value >= 1 ? value.toFixed(2) : value.toFixed(3);
  };

  // The reader's price per hour; null where it is no price: a link may hold anything, and 1e400 is infinite.
  function hourly() {
    const hour = Number(state.get("hour"));
    return hour > 0 && hour <= 1e6 ? hour : null;
  }

  // The value of an entry in the chosen unit with the ends of its interval; null where it has none.
  function measured(cell) {
    const name = unit();
    const numbers = ((cell.dataset.m || "").split(";")[units[name].at] || "").split(",").filter(Boolean).map(Number);
    if (!numbers.length) return null;
    if (name !== "price") return numbers;
    const hour = hourly();
    if (hour === null) return null;
    const [value, high, low] = numbers.map((rate) => (hour / 3600 / rate) * 1e6); // the slowest end is the dearest
    return low === undefined ? [value] : [value, low, high];
  }

  const unpriced = () => unit() === "price" && hourly() === null;

  function drawn(cell, value, end) {
    const bar = cell.querySelector(".bar"), words = cell.querySelector(".n");
    words.textContent = value ? figure(value[0]) : unpriced() ? "?" : "–";
    cell.querySelector(".ends")?.remove();
    if (unit() === "ms" && value && cell.dataset.ms) {
      const [low, high] = cell.dataset.ms.split(",").map(Number);
      const same = figure(low) === figure(high);
      const ends = document.createElement("span");
      ends.className = "ends";
      ends.textContent = same ? `(${low} to ${high})` : `(${figure(low)} to ${figure(high)})`;
      cell.append(ends);
    }
    const share = (number) => `${Math.min(100, (100 * number) / end).toFixed(1)}%`;
    bar.style.setProperty("--v", value ? share(value[0]) : "0%");
    for (const [name, number] of [["--l", value && value[1]], ["--r", value && value[2]]]) {
      bar.style.setProperty(name, number ? share(number) : "0%");
    }
    bar.classList.toggle("cut", !!value && Math.max(value[0], value[2] || 0) > end * 1.0001);
  }

  function paint(sheet) {
    const rows = [...sheet.querySelectorAll("tbody tr")], heads = [...sheet.querySelectorAll("thead th")];
    const name = unit();
    const reach = (values) => {
      const longest = Math.max(...values.map((value) => value ? value[0] : 0));
      return Math.max(longest, ...values.map((value) => value && value[2] ? Math.min(value[2], 1.3 * longest) : 0));
    };
    const inColumn = (at) => rows.map((row) => row.cells[at]).filter((cell) => cell.dataset.m !== undefined);
    // Ratios of all columns have one scale. Milliseconds of two networks would leave one of them no bar.
    const shared = Math.min(4, reach(heads.flatMap((head, at) => at ? inColumn(at).map(measured) : [])));
    sheet.querySelector(".scale").textContent = name === "x" ? "bars share one scale" : "each column has a scale of its own";
    for (let at = 1; at < heads.length; at += 1) {
      const cells = inColumn(at), values = cells.map(measured);
      const items = heads[at].dataset.items;
      cells.forEach((cell, index) => drawn(cell, values[index], name === "x" ? shared : reach(values) || 1));
      heads[at].querySelector(".unit").textContent = units[name].head.replace("%1", items.replace(/s$/, "")).replace("%", items);
    }
    const filter = (state.get("filter") || "").toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const head = row.cells[0];
      const text = `${head.textContent} ${head.title}`.toLowerCase();
      row.hidden = !filter.every((word) => text.includes(word));
    }
    const best = state.get("rows") !== "all";
    sheet.querySelector("tbody").classList.toggle("versions-off", best);
    const what = sheet.querySelector(".what");
    const type = state.get("hour") ? "the price per hour must be a number above 0 and at most a million" : "type a price per hour into the field “per hour”";
    what.textContent = unpriced() ? type : units[name].said;
    what.classList.toggle("warn", unpriced());
    sheet.querySelector(".results").classList.toggle("not-steps", !units[name].steps);
    const found = rows.filter((row) => !row.hidden);
    const folded = sheet.querySelector(".further details:not([open])");
    const hidden = found.filter((row) => folded && row.classList.contains("unrun")).length;
    const under = best ? found.filter((row) => row.classList.contains("version") && !(folded && row.classList.contains("unrun"))).length : 0;
    const empty = sheet.querySelector(".empty");
    empty.hidden = found.length > under + hidden;
    const have = (count) => (count === 1 ? "one has" : `${count} have`);
    empty.textContent = `No row has “${state.get("filter")}”.` + (under ? ` Under “every image” ${have(under)}.` : "") + (hidden ? ` Of those not yet run ${have(hidden)}.` : "");
    sorted(sheet, rows, heads);
  }

  function sorted(sheet, rows, heads) {
    const [chosen, direction] = (state.get("sort") || "1").split("-");
    const at = Math.min(heads.length - 1, Math.max(0, Math.trunc(Number(chosen)) || 0));
    const down = direction === "down";
    const key = (row) => {
      if (at === 0) return row.cells[0].textContent.toLowerCase();
      const value = measured(row.cells[at]);
      return value ? (units[unit()].more ? -value[0] : value[0]) : Infinity;
    };
    const keys = new Map(rows.map((row) => [row, key(row)]));
    rows.sort((a, b) => {
      const [first, second] = [keys.get(a), keys.get(b)];
      if (first === second) return 0;
      if (first === Infinity || second === Infinity) return first === Infinity ? 1 : -1;
      return (first < second ? -1 : 1) * (down ? -1 : 1);
    });
    sheet.querySelector("tbody").append(...rows);
    heads.forEach((head, index) => {
      if (index === at) head.setAttribute("aria-sort", down ? "descending" : "ascending"); else head.removeAttribute("aria-sort");
    });
  }

  // The control bar's order, which a telephone needs: it has no heads to press.
  function orders(sheet) {
    const select = controls.elements.sort;
    const folded = sheet.querySelector(".further details:not([open])");
    const choices = [...sheet.querySelectorAll("thead th")].flatMap((head, at) => {
      if (folded && head.classList.contains("unrun")) return [];
      const name = head.querySelector(".sort").textContent;
      return [[name, `${at}`], [at ? `${name}, worst first` : `${name}, Z to A`, `${at}-down`]];
    });
    // A link may name a column that is folded, or none: the order is the usual one then.
    if (!choices.some(([, value]) => value === state.get("sort"))) state.delete("sort");
    if ([...select.options].map((one) => one.text).join() === choices.map(([name]) => name).join()) return;
    select.replaceChildren(...choices.map(([name, value]) => new Option(name, value)));
  }

  // A line a figure: spreadsheets get plain numbers, and what stands beside one has a column of its own.
  function figures(sheet) {
    const heads = [...sheet.querySelectorAll("thead th")];
    const lines = [["framework", "image", "workload", "unit", "value", "low", "high", "marks", "cell", "remark"].map(quoted)];
    for (const row of [...sheet.querySelectorAll("tbody tr")].filter((one) => one.offsetParent)) {
      for (const cell of [...row.cells].slice(1)) {
        const link = cell.querySelector("a"), values = measured(cell) || [];
        const ends = unit() === "ms" && cell.dataset.ms ? cell.dataset.ms.split(",") : values.slice(1);
        const marks = units[unit()].steps && cell.querySelector(".tie") ? cell.querySelector(".of-steps").textContent : "";
        const said = [units[unit()].steps && cell.dataset.standing, marks.includes("~") && "unsteady"].filter(Boolean).join("; ");
        const remark = values.length ? cell.title : `${words(cell)}${cell.title ? `: ${cell.title}` : ""}`;
        const head = heads[cell.cellIndex];
        lines.push([
          quoted(words(row.cells[0])), quoted(row.cells[0].title), quoted(head.querySelector(".sort").textContent),
          quoted(head.querySelector(".unit").textContent.split(",")[0]),
          values[0] ?? "", ends[0] ?? "", ends[1] ?? "", quoted(said),
          quoted(link ? link.getAttribute("href").replace("#cell-", "") : ""), quoted(remark),
        ]);
      }
    }
    return lines.map((line) => line.join(",")).join("\n") + "\n";
  }

  const places = ["gpu", "precision", "devices", "preset"];
  // The slice that has what was chosen last, and of the rest as much as there is.
  function sheetOf(changed) {
    const fits = (sheet) => places.reduce((sum, name) => {
      const wanted = state.get(name);
      return sum + (wanted && sheet.dataset[name] === wanted ? (name === changed ? 10 : 1) : 0);
    }, 0);
    return sheets.reduce((best, sheet) => (fits(sheet) > fits(best) ? sheet : best), sheets[0]);
  }

  function show(changed) {
    const chosen = sheetOf(changed);
    if (!chosen) return;
    for (const sheet of sheets) sheet.hidden = sheet !== chosen;
    for (const name of places) state.set(name, chosen.dataset[name]);
    orders(chosen);
    for (const input of controls.elements) {
      if (input.type === "radio") input.checked = input.value === (state.get(input.name) || { rows: "best", show: "x" }[input.name]);
      else if (input.name && document.activeElement !== input) input.value = state.get(input.name) || { sort: "1" }[input.name] || "";
    }
    controls.querySelector(".price").hidden = unit() !== "price";
    paint(chosen);
  }

  // The link holds what differs from the page as it opens.
  function shown() {
    const link = new URLSearchParams(state);
    for (const name of places) if (link.get(name) === sheets[0].dataset[name]) link.delete(name);
    for (const [name, plain] of [["rows", "best"], ["show", "x"], ["sort", "1"], ["filter", ""], ["hour", ""]]) if (link.get(name) === plain) link.delete(name);
    return String(link);
  }

  function remember() {
    const link = shown();
    history.replaceState(null, "", link ? `#${link}` : location.pathname + location.search);
  }

  function restore() {
    for (const name of [...state.keys()]) state.delete(name);
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) state.set(name, value);
    show("");
    if (state.has("cell")) lead(`cell-${state.get("cell")}`);
  }

  function openResults() {
    sheets.push(...document.querySelectorAll(".sheet"));
    if (!sheets.length) return;
    document.getElementById("controls").hidden = false;
    // On a narrow screen the table comes first.
    const fold = controls.closest("details"), narrow = matchMedia("(max-width: 640px)");
    const folded = () => { fold.open = !narrow.matches; };
    folded();
    narrow.addEventListener("change", folded);
    restore();
    const under = () => root.style.setProperty("--under", getComputedStyle(document.getElementById("controls")).position === "sticky" ? `${document.getElementById("controls").offsetHeight}px` : "0px");
    new ResizeObserver(under).observe(document.getElementById("controls"));
    controls.addEventListener("submit", (event) => event.preventDefault());
    controls.addEventListener("input", (event) => { state.set(event.target.name, event.target.value); show(event.target.name); remember(); });
    document.getElementById("results").addEventListener("click", (event) => {
      const head = event.target.closest("th[data-at]");
      if (!head) return;
      const again = head.getAttribute("aria-sort") === "ascending";
      state.set("sort", head.dataset.at + (again ? "-down" : ""));
      show("");
      remember();
    });
    // A figure opens its measurement, and the link keeps what the table shows.
    document.addEventListener("click", (event) => {
      const link = event.target.closest('a[href^="#cell-"]');
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const name = link.getAttribute("href").slice(1);
      if (state.get("cell") === name.slice(5)) { lead(name); return; }
      state.set("cell", name.slice(5));
      location.hash = shown();
    });
    document.addEventListener("toggle", (event) => {
      if (event.target.open || event.target.id !== `cell-${state.get("cell")}`) return;
      state.delete("cell");
      remember();
    }, true);
    for (const sheet of sheets) sheet.querySelector(".further details")?.addEventListener("toggle", () => show(""));
    document.getElementById("link").addEventListener("click", (event) => copy(event.target, location.href));
    document.getElementById("share").hidden = !window.DecompressionStream;
    document.getElementById("share").addEventListener("click", async (event) => copy(event.target, await plots.inflated(document.getElementById("summary").textContent)));
    document.getElementById("table-csv").addEventListener("click", () => {
      const sheet = sheets.find((one) => !one.hidden);
      save(`${run}-results-${unit()}.csv`, figures(sheet));
    });
  }
  openResults();

  // A link to a part of a closed section opens the section; a link with = holds what the table shows.
  async function reveal() {
    let name = "";
    // A link that is no UTF-8 leads nowhere.
    try { name = decodeURIComponent(location.hash.slice(1)); } catch { return; }
    if (name.includes("=") || !name) { if (sheets.length) restore(); return; }
    await lead(name);
  }

  async function lead(name) {
    // It may be inside a part that is not built yet: then that part's place is where the link leads.
    if (!document.getElementById(name)) {
      await loaded();
      const index = parts.findIndex((part) => part.includes(`id="${name}"`));
      open(document.querySelector(`[data-part="${index}"]`));
      build(document.body);
    }
    const target = document.getElementById(name);
    if (!target) return;
    open(target);
    await complete(document.body);
    target.scrollIntoView();
  }
  function open(element) { for (let at = element; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true; }
  addEventListener("hashchange", reveal);
  if (location.hash && !location.hash.includes("=")) reveal();

  // Print light and narrow, whatever the screen is.
  let chosen;
  addEventListener("beforeprint", () => {
    chosen = root.dataset.theme;
    root.dataset.theme = "light";
    const shown = (element) => !element.closest("details:not([open])");
    if (parts) build(document.body);
  });
  addEventListener("afterprint", () => {
    if (chosen) root.dataset.theme = chosen; else delete root.dataset.theme;
    plots.redraw();
  });

  equip(document);
})();
