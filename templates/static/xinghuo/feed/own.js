/* What this person does in any of their tabs, noted before it is sent: its echo in the feed is no news to them.

   Frames name nobody (they go to every screen), so the tabs remember the alert and the version that was acted on. */
const KEPT = 60000; // ms after which a change is somebody else's
const MOST = 120;
const ACT = /\/riskalert\/([^/]+)\/([a-z-]+)\/$/;
// Acts that raise an alert's version: no other has an echo, and a colleague's next step is not to be taken for one.
const RAISES = new Set(["claim", "release", "dispose", "escalate", "approve", "return", "reopen", "assign", "handover",
  "snooze", "wake"]);
const OPENS = 10000; // ms in which an `alert` frame is the echo of a reopening; any other time it is news, whatever one did

export class OwnActs {
  constructor({ store, done }) {
    Object.assign(this, { store, done });
    document.addEventListener("submit", (event) => this.sent(event));
    // Scripts that act without a form say so: {alert_id, version, act}.
    window.addEventListener("x:act", (event) => this.note([{ id: event.detail.alert_id,
      act: event.detail.act || "", version: event.detail.version }]));
  }

  sent(event) {
    const form = event.target;
    if (event.defaultPrevented || (form.method || "").toLowerCase() !== "post") return;
    const path = new URL(event.submitter?.getAttribute("formaction") || form.getAttribute("action") || "", location.href).pathname;
    const fields = new FormData(form);
    const picks = fields.getAll("pick").map((words) => String(words).split("~"));
    if (picks.length) return this.note(picks.map(([id, version]) => ({ id, version: Number(version) })));
    if (/\/riskalert\/next\/$/.test(path)) return this.note([{ id: "", version: 0 }]);
    const found = path.match(ACT);
    if (!found || !RAISES.has(found[2])) return;
    const page = document.getElementById("alert");
    const shown = page && page.dataset.id === found[1] ? page.dataset.version : 0;
    this.note([{ id: found[1], act: found[2], version: Number(fields.get("version") || shown) }]);
  }

  note(acts) {
    const at = Date.now();
    const kept = this.store.read("own", []).filter((act) => at - act.at < KEPT);
    this.store.write("own", [...kept, ...acts.map((act) => ({ ...act, at }))].slice(-MOST));
    this.done(acts.map((act) => act.id).filter(Boolean));
  }

  /** Whether a frame tells of what this person has just done. A disposition may count for two steps. */
  owns(frame, me) {
    const at = Date.now();
    const id = frame.type === "alert" ? frame.alert.alert_id : frame.alert_id;
    return this.store.read("own", []).some((act) => {
      if (at - act.at > KEPT) return false;
      if (!act.id) return at - act.at < OPENS && frame.type === "update" && frame.assignee === me && frame.status === "in_review";
      if (act.id !== id) return false;
      if (frame.type === "alert") return act.act === "reopen" && at - act.at < OPENS;
      return frame.version >= act.version && frame.version <= act.version + 2;
    });
  }
}
