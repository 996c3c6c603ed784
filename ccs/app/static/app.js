// Sends forms, swaps the regions of the answer, and keeps the address. The grid and tools have files of their own.
import { gpuHeaders } from "./zerogpu.js";
import { say } from "./tools.js";
import "./grid.js";

const root = new URL(".", location.href), queue = [], { dataset } = document.body;
let sending = false, turn = 0, focused = null, sent = "";
const here = () => ({ page: dataset.page, at: location.search.slice(1) });

// Requests go one at a time and in order; heads that wait to be toggled are toggled at once.
async function post(path, fields = {}, file = null) {
  const last = queue.at(-1);
  if (path === "heads/toggle" && last?.path === path) {
    const heads = new Set(last.fields.head.split(" "));
    heads.delete(fields.head) || heads.add(fields.head);
    last.fields.head = [...heads].join(" ");
  } else queue.push({ path, fields, file });
  if (sending) return;
  sending = true;
  while (queue.length) await send(queue.shift());
  sending = false;
  watch();
}

async function send({ path, fields = {}, file }) {
  const body = new FormData();
  for (const [name, value] of Object.entries({ ...fields, ...here() })) body.append(name, value);
  if (file) body.append("files", file);
  await ask(path, { method: "POST", body }, path !== "show" && path !== "open");
}

async function ask(path, options, step) {
  dataset.busy = "1";
  const regions = [...document.querySelectorAll("[data-digest]")];
  const have = regions.map((region) => `${region.id.slice(7)}=${region.dataset.digest}`).join("&");
  try {
    const headers = { "x-have": have, ...(await gpuHeaders()) };
    const answer = await fetch(new URL(path, root), { ...options, headers });
    if (answer.ok) show(await answer.text(), answer.headers, step);
    else if (answer.status !== 404) say(await answer.text());
  } catch {
    say("The server doesn't answer. Try again in a moment.");
  }
  delete dataset.busy;
}

// While the server works for this page, ask what is new.
async function watch() {
  const mine = ++turn;
  while (document.querySelector(".status[data-busy]")) {
    await ask(`work?${new URLSearchParams(here())}`, {}, false);
    if (sending || mine !== turn) return;
  }
  dataset.ready = Number(dataset.ready ?? 0) + 1;
  document.dispatchEvent(new Event("settled"));
}

// What a control is called, in the old region and in the new one.
const nameOf = (node) => [node.tagName, node.getAttribute("formaction") ?? node.form?.getAttribute("action"), node.name,
  node.tagName === "BUTTON" ? node.value : node.getAttribute("aria-label")].join(" ");
const find = (part, name) => [...part.querySelectorAll("button, select, input, textarea, a")].find((el) => nameOf(el) === name);
const foldOf = (details) => `${details.closest("[data-name]")?.dataset.name.replace(/-L.*/, "")} ${details.className}`;

function show(html, headers, step) {
  const active = document.activeElement, focus = active && active !== document.body ? nameOf(active) : focused;
  for (const part of new DOMParser().parseFromString(html, "text/html").body.children) {
    const region = document.getElementById(part.id);
    const open = new Set([...region.querySelectorAll("details[open]")].map(foldOf));
    const typed = [...region.querySelectorAll("textarea, input:not([type=hidden], [type=file])")]
      .filter((field) => field.value !== field.defaultValue && field.form.getAttribute("action") !== sent);
    region.dataset.digest = part.dataset.digest;
    region.replaceChildren(...part.childNodes);
    for (const details of region.querySelectorAll("details")) details.open ||= open.has(foldOf(details));
    for (const field of typed) Object.assign(find(region, nameOf(field)) ?? {}, { value: field.value }); // and not sent yet
  }
  if (!document.activeElement || document.activeElement === document.body) {
    (find(document, focus) ?? (focus && document.getElementById("view")))?.focus({ preventScroll: true });
  }
  focused = focus;
  nameView();
  dataset.page = headers.get("x-page") ?? dataset.page;
  const now = location.search || "?", address = headers.get("x-address") ?? now;
  remember(new URL(address === "?" ? "." : address, root), step && address !== now);
}

function nameView() {
  const view = document.querySelector("nav [aria-current]")?.textContent;
  if (view) document.title = `${view} – CLIP heads`;
}

// The page's key is in the history, never in the address: a reload finds the visitor's images again.
const remember = (url, step) => history[step ? "pushState" : "replaceState"]({ page: dataset.page }, "", url);

document.addEventListener("submit", (event) => {
  const { target: form, submitter: button } = event;
  event.preventDefault();
  if (button?.getAttribute("aria-disabled") === "true") return;
  sent = form.getAttribute("action");
  const path = button?.getAttribute("formaction") ?? sent;
  if (path === "cancel") return send({ path }).then(watch); // ahead of what waits
  post(path, Object.fromEntries([...new FormData(form, button)].filter(([, value]) => typeof value === "string")));
});
document.addEventListener("change", ({ target }) => {
  if (target.type !== "file") return target.form?.matches(".auto, .auto-row") && target.form.requestSubmit();
  for (const file of target.files) post(target.form.getAttribute("action"), {}, file);
  target.value = "";
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-open]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  post("open", { query: link.getAttribute("href") });
});
document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.key !== "z" || event.target.matches("input, textarea, select")) return;
  event.preventDefault();
  post("heads/undo");
});
addEventListener("popstate", () => post("open", { query: location.search }));

const known = history.state?.page;
dataset.page = known ?? dataset.page;
remember(location.href);
nameView();
known ? post("show") : watch();
