/* The bell: how much is unread, the list of the latest, how one wants to be called, and the proof that nothing is missing. */
import { DEFAULTS } from "./calls.js";
import { markRead, unreadOf } from "./ledger.js";
import { clock, said } from "./words.js";

export class Bell {
  constructor({ store, calls, ask, zone }) {
    Object.assign(this, { store, calls, ask, zone, title: document.title });
    this.button = document.getElementById("feed-bell");
    this.badge = document.getElementById("feed-count");
    this.panel = document.getElementById("feed-panel");
    this.list = document.getElementById("feed-list");
    this.empty = document.getElementById("feed-empty");
    this.all = document.getElementById("feed-read");
    this.button.addEventListener("click", () => (this.panel.hidden ? this.open() : this.close()));
    this.all.addEventListener("click", () => markRead(store));
    document.getElementById("feed-close").addEventListener("click", () => this.close({ focus: true }));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !this.panel.hidden) this.close({ focus: true });
    });
    document.addEventListener("pointerdown", (event) => {
      if (!this.panel.hidden && !event.target.closest("#feed-panel, #feed-bell, #feed-proof")) this.close();
    });
    for (const name of ["ledger", "read"]) store.on(name, () => this.refresh());
    this.settle();
    this.refresh();
  }

  open() {
    this.panel.hidden = false;
    this.button.setAttribute("aria-expanded", "true");
    this.panel.focus();
    this.fill();
  }

  close({ focus = false } = {}) {
    this.panel.hidden = true;
    this.button.setAttribute("aria-expanded", "false");
    if (focus) this.button.focus();
  }

  refresh() {
    const unread = unreadOf(this.store);
    const words = unread.length > 99 ? "99+" : String(unread.length);
    if (this.badge.textContent !== words) this.badge.textContent = words;
    this.badge.hidden = this.all.hidden = unread.length === 0;
    this.button.setAttribute("aria-label", interpolate(gettext("Latest alerts, %s unread"), [words]));
    document.title = unread.length ? "(" + words + ") " + this.title : this.title;
    const newest = unread.length ? unread[0].seq : 0;
    if (!this.panel.hidden && newest > (this.newest || 0)) this.fill();
    this.newest = newest;
    this.mark(unread);
  }

  mark(unread) {
    const ids = new Map(unread.map((entry) => [entry.id, entry]));
    for (const item of this.list.children) {
      const fresh = ids.has(item.dataset.id);
      item.classList.toggle("unread", fresh);
      item.querySelector(".dot").hidden = !fresh;
    }
  }

  /** The list as the server has it now, with how each alert stands. */
  async fill() {
    const told = this.store.read("ledger", { entries: [] }).entries.filter((entry) => entry.score === null);
    const kinds = new Map(told.map((entry) => [entry.seq, entry.kind]));
    try {
      const answer = await this.ask([...kinds.keys()].slice(-30));
      this.list.replaceChildren(...answer.items.map((item) => this.item(item, kinds.get(item.seq))));
      this.empty.hidden = answer.items.length > 0;
      this.empty.textContent = gettext("No alerts in the last 24 hours.");
    } catch (fault) {
      this.empty.hidden = false;
      this.empty.textContent = gettext("The list cannot be read just now; it comes with the connection.");
    }
    this.mark(unreadOf(this.store));
  }

  item(item, kind) {
    const made = (name, css, text = "") => Object.assign(document.createElement(name), { className: css, textContent: text });
    const row = made("li", "");
    row.dataset.id = item.alert_id;
    const score = made("span", "score " + item.band, String(item.score));
    const middle = made("div", "");
    const link = made("a", "", item.words);
    link.href = item.url;
    link.addEventListener("click", () => markRead(this.store, [item.alert_id]));
    middle.append(link);
    if (kind) middle.append(made("p", "why", said({ kind }, {}).what));
    if (item.sentence) middle.append(made("p", "sentence", item.sentence));
    const about = made("p", "about");
    about.append(made("span", "mono", item.subject), made("span", "tag " + item.status, item.status_label));
    if (item.level) about.append(made("span", "tag level", item.level));
    if (item.assignee) about.append(made("span", "", item.assignee));
    const time = made("time", "", clock(Date.parse(item.at), this.zone));
    time.dateTime = item.at;
    about.append(time);
    middle.append(about);
    const dot = made("span", "dot");
    dot.append(made("span", "visually-hidden", gettext("unread")));
    row.append(score, middle, dot);
    return row;
  }

  /* How one wants to be called: kept for the person in this browser. */
  settle() {
    const fields = this.panel.querySelectorAll("[data-setting]");
    const ask = document.getElementById("feed-desktop-note");
    const show = () => {
      const settings = { ...DEFAULTS, ...this.store.read("settings", {}) };
      for (const field of fields) {
        if (field.type === "checkbox") field.checked = settings[field.dataset.setting];
        else field.value = settings[field.dataset.setting];
      }
      const allowed = "Notification" in window ? Notification.permission : "unsupported";
      ask.hidden = !settings.desktop || allowed === "granted";
      ask.textContent = allowed === "default" ? gettext("The browser has not been asked yet: tick the box again.")
        : gettext("This browser does not allow notifications of this site.");
    };
    for (const field of fields) {
      field.addEventListener("change", async () => {
        const value = field.type === "checkbox" ? field.checked : field.value;
        this.store.write("settings", { ...this.store.read("settings", {}), [field.dataset.setting]: value });
        if (field.dataset.setting === "sound" && value) this.calls.ring("high", { test: true });
        if (field.dataset.setting === "desktop" && value && "Notification" in window && Notification.permission === "default") {
          await Notification.requestPermission();
          show();
        }
      });
    }
    this.store.on("settings", show);
    show();
  }
}
