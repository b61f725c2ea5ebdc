"use strict";
(() => {
  const root = document.documentElement;

  // What a reader does not see at first lies in the page as text. It is built when it comes near the screen, when it is opened,
  // linked to or printed, and in idle moments. So a page of a thousand cells opens as fast as a page of six.
  function build(part) {
    const made = document.createElement("template");
    made.innerHTML = part.textContent;
    const nodes = [...made.content.children];
    part.replaceWith(made.content);
    for (const node of nodes) equip(node);
  }
  const complete = (element) => element.querySelectorAll("noscript.later").forEach(build);
  document.addEventListener("toggle", (event) => { if (event.target.open) complete(event.target); }, true);

  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      if (target.classList.contains("plot")) plots.draw(target, exportable);
      else if (target.show) target.show();
      else complete(target);
    }
  }, { rootMargin: "600px" });

  // Equip a part of the page: its tables with buttons, its plots with their figures.
  function equip(element) {
    for (const box of element.querySelectorAll(".box")) furnish(box);
    for (const plot of element.querySelectorAll(".plot")) near.observe(plot);
    for (const part of element.querySelectorAll(".box > noscript.later")) near.observe(part.parentElement);
  }

  const idle = window.requestIdleCallback || ((work) => setTimeout(() => work({ timeRemaining: () => 8 }), 20));
  async function buildTheRest() {
    await plots.ready().catch(() => {}); // draw() shows the error
    const slice = (deadline) => {
      do {
        const part = document.querySelector("noscript.later");
        if (!part) return;
        build(part);
      } while (deadline.timeRemaining() > 5);
      idle(slice);
    };
    idle(slice);
  }
  addEventListener("load", () => idle(buildTheRest));

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

  for (const choice of document.querySelectorAll(".axis:not(.only) input")) {
    choice.closest(".axis").hidden = false;
    choice.addEventListener("change", () => {
      for (const other of document.querySelectorAll(`.axis:not(.only) input[value=${choice.value}]`)) other.checked = true;
      plots.against(choice.value);
    });
  }

  // The overview shows all workloads or one.
  for (const choice of document.querySelectorAll(".only input")) {
    choice.closest(".only").hidden = false;
    choice.addEventListener("change", () => {
      complete(document.getElementById("overview"));
      for (const cell of document.querySelectorAll(".matrix [data-of]")) cell.hidden = choice.value !== "" && cell.dataset.of !== choice.value;
    });
  }

  // The Rosetta stone: two files of a workload stand side by side. The reader chooses them.
  for (const stones of document.querySelectorAll(".stones")) {
    const files = [...stones.children];
    if (files.length < 2) continue;
    const chosen = [0, 1];
    const show = () => files.forEach((file, at) => {
      file.hidden = !chosen.includes(at);
      file.open = !file.hidden;
      file.style.order = chosen.indexOf(at);
    });
    const choices = document.createElement("p");
    choices.className = "axis";
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
    near.observe(stones);
    stones.show = show;
  }

  // Tables are copied as CSV, plots are saved as pictures.
  const words = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.textContent;
    if (node.hidden || node.getAttribute("aria-hidden")) return "";
    return [...node.childNodes].map(words).join(node.querySelector(":scope > .sub") ? " " : "");
  };
  const field = (node) => {
    const value = words(node).replace(/\s+/g, " ").trim();
    // A spreadsheet reads a text that begins like this as a formula.
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

  const share = document.getElementById("share");
  share.parentElement.hidden = !window.DecompressionStream;
  share.addEventListener("click", async () => copy(share, await plots.inflated("summary")));

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
    const table = () => { complete(box); return commaSeparated(box.querySelector("table")); };
    box.before(tools(label, [
      ["Copy", (made) => copy(made, table())],
      ["CSV", () => save(`${fileName(label)}.csv`, table())],
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

  // A link to a part of a closed section opens the section.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (target) { complete(target.closest("details") || target); target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();

  // Print light and narrow, whatever the screen is.
  let chosen;
  addEventListener("beforeprint", () => {
    chosen = root.dataset.theme;
    root.dataset.theme = "light";
    const shown = (element) => !element.closest("details:not([open])");
    [...document.querySelectorAll("noscript.later")].filter(shown).forEach(build);
    plots.print([...document.querySelectorAll(".plot")].filter(shown), 640);
  });
  addEventListener("afterprint", () => {
    if (chosen) root.dataset.theme = chosen; else delete root.dataset.theme;
    plots.redraw();
  });

  equip(document);
})();
