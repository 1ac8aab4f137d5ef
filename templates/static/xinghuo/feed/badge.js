/* How the connection stands, and the proof that nothing is missing: always in words, never by colour alone. */
import { clock, proof } from "./words.js";

export class Badge {
  constructor({ store, login, zone, retry, panel }) {
    Object.assign(this, { store, login, zone, retry, state: { name: "connecting" } });
    this.place = document.getElementById("feed-state");
    this.label = this.place.querySelector(".label");
    this.count = this.place.querySelector(".count");
    this.proof = document.getElementById("feed-proof");
    this.line = document.getElementById("feed-proof-line");
    this.how = document.getElementById("feed-how");
    this.proof.addEventListener("click", panel);
    store.on("ledger", () => this.prove());
    setInterval(() => this.tick(), 1000);
    this.prove();
  }

  /** state: {name, at?, why?, quiet?}, as the leader tells it. */
  show(state) {
    const before = this.state;
    this.state = state;
    this.place.dataset.state = state.name;
    this.place.dataset.source = state.quiet ? "quiet" : "";
    if (before.name !== state.name || before.why !== state.why || before.quiet?.since !== state.quiet?.since || !this.label.textContent) {
      this.label.textContent = this.words(state);
      if (state.name === "login" || state.name === "off") this.lead(state);
      this.how.textContent = this.detail(state);
      this.how.hidden = !this.how.textContent;
    }
    this.tick();
  }

  words(state) {
    if (state.name === "live" && state.why === "database") return gettext("Live, but the database is away");
    if (state.name === "live" && state.quiet) return gettext("Live, but the source is quiet");
    return {
      connecting: gettext("Connecting…"),
      live: gettext("Live"),
      reconnecting: gettext("Reconnecting…"),
      offline: gettext("Offline"),
      login: gettext("You are logged out."),
      off: gettext("No live feed for your role"),
    }[state.name];
  }

  detail(state) {
    if (state.quiet) {
      return state.quiet.since
        ? interpolate(gettext("Nothing has come from the source since %s. Alerts may be late."), [clock(state.quiet.since, this.zone)])
        : gettext("Nothing comes from the source. Alerts may be late.");
    }
    if (state.name === "offline") return gettext("This device has no network. What comes meanwhile is fetched afterwards.");
    return {
      database: gettext("The database is away. Alerts that come now are shown when it is back."),
      slow: gettext("The connection was too slow for the feed and was cut off. What was missed is fetched again."),
      many: gettext("There are too many live pages under your name. Close some of them."),
      full: gettext("The server has no room for another live page. This one tries again."),
      failed: gettext("The server could not go on. What was missed is fetched again."),
      refused: gettext("The server did not take what this page sent."),
      silent: gettext("The server gave no sign of life. What was missed is fetched again."),
      restart: gettext("The server starts anew. What was missed is fetched again."),
    }[state.why] || "";
  }

  lead(state) {
    const link = document.createElement("a");
    if (state.name === "login") {
      link.href = this.login + "?next=" + encodeURIComponent(location.pathname + location.search);
      link.textContent = gettext("Log in again");
      this.label.append(" ", link);
    }
  }

  /* The seconds are for the eye: read out each second they would be in the way. */
  tick() {
    const { name, at } = this.state;
    const left = name === "reconnecting" && at ? Math.max(0, Math.ceil((at - Date.now()) / 1000)) : 0;
    const words = left ? interpolate(gettext("in %s s"), [left]) : "";
    if (this.count.textContent !== words) this.count.textContent = words;
    if (name === "reconnecting" && at && Date.now() - at > 2500 && document.visibilityState === "visible") this.retry();
  }

  prove() {
    const ledger = this.store.read("ledger", null);
    const words = proof(ledger, this.zone);
    this.proof.hidden = !words;
    if (!words || this.line.textContent === words) return;
    this.line.textContent = this.proof.title = words;
    this.proof.dataset.whole = ledger.missing ? "no" : "yes";
    this.proof.querySelector(".sign").textContent = ledger.missing ? "!" : "✓";
    this.proof.querySelector(".since").textContent = clock(ledger.since, this.zone);
    this.proof.querySelector(".visually-hidden").textContent = words;
  }
}
