/* Keys of every page: g and a letter goes where the header leads, / searches, ? tells which there are. A key after g is
   heard before the page's own keys, so that g c goes to the customers and claims nothing. */
"use strict";
(() => {
  const places = new Map([...document.querySelectorAll("#header [data-go]")].map((link) => [link.dataset.go, link]));
  const dialog = document.getElementById("keys");
  if (!dialog) return;
  const PATIENCE = 1500; // ms between g and its letter
  let since = 0;

  const list = document.getElementById("keys-list");
  for (const [key, link] of places) {
    const line = document.createElement("div");
    const keys = document.createElement("dt");
    for (const one of ["g", key]) {
      const cap = document.createElement("kbd");
      cap.textContent = one;
      keys.append(cap, " ");
    }
    const words = document.createElement("dd");
    words.textContent = link.textContent;
    line.append(keys, words);
    list.append(line);
  }
  const own = document.querySelector("details.keys > span");
  if (own) {
    const here = document.getElementById("keys-here");
    here.querySelector("p").replaceChildren(...own.cloneNode(true).childNodes);
    here.hidden = false;
  }
  const opener = document.getElementById("keys-open");
  opener.hidden = false;
  opener.addEventListener("click", () => dialog.showModal());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  const writing = (target) => target.isContentEditable || (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && !/^(checkbox|radio|button|submit)$/.test(target.type));
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || writing(event.target)) return;
    const waiting = since && Date.now() - since < PATIENCE;
    since = 0;
    if (dialog.open && event.key !== "?" && !waiting && event.key !== "g") return;
    if (waiting && places.has(event.key)) location.assign(places.get(event.key).href);
    else if (event.key === "g" && !waiting) since = Date.now();
    else if (event.key === "?") dialog.open ? dialog.close() : dialog.showModal();
    else if (event.key === "/" && !document.getElementById("queue-search")) {
      const search = document.getElementById("searchbar") || document.querySelector("#content input[type=search]");
      if (!search) return;
      search.focus();
    } else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }, { capture: true });
})();
