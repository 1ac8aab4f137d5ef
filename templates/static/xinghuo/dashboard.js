/* The figures of the overview follow the feed: asked for again when something happened, at most every few seconds, and
   now and then in any case, for what no event tells of. What the server renders is put in place as it is. */
"use strict";
(() => {
  const board = document.getElementById("board");
  if (!board) return;
  const PAUSE = 4000; // ms between two questions
  const IDLE = 30000;
  const KEPT = 6000; // ms that the server may keep its figures for: an answer asked for sooner after an event may be older
  const PARTS = ["board-tiles", "board-charts"];
  let last = Date.now();
  let heard = 0; // when an event last came
  let timer = 0;
  let busy = false;

  function event() {
    heard = Date.now();
    soon();
  }

  function soon() {
    if (timer || busy) return;
    timer = setTimeout(load, Math.max(200, last + PAUSE - Date.now()));
  }

  async function load() {
    timer = 0;
    if (document.visibilityState !== "visible") return; // asked when it is looked at again
    busy = true;
    last = Date.now();
    try {
      const answer = await fetch(board.dataset.figures, { credentials: "same-origin" });
      if (answer.ok && !answer.redirected) place(await answer.text());
    } catch (fault) {
      /* the line is down: the header says so, and the next event asks again */
    }
    busy = false;
    if (last < heard + KEPT) soon();
  }

  function place(html) {
    const page = new DOMParser().parseFromString(html, "text/html"); // rendered and escaped by the server, same origin
    const here = document.activeElement;
    const address = here && board.contains(here) ? here.getAttribute("href") : null;
    const open = [...board.querySelectorAll("details[open][id]")].map((one) => one.id);
    for (const id of PARTS) {
      const fresh = page.getElementById(id);
      const old = document.getElementById(id);
      if (!fresh || !old || fresh.innerHTML === old.innerHTML) continue;
      for (const name of open) {
        const details = fresh.querySelector("#" + CSS.escape(name));
        if (details) details.open = true;
      }
      old.replaceWith(document.adoptNode(fresh));
    }
    if (address !== null && document.activeElement === document.body) {
      const again = [...board.querySelectorAll("a[href]:not([tabindex])")].find((one) => one.getAttribute("href") === address);
      if (again) again.focus({ preventScroll: true });
    }
    board.dataset.loaded = String(Number(board.dataset.loaded || 0) + 1);
  }

  for (const name of ["x:alert", "x:update", "x:reset"]) window.addEventListener(name, event);
  document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible" && Date.now() - last > PAUSE) soon(); });
  setInterval(() => { if (Date.now() - last >= IDLE) soon(); }, IDLE);
})();
