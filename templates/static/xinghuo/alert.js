/* The alert page: reason codes follow the chosen status, the text counts itself, and a change by somebody else is told. */
"use strict";
(() => {
  const page = document.getElementById("alert");
  if (!page) return;
  const form = document.getElementById("dispose");
  if (form) {
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
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !button.disabled) form.requestSubmit(button);
    });
    let sent = false;
    form.addEventListener("submit", (event) => {
      if (sent) event.preventDefault(); // a double click is one disposition
      sent = true;
    });
    refresh();
  }

  // What the alert is now; where its status is the one on the page, its evidence is what changed.
  function how(change) {
    if (change.status === page.dataset.status && change.status !== "in_review") return gettext("Its hits or its score are different now.");
    if (change.status === "in_review") return change.assignee ? interpolate(gettext("It is in review now, with %s."), [change.assignee]) : gettext("It is in review now.");
    const words = {
      pending: gettext("It is back in the queue, pending."),
      escalated: gettext("It is escalated now and waits for a second officer."),
      confirmed: gettext("It has been disposed of: confirmed."),
      false_positive: gettext("It has been disposed of: false positive."),
      closed: gettext("It has been disposed of: closed."),
    };
    return words[change.status] || "";
  }

  window.addEventListener("x:update", (event) => {
    const change = event.detail;
    if (change.alert_id !== page.dataset.id || change.version <= Number(page.dataset.version)) return;
    page.dataset.version = change.version;
    const note = document.getElementById("changed");
    note.querySelector("p").textContent = gettext("This alert has changed since you opened it.") + " " + how(change);
    page.dataset.status = change.status;
    note.hidden = false;
  });
})();
