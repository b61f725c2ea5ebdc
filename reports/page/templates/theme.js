// Runs before the page is painted, so that a chosen theme does not flash.
try {
  const chosen = localStorage.getItem("report-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch (refused) { /* a page from disk may have no storage: then the system's theme applies */ }
