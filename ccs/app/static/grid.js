// The grid of heads by keyboard and pointer.
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -999], End: [0, 999] };

document.addEventListener("keydown", (event) => {
  const cell = event.target.closest?.(".grid .cell"), step = STEPS[event.key];
  if (!cell || !step || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const rows = [...document.querySelectorAll(".grid [role=row]:not(.names)")].map((row) => [...row.querySelectorAll(".cell")]);
  const y = rows.findIndex((row) => row.includes(cell)), row = rows[y + step[0]] ?? rows[y];
  const to = row[Math.min(Math.max(rows[y].indexOf(cell) + step[1], 0), row.length - 1)];
  cell.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
});
document.addEventListener("click", ({ target }) => {
  const cell = target.closest(".grid .cell"), see = (node) => document.querySelector(node)?.scrollIntoView();
  if (target.closest(".handle:not([open])")) see("#region-main :is(.lead, .fig)");
  // What a click does is seen at once; the answer then says the same.
  if (cell?.getAttribute("formaction") === "heads/toggle") cell.classList.toggle("off", !cell.matches(".off, .scaled, .edited"));
  // On a narrow screen the panel is below the grid.
  else if (cell && innerWidth <= 1000) document.addEventListener("settled", () => see(".card-title"), { once: true });
});
