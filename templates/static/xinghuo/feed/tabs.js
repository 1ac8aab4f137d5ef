/* The tabs of one person in one browser: one of them leads (holds the socket), the others listen to it.

   Who leads is a Web Lock, which the browser hands to the next tab when the leader closes, crashes or is put to sleep.
   Without Web Locks (plain http) every tab leads for itself. */
const PATIENCE = 3000; // ms that a leader has for an answer before another tab takes over
const CLAIMED = 180000; // ms after which even a tab that sleeps has asked

export class Tabs {
  /** told: {lead(), follow(), word(kind, data, from)}. silence: ms without a word after which the leader is asked. */
  constructor({ person, store, silence, told }) {
    Object.assign(this, { store, silence, told });
    this.id = Date.now().toString(36) + Math.random().toString(36).slice(2);
    this.name = "x-feed:" + person;
    this.alone = !navigator.locks || !window.BroadcastChannel;
    this.leads = false;
    this.waits = false;
    this.heard = Date.now();
    if (window.BroadcastChannel) {
      this.channel = new BroadcastChannel(this.name);
      this.channel.onmessage = (event) => this.hear(event.data);
    }
    setInterval(() => this.watch(), 5000);
    document.addEventListener("visibilitychange", () => this.watch());
    document.addEventListener("freeze", () => this.leave());
    document.addEventListener("resume", () => this.join());
  }

  say(kind, data = {}, to = "") {
    if (this.channel && !this.alone) this.channel.postMessage({ kind, data, to, from: this.id });
  }

  hear({ kind, data, to, from }) {
    if (this.alone || (to && to !== this.id)) return;
    if (kind === "ping" && this.leads) return this.say("pong", {}, from);
    if (!this.leads) this.heard = Date.now();
    this.told.word(kind, data, from);
  }

  /** Stands in line for leading. steal: the leader does not answer. */
  join({ steal = false } = {}) {
    if (this.leads || (this.waits && !steal)) return;
    if (this.alone) {
      this.leads = true;
      return this.told.lead();
    }
    this.waits = true;
    this.turn?.abort();
    this.turn = steal ? null : new AbortController();
    navigator.locks.request(this.name, steal ? { steal } : { signal: this.turn.signal }, () => {
      this.leads = true;
      this.waits = false;
      this.told.lead();
      return new Promise((resolve) => { this.release = resolve; });
    }).catch(() => {}).then(() => {
      // Taken from us by a tab that had no answer: we are one of the others now, and stand in line again.
      if (this.leads) {
        this.leads = false;
        this.told.follow();
        this.join();
      }
    });
    this.heard = Date.now();
  }

  /** Gives the lead away and stands in no line. */
  leave() {
    this.waits = false;
    this.turn?.abort();
    const led = this.leads;
    this.leads = false;
    if (led) this.told.follow();
    this.release?.();
    this.release = null;
  }

  watch() {
    if (this.leads || !this.waits || document.visibilityState !== "visible") return;
    if (Date.now() - this.heard < this.silence) return;
    const asked = Date.now();
    this.say("ping");
    setTimeout(() => { if (this.waits && this.heard < asked) this.join({ steal: true }); }, PATIENCE);
  }

  /** Runs `work` in the first tab that asks for this name, and in no other.

      The browser's own locks say who is first. (What one tab has just written to localStorage another may not see yet.) */
  async first(name, work) {
    if (!navigator.locks) {
      await new Promise((resolve) => { setTimeout(resolve, Math.random() * 150); });
      return work();
    }
    return navigator.locks.request(this.name + ":" + name, { ifAvailable: true }, (lock) => {
      if (!lock) return undefined;
      work();
      return new Promise((resolve) => { setTimeout(resolve, CLAIMED); });
    });
  }
}
