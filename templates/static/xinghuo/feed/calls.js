/* How news calls: a toast, a sound, a notification of the desktop. By level; low scores call nobody. */
import { band, said, several } from "./words.js";

const LIFE = 12000; // ms of a toast
const TOASTS = 3; // at once; more of them are counted in one
const LEVELS = { medium: 40, high: 60, critical: 80 };
const TONES = { critical: [[880, 0], [880, 0.22], [1175, 0.44]], high: [[698, 0], [880, 0.18]], medium: [[587, 0]] };
export const DEFAULTS = { sound: false, soundFrom: "medium", desktop: false, desktopFrom: "high" };
const scoreOf = (entry) => (entry.score === null ? LEVELS.high : entry.score); // what is put into one's hands is not low

export class Calls {
  constructor({ store, kinds, alerts }) {
    Object.assign(this, { store, kinds, alerts, rung: 0 });
    this.box = document.getElementById("toasts");
    this.announcer = document.getElementById("feed-live");
  }

  get settings() {
    return { ...DEFAULTS, ...this.store.read("settings", {}) };
  }

  /** Calls for these entries, in this tab. */
  call(entries) {
    const loud = entries.filter((entry) => scoreOf(entry) >= LEVELS.medium);
    if (!loud.length) return;
    const highest = Math.max(...loud.map(scoreOf));
    const seen = document.visibilityState === "visible";
    if (seen) this.show(loud, highest);
    const { sound, soundFrom, desktop, desktopFrom } = this.settings;
    if (sound && highest >= LEVELS[soundFrom]) this.ring(band(highest));
    if (desktop && !(seen && document.hasFocus())) this.notify(loud.filter((entry) => scoreOf(entry) >= LEVELS[desktopFrom]));
  }

  show(entries, highest) {
    if (entries.length > TOASTS || this.summary?.isConnected) return this.count(entries, highest);
    for (const entry of entries) {
      const { what, who } = said(entry, this.kinds);
      this.toast({ what, who, href: this.address(entry), score: entry.score, css: band(scoreOf(entry)) });
      this.announcer.textContent = what;
    }
  }

  /** Many at once are one toast, which goes on counting while it stands. */
  count(entries, highest) {
    const before = this.summary?.isConnected ? this.summary : null;
    this.counted = (before ? this.counted : 0) + entries.length;
    this.highest = Math.max(before ? this.highest : 0, highest);
    before?.remove();
    const what = several(this.counted);
    const who = interpolate(gettext("highest score %s"), [this.highest]);
    this.summary = this.toast({ what, who, href: this.alerts, score: this.highest, css: band(this.highest) });
    this.announcer.textContent = what;
  }

  /** A toast in words of its own; lasting: until it is dismissed. */
  toast({ what, who = "", href = "", link = "", score = null, css = "", lasting = false }) {
    const box = document.createElement("div");
    box.className = "x-toast " + css;
    const middle = document.createElement("div");
    const words = document.createElement(href && !link ? "a" : "p");
    words.className = "what";
    words.textContent = what;
    if (href && !link) words.href = href;
    middle.append(words);
    if (who) middle.append(Object.assign(document.createElement("p"), { textContent: who }));
    if (link) middle.append(Object.assign(document.createElement("a"), { href, textContent: link }));
    if (score !== null) box.append(Object.assign(document.createElement("span"), { className: "score " + css, textContent: score }));
    const close = Object.assign(document.createElement("button"), { type: "button", textContent: "×" });
    close.setAttribute("aria-label", gettext("Dismiss"));
    close.addEventListener("click", () => box.remove());
    box.append(middle, close);
    this.box.append(box);
    while (this.box.children.length > TOASTS) this.box.firstElementChild.remove();
    if (!lasting) this.fade(box);
    return box;
  }

  /* Whoever reads it, with the mouse or the keyboard, has the time for it. */
  fade(box) {
    let timer = 0;
    const start = () => { clearTimeout(timer); timer = setTimeout(() => box.remove(), LIFE); };
    const stop = () => clearTimeout(timer);
    for (const name of ["pointerenter", "focusin"]) box.addEventListener(name, stop);
    for (const name of ["pointerleave", "focusout"]) box.addEventListener(name, start);
    start();
  }

  address(entry) {
    return this.alerts + encodeURIComponent(entry.id) + "/change/";
  }

  /** The level's tones. A browser that wants a click first is given the chance with the next one. */
  ring(level, { test = false } = {}) {
    if (!test && Date.now() - this.rung < 2000) return;
    this.rung = Date.now();
    try {
      this.audio ??= new AudioContext();
      if (this.audio.state === "suspended") this.audio.resume();
      for (const [pitch, after] of TONES[level] || TONES.medium) {
        const at = this.audio.currentTime + after;
        const tone = this.audio.createOscillator();
        const volume = this.audio.createGain();
        tone.frequency.value = pitch;
        volume.gain.setValueAtTime(0.08, at);
        volume.gain.exponentialRampToValueAtTime(0.0001, at + 0.4);
        tone.connect(volume).connect(this.audio.destination);
        tone.start(at);
        tone.stop(at + 0.4);
      }
    } catch (fault) {
      /* a browser without sound still shows the alert */
    }
  }

  /** One for each alert: a later one about the same takes its place. */
  notify(entries) {
    if (!("Notification" in window) || Notification.permission !== "granted") return;
    for (const entry of entries.slice(-TOASTS)) {
      const { what, who } = said(entry, this.kinds);
      try {
        const note = new Notification(what, { body: who, tag: entry.id, lang: document.documentElement.lang });
        note.onclick = () => {
          window.focus();
          location.assign(this.address(entry));
          note.close();
        };
      } catch (fault) {
        return; // a browser that only takes them from a service worker
      }
    }
  }
}
