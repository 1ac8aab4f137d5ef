/* The queue updates in place: rows come as the server renders them, by id, through the same filters. */
"use strict";
(() => {
  const queue = document.getElementById("queue");
  if (!queue) return;
  const MAX_ROWS = Number(queue.dataset.limit) || 200;
  const BATCH = 50;
  let body = queue.querySelector("tbody");
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
      query.delete("after");
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

  function place(answer, batch) {
    for (const item of answer.rows) {
      const holder = document.createElement("template");
      holder.innerHTML = item.html; // rendered and escaped by the server, same origin
      const row = holder.content.querySelector("tr");
      const old = rowOf(item.alert_id);
      if (old) {
        if (Number(old.dataset.version) > Number(row.dataset.version)) continue;
        if (old.classList.contains("is-new")) row.classList.add("is-new");
        row.classList.add("is-changed");
        if (!item.matches) row.classList.add("left");
        old.replaceWith(row);
      } else if (item.matches && (batch.get(item.alert_id) || queue.dataset.complete === "yes")) {
        row.classList.add("is-new");
        body.prepend(row);
        while (body.rows.length > MAX_ROWS) body.lastElementChild.remove();
      }
    }
    const empty = document.getElementById("queue-empty");
    if (empty && body.rows.length) empty.remove();
    for (const [name, count] of Object.entries(answer.counts)) {
      const place = document.querySelector('[data-count="' + CSS.escape(name) + '"]');
      if (place) place.textContent = count;
    }
  }

  window.addEventListener("x:alert", (event) => soon(event.detail.alert.alert_id, true));
  window.addEventListener("x:update", (event) => soon(event.detail.alert_id, false));
  window.addEventListener("x:reset", async () => {
    const answer = await fetch(location.href, { credentials: "same-origin" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const other = page.querySelector("#queue tbody");
    if (!other) return location.reload();
    body.replaceWith(document.adoptNode(other));
    body = queue.querySelector("tbody");
  });

  queue.addEventListener("pointerover", (event) => {
    const row = event.target.closest("tr.is-new");
    if (row) setTimeout(() => row.classList.remove("is-new"), 1500);
  });

  // j and k walk the rows, Enter opens, / searches.
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
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    if (event.key === "j") walk(1);
    else if (event.key === "k") walk(-1);
    else if (event.key === "/") {
      event.preventDefault();
      const search = document.getElementById("queue-search");
      if (search) search.focus();
    }
  });
  for (const field of document.querySelectorAll(".x-filters select")) field.addEventListener("change", () => field.form.requestSubmit());
})();
