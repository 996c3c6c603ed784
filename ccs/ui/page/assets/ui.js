// What all regions of the page share, made once. Actions go to the server one at a time and in order: its answer
// to one comes before the next is sent; switching that waits is sent as one.
const ui = window.ccsUI ||= (() => {
  const queue = [];
  let sent = null, turn = 0, timer = 0, asking = 0, polling = 0;
  const opened = new Set();
  const LOST = 90000;
  // Two that wait are one: heads switched twice stay as they were.
  const merge = {
    toggle: (one, two) => {
      const heads = new Set(one.head.split(" ").filter(Boolean));
      for (const head of two.head.split(" ")) heads.delete(head) || heads.add(head);
      return { ...two, head: [...heads].join(" ") };
    },
  };
  const name = (details) => details.dataset.keep || `${details.closest("[data-name]")?.dataset.name.replace(/-L.*/, "")} ${details.className}`;

  function next() {
    if (sent || !queue.length) return;
    sent = queue.shift();
    lost();
    if (sent.data.do !== "poll") {
      document.body.dataset.busy = "1";
      asking = setTimeout(waiting, 1500);
    }
    sent.fire(sent.data);
  }
  // A lost answer (a restarted server) must not freeze the page.
  function lost() {
    clearTimeout(timer);
    timer = setTimeout(settle, LOST);
  }
  // Others may come first: say how many wait, for as long as no answer of our own is on its way.
  async function waiting() {
    if (!sent) return;
    try {
      const answer = await fetch(new URL("waiting", location.href.split(/[?#]/)[0]));
      const ahead = (await answer.json()).ahead;
      if (sent && ahead) lost();
      if (sent && !document.querySelector(".status .busy")) show(ahead ? `Others are being answered first; ${ahead} in the queue …` : "Working …");
    } catch { /* the server will answer, or the timer above goes off */ }
    asking = setTimeout(waiting, 2000);
  }
  // A box beside the regions, made when it is first needed.
  function box(id, className, role) {
    const known = document.getElementById(id);
    if (known) return known;
    const made = Object.assign(document.createElement("div"), { id, className });
    made.setAttribute("role", role);
    document.body.append(made);
    return made;
  }
  function show(text) {
    const wait = box("ccs-wait", "busy", "status");
    wait.textContent = text;
    wait.hidden = !text;
  }
  function settle() {
    sent = null;
    delete document.body.dataset.busy;
    clearTimeout(timer);
    clearTimeout(asking);
    show("");
    next();
    // On a narrow screen the card of a head that was tapped comes into view, and what a search found.
    const wanted = innerWidth <= 1000 && ui.opened;
    if (wanted) requestAnimationFrame(() => document.querySelector(wanted)?.scrollIntoView({ block: "start" }));
    ui.opened = "";
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
        if (sent) lost();
      }
      const query = node.dataset.query;
      if (node.dataset.turn !== "0") {
        const url = new URL(location.href), kept = new URLSearchParams(query);
        for (const name of ["__theme", "__lang"]) if (url.searchParams.has(name)) kept.set(name, url.searchParams.get(name));
        const address = url.pathname + (kept.size ? "?" + kept : "");
        // Each screen is a step that Back takes back; the first one, and one that is under way, are none.
        const step = node.dataset.state === "done" && !["0", "1"].includes(node.dataset.turn) && address !== url.pathname + url.search;
        history[step ? "pushState" : "replaceState"](null, "", address);
        const { tab = "heads" } = Object.fromEntries(new URLSearchParams(query));
        if (document.body.dataset.tab !== tab) ui.sheet(false);
        document.body.dataset.tab = tab;
      }
      document.body.dataset.turn = node.dataset.turn;
      if (node.dataset.state === "done" && node.dataset.turn !== turn) {
        turn = node.dataset.turn;
        if (node.dataset.code) ui.program?.(node.dataset.code);
        document.body.dataset.ready = turn;
        settle();
      }
    },
    say(text) {
      const live = box("ccs-live", "toast", "status");
      live.textContent = text;
      live.classList.add("on");
      clearTimeout(live.timer);
      live.timer = setTimeout(() => live.classList.remove("on"), 2500);
    },
    tip(target) {
      const tip = box("ccs-tip", "", "tooltip");
      tip.hidden = !target;
      if (!target) return;
      const [head, ...rows] = target.dataset.tip.split("\n");
      tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: head }),
        ...rows.map((row) => Object.assign(document.createElement("span"), { textContent: row })));
      const at = target.getBoundingClientRect(), size = tip.getBoundingClientRect();
      const x = Math.min(Math.max(8, at.left + at.width / 2 - size.width / 2), innerWidth - size.width - 8);
      const below = at.bottom + 8 + size.height < innerHeight;
      tip.style.transform = `translate(${x}px, ${below ? at.bottom + 8 : at.top - size.height - 8}px)`;
    },
  };
})();
