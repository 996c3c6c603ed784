// Saving, copying, printing, tooltips, and messages.
export const opened = new Set();

function box(id, role) {
  const known = document.getElementById(id);
  if (known) return known;
  const made = Object.assign(document.createElement("div"), { id, className: id });
  made.setAttribute("role", role);
  document.body.append(made);
  return made;
}
export function say(text) {
  const toast = box("toast", "status");
  toast.textContent = text;
  toast.classList.add("on");
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => toast.classList.remove("on"), 4000);
}
export function busy(on) {
  if (on) document.body.dataset.busy = "1";
  else delete document.body.dataset.busy;
}
export function tip(target) {
  const tooltip = box("tip", "tooltip");
  tooltip.hidden = !target;
  if (!target) return;
  const [first, ...rows] = target.dataset.tip.split("\n");
  tooltip.replaceChildren(Object.assign(document.createElement("b"), { textContent: first }),
    ...rows.map((row) => Object.assign(document.createElement("span"), { textContent: row })));
  const at = target.getBoundingClientRect(), size = tooltip.getBoundingClientRect();
  const x = Math.min(Math.max(8, at.left + at.width / 2 - size.width / 2), innerWidth - size.width - 8);
  const below = at.bottom + 8 + size.height < innerHeight;
  tooltip.style.transform = `translate(${x}px, ${below ? at.bottom + 8 : at.top - size.height - 8}px)`;
}

function save(name, blob) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}
// The figure with its computed styles, drawn through an SVG: what is on the screen is what is saved, with its source.
async function screenshot(section) {
  const box = section.getBoundingClientRect(), copy = section.cloneNode(true);
  const from = [section, ...section.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    if (node.matches(".source")) { to[i].style.cssText = "font:12px system-ui,sans-serif;color:gray;display:block;margin-top:8px;overflow-wrap:anywhere"; return; }
    if (style.display === "none" || node.matches(".tools, .what, .handle, .off-bar, .off-now, .folds, [data-save]")) { to[i].style.display = "none"; return; }
    let css = "";
    for (const name of style) css += `${name}:${style.getPropertyValue(name)};`;
    to[i].style.cssText = css; // the policy forbids style attributes
  });
  sign(copy);
  copy.style.margin = "0";
  copy.style.height = "auto"; // without what is left out the copy is lower than the figure on the page
  const stage = Object.assign(document.createElement("div"), { inert: true });
  stage.style.cssText = `position:absolute;left:-9999px;top:0;width:${box.width}px`;
  stage.append(copy);
  document.body.append(stage);
  const height = copy.offsetHeight;
  stage.remove();
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${box.width}" height="${height}"><foreignObject width="100%" height="100%">${new XMLSerializer().serializeToString(copy)}</foreignObject></svg>`;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: box.width * 2, height: height * 2 }), pen = canvas.getContext("2d");
  pen.fillStyle = getComputedStyle(document.body).backgroundColor;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.scale(2, 2);
  pen.drawImage(image, 0, 0);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
async function copy(text, words) {
  const blob = Promise.resolve(text).then((value) => new Blob([value], { type: "text/plain" }));
  try { await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]); }
  catch { // no clipboard without https; a selection works everywhere
    const area = Object.assign(document.createElement("textarea"), { value: await text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(words);
}
const add = async (files) => (await import("./app.js")).send("images/add", files);
const model = () => (document.querySelector('select[name="model"]')?.value || "clip").replaceAll("/", "-");

document.addEventListener("click", async ({ target }) => {
  const node = target.closest("button[type=button]"), data = node?.dataset;
  if (!data) return;
  const figure = node.closest("[data-name]");
  if (data.save === "csv") save(`${model()}-${figure.dataset.name}.csv`, new Blob([figure.dataset.csv], { type: "text/csv" }));
  else if (data.save === "png") save(`${model()}-${figure.dataset.name}.png`, await screenshot(figure));
  else if (data.copy === "link") copy(location.href, data.words);
  else if (data.copy === "text") copy(data.text, data.words);
  else if (data.copy === "program") {
    const search = new URLSearchParams(location.search);
    search.set("page", document.body.dataset.page);
    const answer = fetch(`program?${search}`).then((reply) => reply.text().then((text) => reply.ok ? text : Promise.reject(text)));
    answer.then(() => copy(answer, data.words), say);
  } else if (data.print) print();
  else if (data.theme) {
    const dark = document.documentElement.classList.toggle("dark");
    localStorage.setItem("ccs-theme", dark ? "dark" : "light");
  } else if (data.sheet) sheet(document.body.dataset.sheet !== "open");
});
export function sheet(open) {
  document.body.dataset.sheet = open ? "open" : "closed";
  for (const one of document.querySelectorAll("[data-sheet][aria-expanded]")) one.setAttribute("aria-expanded", open);
  if (open) document.querySelector("#region-main :is(.lead, .fig)")?.scrollIntoView({ block: "start" });
}
for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => {
  if (!event.target.closest("[data-drop]")) return;
  event.preventDefault();
  if (kind === "drop") add([...event.dataTransfer.files]);
});
document.addEventListener("paste", (event) => {
  const files = [...event.clipboardData.files].filter((file) => file.type.startsWith("image/"));
  if (files.length) { event.preventDefault(); add(files); }
});
// What a saved or printed figure says of its making.
function sign(part) {
  for (const source of part.querySelectorAll(".source")) source.textContent = `${source.dataset.text} · ${new Date().toISOString().slice(0, 10)} · ${location.href}`;
}
addEventListener("beforeprint", () => sign(document));
