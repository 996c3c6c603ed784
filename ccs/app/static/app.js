// Sends forms, swaps the regions of the answer, and keeps the address. Everything else is in tools.js and grid.js.
import { gpuHeaders } from "./zerogpu.js";
import { busy, opened, say } from "./tools.js";
import "./grid.js";

const root = new URL(".", location.href), queue = [];
let sending = false, timer = 0, focused = null;
const query = () => location.search.replace(/^\?/, "");
const page = () => document.body.dataset.page;
const have = () => [...document.querySelectorAll("[data-digest]")].map((one) => `${one.id.slice(7)}=${one.dataset.digest}`).join("&");

// Requests go one at a time and in order; heads that wait to be toggled are toggled at once.
export function post(path, fields = {}, files = []) {
  const last = queue.at(-1);
  if (path === "heads/toggle" && last?.path === path) {
    const heads = new Set(last.fields.head.split(" "));
    for (const head of fields.head.split(" ")) if (!heads.delete(head)) heads.add(head);
    last.fields.head = [...heads].join(" ");
  } else queue.push({ path, fields, files });
  return next();
}
async function next() {
  if (sending || !queue.length) return;
  sending = true;
  clearTimeout(timer);
  const { path, fields, files } = queue.shift(), all = { ...fields, page: page(), at: query() };
  const body = files.length ? new FormData() : new URLSearchParams();
  for (const [name, value] of Object.entries(all)) body.append(name, value);
  for (const file of files) body.append("files", file, file.name || "image");
  await ask(new URL(path, root), { method: "POST", body }, path !== "show" && path !== "open");
  sending = false;
  if (queue.length) next(); else watch();
}
async function ask(address, options, step) {
  busy(true);
  try {
    const answer = await fetch(address, { ...options, headers: { "x-have": have(), ...(await gpuHeaders()) } });
    if (answer.ok) return show(await answer.text(), answer.headers, step);
    if (answer.status !== 404) say(await answer.text());
  } catch {
    say("The server doesn't answer. Try again in a moment.");
  } finally {
    busy(false);
  }
}
// While the server works for this page, ask what is new.
function watch() {
  clearTimeout(timer);
  if (!document.querySelector(".status[data-busy]")) return settled();
  timer = setTimeout(async () => {
    if (sending) return;
    await ask(new URL(`work?${new URLSearchParams({ page: page(), at: query() })}`, root), {}, false);
    if (!sending) watch();
  }, 60);
}
function settled() {
  document.body.dataset.ready = Number(document.body.dataset.ready ?? 0) + 1;
  document.dispatchEvent(new Event("settled"));
}
function key(node) {
  const form = node.form;
  return [node.tagName, node.getAttribute("formaction") ?? form?.getAttribute("action"), node.name, node.tagName === "BUTTON" ? node.value : form?.elements.head?.value].join(" ");
}
function show(html, headers, step) {
  const parts = new DOMParser().parseFromString(html, "text/html").body.children;
  const active = document.activeElement, id = active && active !== document.body ? key(active) : focused;
  for (const part of [...parts]) {
    const old = document.getElementById(part.id), scroll = old.scrollTop, edits = edited(old);
    old.replaceWith(document.adoptNode(part));
    part.scrollTop = scroll;
    for (const one of part.querySelectorAll("details[data-keep], details.what, details.more")) one.open ||= opened.has(name(one));
    for (const [name, value] of edits) { const field = part.querySelector(name); if (field) field.value = value; }
  }
  if (!document.activeElement || document.activeElement === document.body) {
    const again = id && [...document.querySelectorAll("button, select, input, textarea, a")].find((one) => key(one) === id);
    (again ?? (id && document.getElementById("view")))?.focus({ preventScroll: true });
  }
  focused = id;
  const address = headers.get("x-address");
  document.body.dataset.page = headers.get("x-page") ?? page();
  sessionStorage.setItem("ccs-page", page());
  if (address && address !== (location.search || "?")) history[step ? "pushState" : "replaceState"]({}, "", new URL(address === "?" ? "." : address, root));
  document.body.dataset.tab = document.querySelector("nav [aria-current]")?.value ?? "";
}
export const name = (details) => details.dataset.keep ?? `${details.closest("[data-name]")?.dataset.name.replace(/-L.*/, "")} ${details.className}`;

// What was typed and not sent stays.
function edited(region) {
  const fields = [...region.querySelectorAll("form textarea, form input:not([type]), form input[type=number]")];
  return fields.filter((one) => one.value !== one.defaultValue && one.form.getAttribute("action") !== sentForm)
    .map((one) => [`form[action="${one.form.getAttribute("action")}"] [name="${one.name}"]`, one.value]);
}
let sentForm = "";
document.addEventListener("submit", (event) => {
  const form = event.target, button = event.submitter;
  if (form.method !== "post") return;
  event.preventDefault();
  if (button?.getAttribute("aria-disabled") === "true") return;
  const path = button?.getAttribute("formaction") ?? form.getAttribute("action"), fields = {}, files = [];
  for (const [field, value] of new FormData(form, button)) {
    if (typeof value === "string") fields[field] = value;
    else if (value.size) files.push(value);
  }
  sentForm = form.getAttribute("action");
  if (path === "cancel") return ask(new URL(path, root), { method: "POST", body: new URLSearchParams({ page: page(), at: query() }) }, false).then(watch);
  if (files.length) return send(path, files);
  post(path, fields);
});
document.addEventListener("change", ({ target }) => {
  if (target.type === "file") { if (target.files.length) send(target.form.getAttribute("action"), [...target.files]); target.value = ""; return; }
  if (target.dataset.add && target.value) {
    const area = target.form.elements[target.dataset.add];
    area.value = area.value.trim() ? `${area.value.trim().replace(/,$/, "")}, ${target.value}` : target.value;
    return target.form.requestSubmit();
  }
  if (target.form?.matches(".auto, .auto-row")) target.form.requestSubmit();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-open]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  focused = null;
  post("open", { query: link.getAttribute("href") });
});
document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey)) return;
  if (event.key === "Enter" && event.target.form) { event.preventDefault(); return event.target.form.requestSubmit(); }
  if (event.target.matches("input:not([type=range]), textarea, select")) return;
  const again = event.key === "y" || (event.shiftKey && event.key.toLowerCase() === "z");
  if (again || event.key === "z") { event.preventDefault(); post(again ? "heads/redo" : "heads/undo"); }
});
addEventListener("popstate", () => post("open", { query: location.search }));

// Images, one request each.
export const send = async (path, files, most = 16) => {
  if (files.length > most) say(`${files.length} files: ${most} are taken at a time, the others were left out.`);
  for (const file of files.slice(0, most)) {
    if (file.size > 20 * 2 ** 20) say(`${file.name} has more than 20 MB.`);
    else await post(path, {}, [file]);
  }
};

// A reload finds the visitor's images again: the page's key is kept for this tab, never in the address.
const known = sessionStorage.getItem("ccs-page"), url = new URL(location);
if (url.searchParams.has("page")) { url.searchParams.delete("page"); history.replaceState({}, "", url); }
if (known && known !== page() && performance.getEntriesByType("navigation")[0]?.type !== "navigate") { document.body.dataset.page = known; post("show"); }
else { sessionStorage.setItem("ccs-page", page()); watch(); }
