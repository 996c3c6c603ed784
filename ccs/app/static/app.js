// Sends forms, swaps the regions of the answer, and keeps the address. The grid and tools have files of their own.
import { gpuHeaders } from "./zerogpu.js";
import { say } from "./tools.js";
import "./grid.js";

const root = new URL(".", location.href), queue = [];
let sending = false, timer = 0, focused = null, sent = "";
const query = () => location.search.slice(1);
const page = () => document.body.dataset.page;

// Requests go one at a time and in order; heads that wait to be toggled are toggled at once.
export function post(path, fields = {}, files = []) {
  const last = queue.at(-1);
  if (path === "heads/toggle" && last?.path === path) {
    const heads = new Set(last.fields.head.split(" "));
    if (!heads.delete(fields.head)) heads.add(fields.head);
    last.fields.head = [...heads].join(" ");
  } else {
    queue.push({ path, fields, files });
  }
  return next();
}

async function next() {
  if (sending || !queue.length) return;
  sending = true;
  clearTimeout(timer);
  const { path, fields, files } = queue.shift();
  const body = files.length ? new FormData() : new URLSearchParams();
  for (const [name, value] of Object.entries({ ...fields, page: page(), at: query() })) body.append(name, value);
  for (const file of files) body.append("files", file, file.name);
  await ask(path, { method: "POST", body }, path !== "show" && path !== "open");
  sending = false;
  if (queue.length) next();
  else watch();
}

async function ask(path, options, step) {
  document.body.dataset.busy = "1";
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
  delete document.body.dataset.busy;
}

// While the server works for this page, ask what is new.
function watch() {
  clearTimeout(timer);
  if (!document.querySelector(".status[data-busy]")) {
    document.body.dataset.ready = Number(document.body.dataset.ready ?? 0) + 1;
    return document.dispatchEvent(new Event("settled"));
  }
  timer = setTimeout(async () => {
    if (sending) return;
    await ask(`work?${new URLSearchParams({ page: page(), at: query() })}`, {}, false);
    if (!sending) watch();
  }, 60);
}

// What a control is called, in the old region and in the new one.
const nameOf = (node) => [node.tagName, node.getAttribute("formaction") ?? node.form?.getAttribute("action"), node.name,
  node.tagName === "BUTTON" ? node.value : ""].join(" ");
const unfolded = (details) => `${details.closest("[data-name]")?.dataset.name.replace(/-L.*/, "")} ${details.firstElementChild.textContent}`;

function show(html, headers, step) {
  const active = document.activeElement, focus = active && active !== document.body ? nameOf(active) : focused;
  for (const part of [...new DOMParser().parseFromString(html, "text/html").body.children]) {
    const old = document.getElementById(part.id), scroll = old.scrollTop;
    const open = new Set([...old.querySelectorAll("details[open]")].map(unfolded));
    const typed = [...old.querySelectorAll("textarea, input:not([type=hidden], [type=file])")]
      .filter((field) => field.value !== field.defaultValue && field.form.getAttribute("action") !== sent);
    old.replaceWith(document.adoptNode(part));
    part.scrollTop = scroll;
    for (const details of part.querySelectorAll("details")) details.open ||= open.has(unfolded(details));
    for (const field of typed) { // and not sent yet
      const again = [...part.querySelectorAll(field.tagName)].find((other) => nameOf(other) === nameOf(field));
      if (again) again.value = field.value;
    }
  }
  if (!document.activeElement || document.activeElement === document.body) {
    const controls = [...document.querySelectorAll("button, select, input, textarea, a")];
    const again = controls.find((node) => nameOf(node) === focus) ?? (focus && document.getElementById("view"));
    again?.focus({ preventScroll: true });
  }
  focused = focus;
  document.body.dataset.page = headers.get("x-page") ?? page();
  sessionStorage.setItem("ccs-page", page());
  const address = headers.get("x-address");
  if (address && address !== (location.search || "?")) {
    history[step ? "pushState" : "replaceState"]({}, "", new URL(address === "?" ? "." : address, root));
  }
  document.body.dataset.tab = document.querySelector("nav [aria-current]")?.value ?? "";
}

document.addEventListener("submit", (event) => {
  const form = event.target, button = event.submitter;
  event.preventDefault();
  if (button?.getAttribute("aria-disabled") === "true") return;
  const path = button?.getAttribute("formaction") ?? form.getAttribute("action");
  const entries = [...new FormData(form, button)].filter(([, value]) => typeof value === "string");
  sent = form.getAttribute("action");
  if (path !== "cancel") return post(path, Object.fromEntries(entries));
  const body = new URLSearchParams({ page: page(), at: query() });
  ask(path, { method: "POST", body }, false).then(watch); // ahead of what waits
});
document.addEventListener("change", async ({ target }) => {
  if (target.type !== "file") return target.form?.matches(".auto, .auto-row") && target.form.requestSubmit();
  const files = [...target.files], path = target.form.getAttribute("action");
  target.value = "";
  for (const file of files) await post(path, {}, [file]);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-open]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  focused = null;
  post("open", { query: link.getAttribute("href") });
});
document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.target.matches("input, textarea, select")) return;
  const redo = event.key === "y" || (event.shiftKey && event.key.toLowerCase() === "z");
  if (!redo && event.key !== "z") return;
  event.preventDefault();
  post(redo ? "heads/redo" : "heads/undo");
});
addEventListener("popstate", () => post("open", { query: location.search }));

// A reload finds the visitor's images again: the page's key is kept for this tab, never in the address.
const known = sessionStorage.getItem("ccs-page"), address = new URL(location);
if (address.searchParams.has("page")) {
  address.searchParams.delete("page");
  history.replaceState({}, "", address);
}
if (known && performance.getEntriesByType("navigation")[0]?.type !== "navigate") {
  document.body.dataset.page = known;
  post("show");
} else {
  sessionStorage.setItem("ccs-page", page());
  watch();
}
