// One region of the page (top, strip, left, main or status): what a visitor does becomes an action, which `ui`
// (ui.js) sends. Gradio gives `element`, `trigger`, `watch` and `upload`.
// Taking a model apart takes minutes and has a queue of its own.
// With the screen that it comes from: the server may not know this page yet, or any more.
const fire = (data) => trigger(data.do === "apart" ? "apart" : "act", { ...data, page: location.search, turn: document.body.dataset.turn });
const act = (data) => ui.send(fire, data);
const fields = (form) => {
  const out = {};
  for (const [name, value] of new FormData(form)) if (typeof value === "string") out[name] = value;
  return out;
};
const submit = (form) => {
  if (form.matches(".fairer")) ui.opened = "[data-name=fairer]";
  act({ ...fields(form), do: form.dataset.do });
};

// -- the grid -----------------------------------------------------------------------------------------------
const grid = () => element.querySelector(".grid");
function toggle(cell) {
  // One that is scaled is switched on, as one that is off is.
  const off = !cell.matches(".off, .scaled");
  cell.classList.remove("scaled");
  cell.classList.toggle("off", off);
  cell.setAttribute("aria-pressed", off);
  // The change, not what the grid shows: an answer that is still on its way may switch other heads.
  act({ do: "toggle", head: cell.dataset.head });
}
function open(cell) {
  for (const one of grid().querySelectorAll('[aria-selected="true"]')) one.setAttribute("aria-selected", "false");
  cell.parentElement.setAttribute("aria-selected", "true");
  ui.opened = ".card-title";
  act({ do: "inspect", head: cell.dataset.head });
}
function press(cell, event) {
  if (grid().dataset.click === "switch" || event.shiftKey) toggle(cell);
  else open(cell);
}
function walk(cell, key) {
  const rows = [...grid().querySelectorAll('[role="row"]:not(.names)')].map((row) => [...row.querySelectorAll(".cell")]);
  let y = rows.findIndex((row) => row.includes(cell)), x = rows[y].indexOf(cell);
  if (key === "ArrowUp") y--; else if (key === "ArrowDown") y++;
  else if (key === "ArrowLeft") x--; else if (key === "ArrowRight") x++;
  else if (key === "Home") x = 0; else x = rows[y].length - 1;
  const to = rows[y]?.[x];
  if (!to) return;
  for (const one of grid().querySelectorAll('.cell[tabindex="0"]')) one.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

// -- taking things along --------------------------------------------------------------------------------------
function save(name, blob) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}
async function screenshot(section) {
  // The figure with its computed styles, drawn through an SVG: what is on the screen is what is saved.
  const box = section.getBoundingClientRect(), copy = section.cloneNode(true);
  const from = [section, ...section.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    if (style.display === "none" || node.matches(".tools, .what, .handle, .off-bar, .off-now, .folds, [data-save]")) { to[i].style.display = "none"; return; }
    let css = "";
    for (const name of style) css += `${name}:${style.getPropertyValue(name)};`;
    to[i].setAttribute("style", css);
  });
  copy.style.margin = "0";
  // Without what is left out the copy is lower than the figure on the page.
  copy.style.height = "auto";
  const stage = Object.assign(document.createElement("div"), { inert: true });
  stage.style.cssText = `position:absolute;left:-9999px;top:0;width:${box.width}px`;
  stage.append(copy);
  document.body.append(stage);
  const height = copy.offsetHeight;
  stage.remove();
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${box.width}" height="${height}"><foreignObject width="100%" height="100%">${
    new XMLSerializer().serializeToString(copy)}</foreignObject></svg>`;
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg);
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: box.width * 2, height: height * 2 });
  const pen = canvas.getContext("2d");
  pen.fillStyle = getComputedStyle(document.body).backgroundColor;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.scale(2, 2);
  pen.drawImage(image, 0, 0);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
async function copy(text, words) {
  // `text` may be on its way: asked for within the click, the clipboard waits for it.
  const blob = Promise.resolve(text).then((words) => new Blob([words], { type: "text/plain" }));
  try { await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]); }
  catch {  // no clipboard without https; a selection works everywhere
    const area = Object.assign(document.createElement("textarea"), { value: await text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  ui.say(words);
}
const model = () => document.querySelector('select[data-do="model"]')?.value || "clip";

// -- images of one's own; as many at once as service/uploads.py takes --------------------------------------------
const MAX_IMAGES = 16;
async function put(files, refused = []) {
  const sent = [];
  if (!files.length) return sent;
  document.body.dataset.busy = "1";
  for (const file of files) {
    if (file.size > 20 * 2 ** 20) { refused.push(`${file.name} has more than 20 MB.`); continue; }
    try {
      const { path } = await upload(file);
      sent.push({ path, name: file.name || "image" });
    } catch { refused.push(`${file.name} could not be sent.`); }
  }
  delete document.body.dataset.busy;
  if (refused.length) ui.say(refused.join(" "));
  return sent;
}
async function send(files) {
  const list = [...files].slice(0, MAX_IMAGES), left = files.length > list.length;
  const sent = await put(list, left ? [`${files.length} files: ${list.length} are taken at a time, the others were left out.`] : []);
  if (sent.length) act({ do: "upload", files: sent });
}
async function take(files) {
  for (const { path } of await put(files)) act({ do: "gallery", path });
}
async function camera() {
  let stream;
  try { stream = await navigator.mediaDevices.getUserMedia({ video: true }); }
  catch { ui.say("The camera cannot be used here."); return; }
  const dialog = document.createElement("dialog");
  dialog.className = "camera";
  dialog.innerHTML = '<video autoplay playsinline muted></video><div><button class="primary" value="take">Take</button> <button value="">Close</button></div>';
  document.body.append(dialog);
  const video = dialog.querySelector("video");
  video.srcObject = stream;
  dialog.showModal();
  dialog.addEventListener("click", (event) => {
    if (!event.target.matches("button")) return;
    const close = () => { stream.getTracks().forEach((track) => track.stop()); dialog.remove(); };
    if (!event.target.value) return close();
    const canvas = Object.assign(document.createElement("canvas"), { width: video.videoWidth, height: video.videoHeight });
    canvas.getContext("2d").drawImage(video, 0, 0);
    canvas.toBlob((blob) => { close(); send([new File([blob], "camera.jpg", { type: "image/jpeg" })]); }, "image/jpeg", 0.92);
  });
}

// -- listeners; on the region, so that new HTML needs none of its own ----------------------------------------
element.addEventListener("click", async (event) => {
  if (event.target.closest("[data-skip]")) { event.preventDefault(); return document.getElementById("view")?.focus(); }
  const cell = event.target.closest(".grid .cell");
  if (cell) return press(cell, event);
  const node = event.target.closest("button, [data-plan]");
  if (!node || node.disabled || node.getAttribute("aria-disabled") === "true") return;
  const data = node.dataset, figure = node.closest("[data-name]");
  if (data.do) { const { do: name, opens = "", ...rest } = data; ui.opened = opens; act({ ...rest, do: name }); }
  else if (data.save === "csv") save(`${model().replaceAll("/", "-")}-${figure.dataset.name}.csv`, new Blob([figure.dataset.csv], { type: "text/csv" }));
  else if (data.save === "png") save(`${model().replaceAll("/", "-")}-${figure.dataset.name}.png`, await screenshot(figure));
  else if (data.save === "zip") save(`${model().replaceAll("/", "-")}.zip`, new Blob([Uint8Array.from(atob(data.zip), (c) => c.charCodeAt(0))], { type: "application/zip" }));
  else if (data.copy === "link") copy(location.href, node.dataset.words);
  else if (data.copy === "text") copy(data.text, data.words);
  else if (data.copy === "code") copy(new Promise((resolve) => { ui.program = resolve; act({ do: "code" }); }), "The program is copied; it prints the main figures of this view.");
  else if (data.sheet) {
    const open = document.body.dataset.sheet !== "open";
    ui.sheet(open);
    // What a switch does should be seen above the sheet.
    if (open) document.querySelector("#region-main :is(.lead, .fig)")?.scrollIntoView({ block: "start" });
  }
  else if (data.camera) camera();
  else if (data.cancel) trigger("cancel", {});
  else if (data.themeToggle) {
    const dark = document.body.classList.toggle("dark");
    localStorage.setItem("ccs-theme", dark ? "dark" : "light");
  }
});
element.addEventListener("change", (event) => {
  const node = event.target;
  if (node.dataset.files) { send(node.files); node.value = ""; return; }
  if (node.dataset.gallery) { take([...node.files]); node.value = ""; return; }
  if (node.dataset.do) return act({ ...node.dataset, value: node.value });
  if (node.dataset.add && node.value) {
    const area = node.form.elements[node.dataset.add];
    area.value = area.value.trim() ? `${area.value.trim().replace(/,$/, "")}, ${node.value}` : node.value;
    return submit(node.form);
  }
  if (node.form?.dataset.live) submit(node.form);
});
element.addEventListener("input", ({ target }) => {
  if (target.type === "range") target.nextElementSibling.value = Number(target.value).toFixed(2);
  ui.edited(target);
});
element.addEventListener("focusin", (event) => { ui.focused = event.target; });
element.addEventListener("toggle", (event) => ui.unfold(element, event), true);
element.addEventListener("submit", (event) => {
  event.preventDefault();
  submit(event.target);
});
element.addEventListener("keydown", (event) => {
  const { key, target } = event, cell = target.closest(".grid .cell");
  if ((event.ctrlKey || event.metaKey) && key === "Enter" && target.form) { event.preventDefault(); return submit(target.form); }
  if (cell) {
    if (key.startsWith("Arrow") || key === "Home" || key === "End") { event.preventDefault(); walk(cell, key); }
    else if (key === "Enter") { event.preventDefault(); press(cell, event); }
    else if (key === " " || key === "x") { event.preventDefault(); toggle(cell); }
    else if (key === "Escape") { ui.tip(null); ui.sheet(false); }
  } else if (target.matches("[data-plan]") && (key === "Enter" || key === " ")) { event.preventDefault(); target.dispatchEvent(new MouseEvent("click", { bubbles: true })); }
});
for (const name of ["mouseover", "focusin"]) element.addEventListener(name, (event) => {
  const target = event.target.closest("[data-tip]");
  if (target && (name === "mouseover" || target.matches(":focus-visible"))) ui.tip(target);
});
for (const name of ["mouseout", "focusout"]) element.addEventListener(name, () => ui.tip(null));
// A patch says its value where one points at it, or taps.
element.addEventListener("mousemove", (event) => {
  const picture = event.target.closest("[data-patches]");
  if (!picture) return;
  const [rows, columns, ...values] = picture.dataset.patches.split(" "), box = picture.getBoundingClientRect();
  const at = (share, n) => Math.min(n - 1, Math.max(0, Math.floor(share * n)));
  const y = at((event.clientY - box.top) / box.height, rows), x = at((event.clientX - box.left) / box.width, columns);
  const patch = picture.querySelector("i") || picture.appendChild(document.createElement("i"));
  patch.style.cssText = `width:${100 / columns}%;height:${100 / rows}%;left:${100 * x / columns}%;top:${100 * y / rows}%`;
  patch.dataset.tip = `${picture.dataset.word} ${values[y * columns + x]}\nrow ${y}, column ${x}`;
  ui.tip(patch);
});
element.addEventListener("mouseout", (event) => event.target.closest("[data-patches]")?.querySelector("i")?.remove());
for (const name of ["dragover", "drop"]) element.addEventListener(name, (event) => {
  if (!event.target.closest("[data-drop]")) return;
  event.preventDefault();
  if (name === "drop") send(event.dataTransfer.files);
});

if (!window.ccsOnce) {
  window.ccsOnce = true;
  const theme = localStorage.getItem("ccs-theme");
  addEventListener("popstate", () => act({ do: "open", query: location.search }));
  if (theme && !new URLSearchParams(location.search).has("__theme")) document.body.classList.toggle("dark", theme === "dark");
}
if (element.closest("#region-left")) {
  document.addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files].filter((file) => file.type.startsWith("image/"));
    if (files.length) { event.preventDefault(); send(files); }
  });
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.target.matches("input, textarea, select")) return;
    const again = event.key === "y" || (event.shiftKey && event.key.toLowerCase() === "z");
    if (again || event.key === "z") { event.preventDefault(); act({ do: again ? "redo" : "undo" }); }
  });
}
watch("value", () => {
  ui.status(element.querySelector(".status"), fire);
  ui.unfold(element);
  ui.follow(element);
  ui.move(element);
  const nav = element.querySelector("nav"), now = nav?.querySelector("[aria-current]");
  if (now && nav.scrollWidth > nav.clientWidth) nav.scrollLeft = now.offsetLeft - nav.clientWidth / 2 + now.offsetWidth / 2;
  ui.sheet();
});
ui.status(element.querySelector(".status"), fire);
