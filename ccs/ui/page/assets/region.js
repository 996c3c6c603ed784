// One region of the page (top, left, main or status): turns what a visitor does into actions for the server.
// Gradio gives `element`, `trigger`, `watch` and `upload`. Actions go one at a time and in order: the server's
// answer to one comes before the next is sent; switching that waits is sent as one.
const ui = window.ccsUI ||= (() => {
  const queue = [];
  let sent = null, turn = 0, timer = 0, asking = 0, polling = 0;
  const opened = new Set();
  const LOST = 90000;
  // Two of a kind that wait are one: heads switched twice stay as they were, the last filter is the filter.
  const merge = {
    toggle: (one, two) => {
      const heads = new Set(one.head.split(" ").filter(Boolean));
      for (const head of two.head.split(" ")) heads.delete(head) || heads.add(head);
      return { ...two, head: [...heads].join(" ") };
    },
    filter: (_, two) => two,
  };
  const name = (details) => details.dataset.keep || `${details.closest("[data-name]")?.dataset.name.replace(/-L.*/, "")} ${details.className}`;

  function next() {
    if (sent || !queue.length) return;
    sent = queue.shift();
    clearTimeout(timer);
    // A lost answer (a restarted server) must not freeze the page.
    timer = setTimeout(settle, LOST);
    if (sent.data.do !== "poll") {
      document.body.dataset.busy = "1";
      asking = setTimeout(waiting, 1500);
    }
    sent.fire(sent.data);
  }
  // Others may come first: say how many wait, for as long as no answer of our own is on its way.
  async function waiting() {
    if (!sent) return;
    try {
      const answer = await fetch(new URL("gradio_api/queue/status", location.href.split(/[?#]/)[0]));
      const ahead = (await answer.json()).queue_size;
      if (sent && !document.querySelector(".status .busy")) show(ahead ? `Others are being answered first; ${ahead} in the queue …` : "Working …");
    } catch { /* the server will answer, or the timer above goes off */ }
    asking = setTimeout(waiting, 2000);
  }
  function show(text) {
    let box = document.getElementById("ccs-wait");
    if (!box) {
      box = Object.assign(document.createElement("div"), { id: "ccs-wait", className: "busy" });
      box.setAttribute("role", "status");
      document.body.append(box);
    }
    box.textContent = text;
    box.hidden = !text;
  }
  function settle() {
    sent = null;
    delete document.body.dataset.busy;
    clearTimeout(timer);
    clearTimeout(asking);
    show("");
    next();
    // On a narrow screen the card of a head that was tapped comes into view.
    if (ui.opened && innerWidth <= 1000) document.querySelector(".card-title")?.scrollIntoView({ block: "start" });
    ui.opened = false;
    for (const region of document.querySelectorAll("[id^=region-]")) ui.follow(region);
    ui.refocus();
  }
  // What the server says that a control holds.
  function said(control) {
    if (control.tagName === "SELECT") return ([...control.options].find((one) => one.defaultSelected) ?? control.options[0])?.value;
    return ["radio", "checkbox"].includes(control.type) ? control.defaultChecked : control.defaultValue;
  }
  return {
    // Gradio changes a control's attributes, which one that has been used no longer follows. What was typed and
    // not sent, or sent and refused, stays.
    follow(node) {
      if (sent) return;
      for (const one of node.querySelectorAll("input:not([type=file]), textarea, select")) {
        const key = `${one.form?.dataset.do} ${one.name} ${said(one)}`;
        if (one.ccsEdited && one.ccsKey === key) continue;
        one[["radio", "checkbox"].includes(one.type) ? "checked" : "value"] = said(one);
        one.ccsKey = key;
        one.ccsEdited = false;
      }
    },
    edited(control) {
      control.ccsEdited = Boolean(control.form && !control.form.dataset.live && !control.dataset.do && !control.dataset.add);
    },
    // What moves within a region goes there from where it was; what is new comes up. Nothing where motion is
    // not wanted.
    move(node) {
      const before = node.ccsPlaces || new Map(), now = new Map(), origin = node.getBoundingClientRect();
      for (const one of node.querySelectorAll("[data-move]")) {
        const at = one.getBoundingClientRect();
        now.set(one.dataset.move, { one, x: at.left - origin.left, y: at.top - origin.top });
      }
      node.ccsPlaces = now;
      if (!before.size || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
      for (const [name, { one, x, y }] of now) {
        const from = before.get(name);
        if (!from) one.animate([{ opacity: 0, scale: .8 }, {}], { duration: 300, easing: "ease-out" });
        else if (from.x !== x || from.y !== y) one.animate([{ translate: `${from.x - x}px ${from.y - y}px` }, {}], { duration: 300, easing: "ease-out" });
      }
    },
    // The focus stays where it was, or goes to the view where that is gone.
    refocus() {
      if (document.activeElement !== document.body || !ui.focused || ui.focused.isConnected) return;
      ui.focused = null;
      document.getElementById("view")?.focus({ preventScroll: true });
    },
    // What a visitor has unfolded stays so when the server sends the region anew.
    unfold(node, event) {
      if (event) event.target.open ? opened.add(name(event.target)) : opened.delete(name(event.target));
      else for (const one of node.querySelectorAll("details")) if (opened.has(name(one))) one.open = true;
    },
    sheet(open) {
      if (open === undefined) open = document.body.dataset.sheet === "open";
      document.body.dataset.sheet = open ? "open" : "closed";
      for (const one of document.querySelectorAll("[data-sheet][aria-expanded]")) one.setAttribute("aria-expanded", open);
    },
    send(fire, data) {
      const last = queue[queue.length - 1];
      if (merge[data.do] && last?.data.do === data.do) last.data = merge[data.do](last.data, data);
      else queue.push({ fire, data });
      next();
    },
    status(node, fire) {
      if (!node) return;
      clearTimeout(polling);
      // Something goes on without us: ask again how far it is, unless the visitor does something before.
      if (node.dataset.state === "done" && node.querySelector(".busy")) polling = setTimeout(() => sent || ui.send(fire, { do: "poll" }), 1000);
      if (node.querySelector(".busy")) {  // the server is at it: a long answer is not a lost one
        show("");
        if (sent) { clearTimeout(timer); timer = setTimeout(settle, LOST); }
      }
      const query = node.dataset.query;
      if (node.dataset.turn !== "0") {
        const url = new URL(location.href), kept = new URLSearchParams(query);
        for (const name of ["__theme", "__lang"]) if (url.searchParams.has(name)) kept.set(name, url.searchParams.get(name));
        const address = url.pathname + (kept.size ? "?" + kept : "");
        // Each screen is a step that Back takes back; the first one, and one that is under way, are none.
        const step = node.dataset.state === "done" && !["0", "1"].includes(node.dataset.turn) && address !== url.pathname + url.search;
        history[step ? "pushState" : "replaceState"](null, "", address);
        const { tab = "heads", tour } = Object.fromEntries(new URLSearchParams(query));
        // Steps of the tour that were taken are remembered.
        const toured = new Set((localStorage.getItem("ccs-toured") || "").split(" ").concat(tour || []));
        document.body.dataset.toured = [...toured].join(" ").trim();
        localStorage.setItem("ccs-toured", document.body.dataset.toured);
        if (document.body.dataset.tab !== tab) ui.sheet(false);
        document.body.dataset.tab = tab;
      }
      document.body.dataset.turn = node.dataset.turn;
      if (node.dataset.state === "done") {
        // A page that was loaded again asks for the images that it had.
        const key = sessionStorage.getItem("ccs-key");
        if (node.dataset.turn === "1" && key && !node.dataset.key) setTimeout(() => act({ do: "resume", key }));
        else if (node.dataset.key) sessionStorage.setItem("ccs-key", node.dataset.key);
        else sessionStorage.removeItem("ccs-key");
      }
      if (node.dataset.state === "done" && node.dataset.turn !== turn) {
        turn = node.dataset.turn;
        document.body.dataset.ready = turn;
        settle();
      }
    },
    say(text) {
      let live = document.getElementById("ccs-live");
      if (!live) {
        live = document.createElement("div");
        live.id = "ccs-live";
        live.className = "toast";
        live.setAttribute("role", "status");
        document.body.append(live);
      }
      live.textContent = text;
      live.classList.add("on");
      clearTimeout(live.timer);
      live.timer = setTimeout(() => live.classList.remove("on"), 2500);
    },
    tip(target) {
      let box = document.getElementById("ccs-tip");
      if (!target) { if (box) box.hidden = true; return; }
      if (!box) {
        box = document.createElement("div");
        box.id = "ccs-tip";
        box.setAttribute("role", "tooltip");
        document.body.append(box);
      }
      const [head, ...rows] = target.dataset.tip.split("\n");
      box.replaceChildren(Object.assign(document.createElement("b"), { textContent: head }),
        ...rows.map((row) => Object.assign(document.createElement("span"), { textContent: row })));
      box.hidden = false;
      const at = target.getBoundingClientRect(), size = box.getBoundingClientRect();
      const x = Math.min(Math.max(8, at.left + at.width / 2 - size.width / 2), innerWidth - size.width - 8);
      const below = at.bottom + 8 + size.height < innerHeight;
      box.style.transform = `translate(${x}px, ${below ? at.bottom + 8 : at.top - size.height - 8}px)`;
    },
  };
})();

const fire = (data) => trigger("act", data);
const act = (data) => ui.send(fire, data);
const fields = (form) => {
  const out = {};
  for (const [name, value] of new FormData(form)) if (typeof value === "string") out[name] = value;
  return out;
};
const submit = (form) => act({ ...fields(form), do: form.dataset.do });

// -- the grid -----------------------------------------------------------------------------------------------
const grid = () => element.querySelector(".grid");
function toggle(cell) {
  cell.setAttribute("aria-pressed", cell.classList.toggle("off"));
  // The change, not what the grid shows: an answer that is still on its way may switch other heads.
  act({ do: "toggle", head: cell.dataset.head });
}
function open(cell) {
  for (const one of grid().querySelectorAll('[aria-selected="true"]')) one.setAttribute("aria-selected", "false");
  cell.parentElement.setAttribute("aria-selected", "true");
  ui.opened = true;
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
    if (style.display === "none" || node.matches(".tools, .what, .handle, .segments, .off-bar, .folds, [data-save]")) { to[i].style.display = "none"; return; }
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
  try { await navigator.clipboard.writeText(text); }
  catch {  // no clipboard without https; a selection works everywhere
    const area = Object.assign(document.createElement("textarea"), { value: text });
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
async function send(files) {
  const list = [...files].slice(0, MAX_IMAGES);
  if (!list.length) return;
  const sent = [], refused = [];
  document.body.dataset.busy = "1";
  if (files.length > list.length) refused.push(`${files.length} files: ${list.length} are taken at a time, the others were left out.`);
  for (const file of list) {
    if (file.size > 20 * 2 ** 20) { refused.push(`${file.name} has more than 20 MB.`); continue; }
    try {
      const { path } = await upload(file);
      sent.push({ path, name: file.name || "image" });
    } catch { refused.push(`${file.name} could not be sent.`); }
  }
  delete document.body.dataset.busy;
  if (refused.length) ui.say(refused.join(" "));
  if (sent.length) act({ do: "upload", files: sent });
}
async function take(file) {
  if (!file) return;
  if (file.size > 20 * 2 ** 20) return ui.say(`${file.name} has more than 20 MB.`);
  document.body.dataset.busy = "1";
  let path;
  try { ({ path } = await upload(file)); }
  catch { ui.say(`${file.name} could not be sent.`); }
  delete document.body.dataset.busy;
  if (path) act({ do: "gallery", path });
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
  if (data.do) { const { do: name, ...rest } = data; act({ ...rest, do: name }); }
  else if (data.save === "csv") save(`${model().replaceAll("/", "-")}-${figure.dataset.name}.csv`, new Blob([figure.dataset.csv], { type: "text/csv" }));
  else if (data.save === "png") save(`${model().replaceAll("/", "-")}-${figure.dataset.name}.png`, await screenshot(figure));
  else if (data.save === "zip") save(`${model().replaceAll("/", "-")}.zip`, new Blob([Uint8Array.from(atob(data.zip), (c) => c.charCodeAt(0))], { type: "application/zip" }));
  else if (data.copy === "link") copy(location.href, node.dataset.words);
  else if (data.copy === "code") copy(data.code, "The program is copied; it gives the same figures.");
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
  if (node.dataset.gallery) { take(node.files[0]); node.value = ""; return; }
  if (node.dataset.do) return act({ do: node.dataset.do, value: node.value });
  if (node.dataset.add && node.value) {
    const area = node.form.elements[node.dataset.add];
    area.value = area.value.trim() ? `${area.value.trim().replace(/,$/, "")}, ${node.value}` : node.value;
    return submit(node.form);
  }
  if (node.form?.dataset.live) submit(node.form);
});
element.addEventListener("input", (event) => ui.edited(event.target));
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
if (element.closest("#region-main")) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
    const button = element.querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
    if (button) { event.preventDefault(); button.click(); }
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
