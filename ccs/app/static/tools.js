// Saving, copying, and messages.
const make = (tag, fields) => Object.assign(document.createElement(tag), fields);
export const say = (textContent) => document.getElementById("toast").replaceChildren(make("span", { textContent }));

// What a saved or printed figure says of its making.
function sign(part) {
  const now = `${new Date().toISOString().slice(0, 10)} · ${location.href}`;
  for (const source of part.querySelectorAll(".source")) source.textContent = `${source.dataset.text} · ${now}`;
}
// The style rules that hold on this screen, since the image of a figure is narrower.
const rulesOf = ({ cssRules }) => [...cssRules].map((rule) =>
  !rule.media ? rule.cssText : matchMedia(rule.conditionText).matches ? rulesOf(rule) : "").join("\n");

// The figure as it is on the screen, with its source, drawn through an SVG.
async function savePicture(figure, download) {
  sign(figure);
  figure.classList.add("saved");
  const { offsetWidth: width, offsetHeight: height } = figure, size = `width="${width}" height="${height}"`;
  const html = new XMLSerializer().serializeToString(figure);
  figure.classList.remove("saved");
  const css = rulesOf(document.styleSheets[0]).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  const scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const around = `<div class="${figure.closest(".hero") ? "hero" : ""}" style="display:block;padding:0">${html}</div>`;
  const body = `<body xmlns="http://www.w3.org/1999/xhtml" style="color-scheme:${scheme}"><style>${css}</style>${around}</body>`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" ${size}><foreignObject ${size}>${body}</foreignObject></svg>`;
  const image = make("img", { src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}` });
  await image.decode();
  const canvas = make("canvas", { width: width * 2, height: height * 2 });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  make("a", { href: canvas.toDataURL(), download }).click();
}
document.addEventListener("click", async ({ target }) => {
  const button = target.closest("button[type=button]"), { copy, words, save } = button?.dataset ?? {};
  const screen = `${location.search.slice(1)}&page=${document.body.dataset.page}`, figure = button?.closest("[data-name]");
  if (save?.endsWith(".csv")) make("a", { href: `figure.csv?figure=${figure.dataset.name}&${screen}`, download: save }).click();
  else if (save) savePicture(figure, save);
  if (!copy) return;
  const answer = copy === "program" && (await fetch(`program?${screen}`));
  const text = answer ? await answer.text() : copy === "link" ? location.href : copy;
  if (answer && !answer.ok) return say(text);
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else prompt("Copy this:", text); // without https there is no clipboard
  say(words);
});
addEventListener("beforeprint", () => sign(document));
