// The grid of heads by keyboard and pointer.
import { post } from "./app.js";
import { sheet } from "./tools.js";

function walk(cell, key) {
  const rows = [...document.querySelectorAll('.grid [role="row"]:not(.names)')].map((row) => [...row.querySelectorAll(".cell")]);
  const y = rows.findIndex((row) => row.includes(cell)), x = rows[y].indexOf(cell);
  const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key] ?? [0, 0];
  const to = key === "Home" ? rows[y][0] : key === "End" ? rows[y].at(-1) : rows[y + down]?.[x + right];
  if (!to) return;
  cell.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}
// What a click does is seen at once; the answer then says the same.
function toggle(cell) {
  const off = !cell.matches(".off, .scaled, .edited");
  cell.classList.remove("scaled", "edited");
  cell.classList.toggle("off", off);
  cell.setAttribute("aria-pressed", off);
  post("heads/toggle", { head: cell.value });
}
document.addEventListener("click", (event) => {
  const cell = event.target.closest(".grid .cell");
  if (cell?.getAttribute("formaction") === "heads/toggle") {
    event.preventDefault();
    toggle(cell);
  } else if (cell && innerWidth <= 1000) { // the panel is below the grid
    document.addEventListener("settled", () => document.querySelector(".card-title")?.scrollIntoView(), { once: true });
  }
});
document.addEventListener("keydown", (event) => {
  const { key, target } = event, cell = target.closest?.(".grid .cell");
  if (key === "Escape") sheet(false);
  if (!cell || event.ctrlKey || event.metaKey || !/^(Arrow|Home|End| )/.test(key)) return;
  event.preventDefault();
  if (key === " ") toggle(cell);
  else walk(cell, key);
});
document.addEventListener("keyup", (event) => {
  if (event.key === " " && event.target.matches(".grid .cell")) event.preventDefault(); // else a click
});
