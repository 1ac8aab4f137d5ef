/* The queue updates in place: rows come as the server renders them, by id, through the same filters. */
"use strict";
(() => {
  const queue = document.getElementById("queue");
  if (!queue) return;
  const MAX_ROWS = Number(queue.dataset.limit) || 200;
  const BATCH = 50;
  const body = queue.querySelector("tbody");
  const fresh = new Map(); // alert id -> true when it is news, false when it only changed
  let timer = 0;
  let busy = false;

  const rowOf = (id) => body.querySelector('tr[data-id="' + CSS.escape(id) + '"]');

  function soon(id, isNew) {
    fresh.set(id, isNew || fresh.get(id) === true);
    if (!timer) timer = setTimeout(load, 150);
  }

  async function load() {
    timer = 0;
    if (busy) return;
    busy = true;
    const batch = [...fresh].slice(0, BATCH);
    batch.forEach(([id]) => fresh.delete(id));
    try {
      const query = new URLSearchParams(location.search);
      for (const name of ["after", "before", "page"]) query.delete(name);
      if (queue.dataset.plain) query.set("plain", queue.dataset.plain);
      batch.forEach(([id]) => query.append("id", id));
      const answer = await fetch(queue.dataset.rows + "?" + query, { headers: { Accept: "application/json" }, credentials: "same-origin" });
      if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
      place(await answer.json(), new Map(batch));
      busy = false;
      if (fresh.size) timer = setTimeout(load, 150);
    } catch (fault) {
      // Not lost: they are asked for again while the line is down, with a pause.
      batch.forEach(([id, isNew]) => fresh.set(id, isNew || fresh.get(id) === true));
      busy = false;
      timer = setTimeout(load, 3000);
    }
  }

  // What is new waits above the list while it would move what is read, focused or chosen there, and on further pages.
  const further = ["after", "before", "page"].some((name) => {
    const value = new URLSearchParams(location.search).get(name);
    return value && !(name === "page" && value === "1");
  });
  const waiting = new Map(); // alert id -> its row, in the order of their coming
  const chip = document.createElement("div");
  chip.className = "x-waiting";
  chip.hidden = true;
  chip.append(Object.assign(document.createElement("button"), { type: "button" }));
  (queue.closest(".x-scroll") || queue).before(chip);
  let moved = 0;
  queue.addEventListener("pointermove", () => { moved = Date.now(); }, { passive: true });

  function isRead() {
    const above = queue.getBoundingClientRect().top < 0;
    return above || body.contains(document.activeElement) || Boolean(body.querySelector("input[name=pick]:checked"));
  }

  function put(row) {
    row.classList.add("is-new");
    body.prepend(row);
    const last = [...body.rows].filter((one) => !(pickOf(one) && pickOf(one).checked));
    while (body.rows.length > MAX_ROWS && last.length) last.pop().remove();
    const empty = document.getElementById("queue-empty");
    if (empty) empty.remove();
  }

  /** Puts what waits into the list, unless that is being read; with the mouse on the move, a moment later. */
  let later = 0;
  function settle() {
    clearTimeout(later);
    if (!further && waiting.size && !isRead()) {
      const still = 600 - (Date.now() - moved);
      if (still > 0) later = setTimeout(settle, still);
      else enter();
    }
    const shown = waiting.size > 0 && (further || isRead());
    chip.hidden = !shown;
    if (shown) chip.firstChild.textContent = interpolate(ngettext("%s new", "%s new", waiting.size), [waiting.size]);
  }

  function enter() {
    for (const row of waiting.values()) put(row);
    waiting.clear();
    tick();
    count();
  }

  chip.firstChild.addEventListener("click", () => {
    if (further) {
      const query = new URLSearchParams(location.search);
      for (const name of ["after", "before", "page"]) query.delete(name);
      location.assign(location.pathname + "?" + query);
      return;
    }
    enter();
    settle();
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    window.scrollTo({ top: 0, behavior: calm ? "auto" : "smooth" });
    queue.tabIndex = -1; // the reader stands at the list, in none of its rows: what comes next may come in
    queue.focus({ preventScroll: true });
  });
  let scrolled = 0;
  window.addEventListener("scroll", () => {
    clearTimeout(scrolled);
    scrolled = setTimeout(settle, 200);
  }, { passive: true });
  body.addEventListener("focusout", () => setTimeout(settle, 0));

  /* A row takes another's place, and keeps what was chosen and focused in it. */
  function replace(old, row) {
    if (old.classList.contains("is-new")) row.classList.add("is-new");
    if (old.getAttribute("aria-selected")) row.setAttribute("aria-selected", "true");
    const was = pickOf(old), is = pickOf(row);
    if (was && is) is.checked = was.checked; // chosen stays chosen, at its new version
    const focused = old.contains(document.activeElement) ? (document.activeElement === was ? is : row.querySelector("a")) : null;
    old.replaceWith(row);
    if (focused) focused.focus({ preventScroll: true });
  }

  function place(answer, batch) {
    for (const item of answer.rows) {
      const holder = document.createElement("template");
      holder.innerHTML = item.html; // rendered and escaped by the server, same origin
      const row = holder.content.querySelector("tr");
      const old = rowOf(item.alert_id);
      if (old) {
        if (Number(old.dataset.version) > Number(row.dataset.version)) continue;
        row.classList.add("is-changed");
        if (!item.matches) row.classList.add("left");
        replace(old, row);
      } else if (!item.matches) {
        waiting.delete(item.alert_id);
      } else if (waiting.has(item.alert_id) || batch.get(item.alert_id) || queue.dataset.complete === "yes") {
        waiting.set(item.alert_id, row);
      }
    }
    setClock(answer.clock);
    settle();
    count();
    for (const [name, count] of Object.entries(answer.counts)) {
      const place = document.querySelector('[data-count="' + CSS.escape(name) + '"]');
      if (place) place.textContent = count;
    }
  }

  /* The feed began afresh: the list is read again, whole. */
  let again = 0;
  async function readAgain() {
    clearTimeout(again);
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const other = page.querySelector("#queue tbody");
      if (!other) return location.reload();
      const chosen = [...body.rows].filter((row) => pickOf(row) && pickOf(row).checked).map((row) => row.dataset.id);
      const focused = body.contains(document.activeElement) && document.activeElement.closest("tr").dataset.id;
      body.replaceChildren(...document.adoptNode(other).children);
      waiting.clear();
      for (const id of chosen) if (rowOf(id)) pickOf(rowOf(id)).checked = true;
      if (focused && rowOf(focused)) rowOf(focused).querySelector("a").focus({ preventScroll: true });
      for (const place of document.querySelectorAll("[data-count]")) {
        const now = page.querySelector('[data-count="' + CSS.escape(place.dataset.count) + '"]');
        if (now) place.textContent = now.textContent;
      }
      setClock(page.getElementById("queue").dataset.clock);
      tick();
      settle();
      count();
    } catch (fault) {
      again = setTimeout(readAgain, 3000);
    }
  }

  window.addEventListener("x:alert", (event) => soon(event.detail.alert.alert_id, true));
  window.addEventListener("x:update", (event) => soon(event.detail.alert_id, false));
  window.addEventListener("x:reset", readAgain);

  queue.addEventListener("pointerover", (event) => {
    const row = event.target.closest("tr.is-new");
    if (row) setTimeout(() => row.classList.remove("is-new"), 1500);
  });

  // Due chips count down, and up once it is past, by the server's clock whatever ours says.
  const lang = document.documentElement.lang;
  const unit = (value, name) => new Intl.NumberFormat(lang, { style: "unit", unit: name, unitDisplay: "short" }).format(value);
  let drift = 0;
  function setClock(at) {
    const server = Date.parse(at);
    if (!Number.isNaN(server)) drift = server - Date.now();
  }
  setClock(queue.dataset.clock);
  function span(ms) {
    const minutes = Math.floor(ms / 60000);
    if (minutes < 1) return unit(Math.floor(ms / 1000), "second");
    if (minutes < 60) return unit(minutes, "minute");
    if (minutes < 24 * 60) return unit(Math.floor(minutes / 60), "hour") + (minutes % 60 ? " " + unit(minutes % 60, "minute") : "");
    const hours = Math.floor(minutes / 60) % 24;
    return unit(Math.floor(minutes / 1440), "day") + (hours ? " " + unit(hours, "hour") : "");
  }
  function tick() {
    const at = Date.now() + drift;
    for (const chip of queue.querySelectorAll("time[data-due]")) {
      const left = Date.parse(chip.dataset.due) - at;
      chip.classList.toggle("late", left < 0);
      chip.classList.toggle("soon", left >= 0 && left <= 7200000);
      const words = (left < 0 ? queue.dataset.over : queue.dataset.left).replace("%(time)s", span(Math.abs(left)));
      if (chip.textContent !== words) chip.textContent = words;
    }
  }
  tick();
  setInterval(tick, 1000);

  // What is chosen, and what can be done with it.
  const bulk = document.getElementById("queue-bulk");
  const chosen = document.getElementById("queue-chosen");
  const all = document.getElementById("queue-all");
  const pickOf = (row) => row.querySelector("input[name=pick]");
  function count() {
    if (!chosen) return;
    const picks = [...body.querySelectorAll("input[name=pick]")];
    const number = picks.filter((pick) => pick.checked).length;
    chosen.hidden = !number;
    chosen.textContent = number;
    all.checked = number > 0 && number === picks.length;
    all.indeterminate = number > 0 && number < picks.length;
    for (const button of bulk.querySelectorAll("button[name=act]")) button.disabled = !number;
  }
  if (chosen) {
    all.addEventListener("change", () => {
      for (const pick of body.querySelectorAll("input[name=pick]")) pick.checked = all.checked;
      count();
    });
    bulk.addEventListener("change", count);
    window.addEventListener("pageshow", count); // the browser's way back keeps what was chosen
    count();
  }

  // j and k walk the rows, Enter opens, x chooses, c claims, n takes the next, / searches, ? helps.
  let at = -1;
  function walk(step) {
    const rows = [...body.rows];
    if (!rows.length) return;
    rows.forEach((row) => row.removeAttribute("aria-selected"));
    at = Math.max(0, Math.min(rows.length - 1, at + step));
    rows[at].setAttribute("aria-selected", "true");
    rows[at].querySelector("a").focus();
    rows[at].scrollIntoView({ block: "nearest" });
  }
  const here = () => body.querySelector('tr[aria-selected="true"]');
  function claimHere() {
    const row = here();
    if (!row || !pickOf(row)) return;
    for (const pick of body.querySelectorAll("input[name=pick]")) pick.checked = false;
    pickOf(row).checked = true;
    count();
    bulk.requestSubmit(bulk.querySelector("button[value=claim]"));
  }
  document.addEventListener("keydown", (event) => {
    if (event.target.type !== "checkbox" && /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "j") walk(1);
    else if (event.key === "k") walk(-1);
    else if (event.key === "x" && here() && pickOf(here())) {
      pickOf(here()).checked = !pickOf(here()).checked;
      count();
    } else if (event.key === "c" && bulk) claimHere();
    else if (event.key === "n") {
      const next = document.getElementById("queue-next");
      if (next) next.requestSubmit();
    } else if (event.key === "?") {
      const help = document.querySelector("details.keys");
      if (help) help.open = !help.open;
    } else if (event.key === "/") {
      event.preventDefault();
      const search = document.getElementById("queue-search");
      if (search) search.focus();
    }
  });
  for (const field of document.querySelectorAll(".x-filters select")) field.addEventListener("change", () => field.form.requestSubmit());
})();
