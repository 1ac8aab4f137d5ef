/* The alert page: reason codes follow the chosen status, the text counts itself, the due chip runs, keys lead around,
   a finding lights its trades, and a change by somebody else is told with who and what. */
import { runClock } from "./clock.js";

const page = document.getElementById("alert");
if (page) {
  runClock(page, { at: page.dataset.clock, left: page.dataset.left, over: page.dataset.over });
  disposition();
  lights();
  keys();
  changes();
}

function disposition() {
  const form = document.getElementById("dispose");
  if (!form) return;
  const code = form.querySelector("select[name=code]");
  const text = form.querySelector("textarea");
  const count = form.querySelector(".count");
  const button = form.querySelector("button.x-primary");
  const second = form.querySelector("button.second");
  const options = [...code.options];
  const chosen = () => (form.querySelector("input[name=status]:checked") || {}).value || "";
  // Code points, as the server counts them.
  const length = () => [...text.value.trim()].length;
  const required = () => Number(chosen() === "confirmed" || form.dataset.score >= 60 ? form.dataset.long : form.dataset.short);

  function refresh() {
    const status = chosen();
    const keep = code.value;
    code.replaceChildren(...options.filter((option) => !option.value || option.dataset.status === status));
    code.value = [...code.options].some((option) => option.value === keep) ? keep : "";
    const missing = required() - length();
    count.classList.toggle("short", missing > 0);
    count.textContent = interpolate(gettext("%s of at least %s characters"), [length(), required()]);
    button.disabled = !status || !code.value || missing > 0;
    if (second) second.disabled = button.disabled;
  }
  form.addEventListener("input", refresh);
  form.addEventListener("change", refresh);
  let sent = false;
  form.addEventListener("submit", (event) => {
    if (sent) event.preventDefault(); // a double click is one disposition
    sent = true;
  });
  refresh();
}

/* From a finding to its trades and back: what is aimed at is lit, with all that belongs to it, and has the focus. */
function lights() {
  const clear = () => page.querySelectorAll(".lit").forEach((one) => one.classList.remove("lit"));

  function light(target) {
    clear();
    target.classList.add("lit");
    if (target.dataset.findings) {
      for (const number of target.dataset.findings.split(" ")) {
        const finding = document.getElementById("why-" + number);
        if (finding) finding.classList.add("lit");
      }
    } else if (target.id.startsWith("why-")) {
      const number = target.id.slice(4);
      for (const row of page.querySelectorAll("tr[data-findings]")) {
        if (row.dataset.findings.split(" ").includes(number)) row.classList.add("lit");
      }
    }
  }

  function arrive() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !page.contains(target)) return;
    if (/^(why|trade)-\d+$/.test(target.id)) light(target);
    if (target.tabIndex === -1) target.focus({ preventScroll: true });
  }
  window.addEventListener("hashchange", arrive);
  // A second click on the same link changes no hash.
  page.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) setTimeout(arrive, 0);
  });
  arrive();
}

/* c claims, d leads to the decision, n to a note, j and k walk sections and trades, Ctrl+Enter sends. shell.js has ?. */
function keys() {
  const writing = (element) => element.isContentEditable || /^(TEXTAREA|SELECT)$/.test(element.tagName)
    || (element.tagName === "INPUT" && !/^(radio|checkbox|button|submit)$/.test(element.type));
  const stops = () => [...page.querySelectorAll("[data-section], tr.offending, tr.part, #dispose, #approve, #reopen, #note")]
    .filter((one) => one.getClientRects().length);

  function walk(step) {
    const all = stops();
    const here = all.findIndex((one) => one === document.activeElement);
    let next = here + step;
    if (here < 0) { // from what is in sight
      const inside = all.findIndex((one) => one.contains(document.activeElement));
      const line = document.getElementById("header") ? 80 : 0;
      const below = all.findIndex((one) => one.getBoundingClientRect().top >= line - 2);
      next = inside >= 0 ? inside + (step > 0 ? 1 : 0) : step > 0 ? below : below - 1;
    }
    const target = all[Math.max(0, Math.min(all.length - 1, next))];
    if (target) go(target);
  }

  function go(target) {
    if (!target.hasAttribute("tabindex") && !/^(TEXTAREA|INPUT|SELECT)$/.test(target.tagName)) target.tabIndex = -1;
    target.focus({ preventScroll: true });
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    target.scrollIntoView({ block: target.matches("tr") ? "nearest" : "start", behavior: calm ? "auto" : "smooth" });
  }

  function decide() {
    const form = ["dispose", "approve", "reopen"].map((id) => document.getElementById(id)).find(Boolean);
    if (!form) return false;
    form.scrollIntoView({ block: "center" });
    form.querySelector("input[type=radio], textarea").focus({ preventScroll: true });
    return true;
  }

  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      const form = target.closest && target.closest("form");
      const button = form && page.contains(form) && form.querySelector("button.x-primary, button[type=submit]:not(.second)");
      if (button && !button.disabled) {
        event.preventDefault();
        form.requestSubmit(button);
      }
      return;
    }
    if (event.key === "Escape" && writing(target) && page.contains(target)) return target.blur();
    if (writing(target) || event.ctrlKey || event.metaKey || event.altKey) return;
    const claim = document.getElementById("claim");
    const note = document.getElementById("note");
    if (event.key === "j") walk(1);
    else if (event.key === "k") walk(-1);
    else if (event.key === "c" && claim) claim.requestSubmit();
    else if (event.key === "d" && decide()) event.preventDefault();
    else if (event.key === "n" && note) {
      event.preventDefault();
      go(note);
    }
  });
  for (const link of page.querySelectorAll('a[aria-keyshortcuts="d"], a[aria-keyshortcuts="n"]')) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      if (link.getAttribute("aria-keyshortcuts") === "d") decide();
      else go(document.getElementById("note"));
    });
  }
}

/* Somebody else was here: the page asks the server who and what, and shows it above all. What is written stays. */
function changes() {
  const note = document.getElementById("changed");
  const list = note.querySelector("ul");
  let timer = 0;
  let pause = 2000;

  function show(sentences) {
    const fresh = sentences.map((sentence) => {
      const item = document.createElement("li");
      item.textContent = sentence;
      return item;
    });
    list.replaceChildren(...fresh);
    note.hidden = false;
  }

  async function ask() {
    timer = 0;
    try {
      const query = new URLSearchParams({ after: page.dataset.after, version: page.dataset.version });
      const answer = await fetch(page.dataset.since + "?" + query, { headers: { Accept: "application/json" }, credentials: "same-origin" });
      if (answer.status === 404 || answer.status === 403 || answer.redirected) return; // no business of ours any more
      if (!answer.ok) throw new Error(String(answer.status));
      const now = await answer.json();
      pause = 2000;
      if (!now.told.length && now.version === Number(page.dataset.version)) return;
      const status = document.getElementById("alert-status");
      status.textContent = now.status_words;
      status.className = "tag " + now.status;
      document.getElementById("alert-assignee").textContent = now.assignee;
      show(now.told.length ? now.told : [gettext("Its hits or its score are different now.")]);
    } catch (fault) {
      note.hidden = false; // that it changed is known; who it was is asked again
      pause = Math.min(pause * 2, 60000);
      timer = setTimeout(ask, pause);
    }
  }

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(ask, 150);
  }
  window.addEventListener("x:update", (event) => { if (event.detail.alert_id === page.dataset.id) soon(); });
  window.addEventListener("x:alert", (event) => { if (event.detail.alert.alert_id === page.dataset.id) soon(); });
  window.addEventListener("x:reset", soon);
}
