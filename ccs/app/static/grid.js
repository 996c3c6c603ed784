// The grid of heads by keyboard, tooltips, values of patches, and what a visitor has unfolded.
import { name, post } from "./app.js";
import { opened, sheet, tip } from "./tools.js";

function walk(cell, key) {
  const rows = [...document.querySelectorAll('.grid [role="row"]:not(.names)')].map((row) => [...row.querySelectorAll(".cell")]);
  let y = rows.findIndex((row) => row.includes(cell)), x = rows[y].indexOf(cell);
  if (key === "ArrowUp") y--; else if (key === "ArrowDown") y++;
  else if (key === "ArrowLeft") x--; else if (key === "ArrowRight") x++;
  else x = key === "Home" ? 0 : rows[y].length - 1;
  const to = rows[y]?.[x];
  if (!to) return;
  for (const one of document.querySelectorAll('.grid .cell[tabindex="0"]')) one.tabIndex = -1;
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
  if (!cell) return;
  if (cell.getAttribute("formaction") === "heads/toggle" || event.shiftKey) { event.preventDefault(); return toggle(cell); }
  for (const one of document.querySelectorAll('.grid [aria-selected="true"]')) one.setAttribute("aria-selected", "false");
  cell.parentElement.setAttribute("aria-selected", "true");
  if (innerWidth <= 1000) document.addEventListener("settled", () => document.querySelector(".card-title")?.scrollIntoView({ block: "start" }), { once: true });
});
document.addEventListener("keydown", (event) => {
  const { key, target } = event, cell = target.closest?.(".grid .cell");
  if (key === "Escape") { tip(null); return sheet(false); }
  if (!cell || event.ctrlKey || event.metaKey) return;
  if (key.startsWith("Arrow") || key === "Home" || key === "End") { event.preventDefault(); walk(cell, key); }
  else if (key === " " || key === "x") { event.preventDefault(); toggle(cell); }
});
document.addEventListener("keyup", (event) => { if (event.key === " " && event.target.matches?.(".grid .cell")) event.preventDefault(); });
for (const kind of ["mouseover", "focusin"]) document.addEventListener(kind, ({ target }) => {
  const node = target.closest("[data-tip]") ?? (target.matches("a[data-open]") ? target.querySelector("[data-tip]") : null);
  if (node && (kind === "mouseover" || target.matches(":focus-visible"))) tip(node);
});
for (const kind of ["mouseout", "focusout"]) document.addEventListener(kind, () => tip(null));
document.addEventListener("toggle", ({ target }) => {
  if (target.matches?.("details")) opened[target.open ? "add" : "delete"](name(target));
}, true);
// A patch says its value when one points at it, or taps.
document.addEventListener("mousemove", (event) => {
  const picture = event.target.closest("[data-patches]");
  if (!picture) return;
  const [rows, columns, ...values] = picture.dataset.patches.split(" "), box = picture.getBoundingClientRect();
  const at = (share, n) => Math.min(n - 1, Math.max(0, Math.floor(share * n)));
  const y = at((event.clientY - box.top) / box.height, rows), x = at((event.clientX - box.left) / box.width, columns);
  const patch = picture.querySelector("i") || picture.appendChild(document.createElement("i"));
  patch.style.cssText = `width:${100 / columns}%;height:${100 / rows}%;left:${100 * x / columns}%;top:${100 * y / rows}%`;
  patch.dataset.tip = `${picture.dataset.word} ${values[y * columns + x]}\nrow ${y}, column ${x}`;
  tip(patch);
});
document.addEventListener("mouseout", ({ target }) => target.closest("[data-patches]")?.querySelector("i")?.remove());
