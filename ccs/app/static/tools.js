// Saving, copying, and messages.
export function say(text) {
  const toast = document.getElementById("toast");
  toast.textContent = text;
  toast.classList.add("on");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => toast.classList.remove("on"), 4000);
}
export function sheet(open) {
  document.body.dataset.sheet = open ? "open" : "closed";
  document.querySelector("[data-sheet][aria-expanded]")?.setAttribute("aria-expanded", open);
  if (open) document.querySelector("#region-main :is(.lead, .fig)")?.scrollIntoView();
}
function save(name, blob) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}
// What a saved or printed figure says of its making.
function sign(part) {
  const now = `${new Date().toISOString().slice(0, 10)} · ${location.href}`;
  for (const source of part.querySelectorAll(".source")) source.textContent = `${source.dataset.text} · ${now}`;
}
// The figure with its computed styles, drawn through an SVG: what is on the screen is what is saved, with its source.
async function screenshot(section) {
  const width = section.offsetWidth, copy = section.cloneNode(true), originals = section.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((node, i) => copyStyle(originals[i], node));
  copyStyle(section, copy);
  sign(copy);
  copy.style.margin = "0";
  copy.style.height = "auto"; // without what is left out the copy is lower than the figure on the page
  const stage = Object.assign(document.createElement("div"), { inert: true });
  stage.style.cssText = `position:absolute;left:-9999px;top:0;width:${width}px`;
  stage.append(copy);
  document.body.append(stage);
  const height = copy.offsetHeight;
  stage.remove();
  const html = new XMLSerializer().serializeToString(copy), size = `width="${width}" height="${height}"`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" ${size}><foreignObject width="100%" height="100%">${html}</foreignObject></svg>`;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: width * 2, height: height * 2 });
  const pen = canvas.getContext("2d");
  pen.fillStyle = getComputedStyle(document.body).backgroundColor;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
function copyStyle(from, to) {
  const style = getComputedStyle(from), left = ".tools, .what, .handle, .off-bar, .off-now, .folds, [data-save]";
  if (from.matches(".source")) to.style.cssText = "font:12px system-ui;color:gray;display:block;overflow-wrap:anywhere";
  else if (style.display === "none" || from.matches(left)) to.style.display = "none";
  else to.style.cssText = [...style].map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"); // no sheet applies there
}
async function copy(text, words) {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else prompt("Copy this:", text); // without https there is no clipboard
  say(words);
}
async function copyProgram(words) {
  const search = new URLSearchParams(location.search);
  search.set("page", document.body.dataset.page);
  const answer = await fetch(`program?${search}`), text = await answer.text();
  if (answer.ok) copy(text, words);
  else say(text);
}
document.addEventListener("click", async ({ target }) => {
  const node = target.closest("button[type=button]"), data = node?.dataset;
  if (!data) return;
  const figure = node.closest("[data-name]"), model = document.querySelector('select[name="model"]')?.value.replaceAll("/", "-");
  if (data.save === "csv") save(`${model}-${figure.dataset.name}.csv`, new Blob([figure.dataset.csv], { type: "text/csv" }));
  else if (data.save === "png") save(`${model}-${figure.dataset.name}.png`, await screenshot(figure));
  else if (data.copy === "program") copyProgram(data.words);
  else if (data.copy) copy(data.copy === "link" ? location.href : data.text, data.words);
  else if (data.sheet) sheet(document.body.dataset.sheet !== "open");
  else if (data.theme) localStorage.setItem("ccs-theme", document.documentElement.classList.toggle("dark") ? "dark" : "light");
});
addEventListener("beforeprint", () => sign(document));
