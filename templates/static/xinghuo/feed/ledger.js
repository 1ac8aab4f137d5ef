/* What the person's tabs know of the feed together: up to which number it is whole, since when, and what was news.

   The leader alone writes it, every tab reads it, and it outlives pages: a new page goes on from its last number. */
const ENTRIES = 300; // news that are kept; the bell counts to 99
const FAR = 2000; // numbers behind which a new page starts afresh rather than hear them all again
const PAUSE = 200; // ms that notes are gathered before they are written

export class Ledger {
  constructor({ store, own, me, news }) {
    Object.assign(this, { store, own, me, news, timer: 0 });
    window.addEventListener("pagehide", () => this.flush());
  }

  /** Takes the ledger over. after: the number that the page was read at. Returns where the socket has to go on. */
  open(after) {
    const kept = this.store.read("ledger", null);
    if (!kept || after === null) this.restart({ after, why: "" });
    else if (after - kept.upto > FAR) this.restart({ after, why: "away", kept });
    else this.data = kept;
    return after === null || this.data.upto === null ? after : Math.min(after, this.data.upto);
  }

  /** why: `reset` (the server could not go on from our number), `away` (too much came meanwhile) or nothing. */
  restart({ after, why, kept = null }) {
    const at = Date.now();
    this.data = { epoch: String(at), since: at, why, from: after, upto: after, count: 0, voids: 0, missing: 0,
      entries: kept ? unreadOf(this.store).reverse() : [], held: {}, learned: false, before: kept ? kept.upto : null };
    this.flush();
  }

  /** What the server knows at the start: which alerts are this person's, and what was told while nobody listened. */
  learn(answer) {
    const data = this.data;
    for (const [id, status] of Object.entries(answer.held)) data.held[id] ??= status;
    if (data.before !== null) {
      const known = new Set(data.entries.map((entry) => entry.id));
      for (const item of answer.items) {
        if (item.seq <= data.before || known.has(item.alert_id)) continue;
        data.entries.unshift({ seq: item.seq, id: item.alert_id, kind: "alert", score: item.score });
      }
      data.before = null;
    }
    data.learned = true;
    this.later();
  }

  head(head) {
    if (this.data.upto !== null) return;
    this.data.from = this.data.upto = head;
    this.later();
  }

  note(frame) {
    const data = this.data;
    if (data.upto === null) data.from = data.upto = frame.seq - 1;
    if (frame.seq <= data.upto) return;
    data.upto = frame.seq;
    data.count += 1;
    if (frame.type === "void") data.voids += 1;
    const entry = frame.type === "alert" ? this.called(frame) : frame.type === "update" ? this.handed(frame) : null;
    if (entry) {
      data.entries = [...data.entries, { seq: entry.seq, id: entry.id, kind: entry.kind, score: entry.score }].slice(-ENTRIES);
      this.news(entry);
    }
    this.later();
  }

  missing(count, head) {
    this.data.missing += count;
    this.data.upto = Math.max(this.data.upto, head);
    this.later();
  }

  called(frame) {
    if (this.own.owns(frame, this.me)) return null;
    const { alert_id: id, risk_score: score } = frame.alert;
    const again = this.data.entries.some((entry) => entry.id === id && entry.kind !== "handed");
    return { seq: frame.seq, id, kind: again ? "raised" : "alert", score, alert: frame.alert };
  }

  /* A colleague's act that concerns this person: an alert put into their hands, a proposal returned or approved. */
  handed(frame) {
    const held = this.data.held;
    const before = held[frame.alert_id];
    const open = frame.status === "in_review" || frame.status === "escalated";
    const own = this.own.owns(frame, this.me);
    if (frame.assignee === this.me && open) held[frame.alert_id] = frame.status;
    else delete held[frame.alert_id];
    if (own || frame.assignee !== this.me) return null;
    const about = { seq: frame.seq, id: frame.alert_id, score: null };
    if (before === undefined) return frame.status === "in_review" ? { ...about, kind: "handed" } : null;
    if (before !== "escalated" || frame.status === "escalated") return null;
    return { ...about, kind: frame.status === "in_review" ? "returned" : "approved" };
  }

  later() {
    if (!this.timer) this.timer = setTimeout(() => this.flush(), PAUSE);
  }

  flush() {
    clearTimeout(this.timer);
    this.timer = 0;
    if (this.data) this.store.write("ledger", this.data);
  }

  /** Before another tab takes it over. */
  close() {
    this.flush();
    this.data = null;
  }
}

/** Which of the ledger's news this person has not seen, newest first, one for each alert. */
export function unreadOf(store) {
  const ledger = store.read("ledger", null);
  if (!ledger) return [];
  const seen = readOf(store, ledger);
  const found = new Map();
  for (const entry of ledger.entries) {
    if (entry.seq <= seen.upto || entry.seq <= (seen.at[entry.id] ?? -1)) continue;
    found.delete(entry.id);
    found.set(entry.id, entry);
  }
  return [...found.values()].reverse();
}

function readOf(store, ledger) {
  const seen = store.read("read", null);
  return seen && seen.epoch === ledger.epoch ? seen : { epoch: ledger.epoch, upto: -1, at: {} };
}

/** Marks these alerts as seen, or all without an argument. */
export function markRead(store, ids = null) {
  const ledger = store.read("ledger", null);
  if (!ledger || ledger.upto === null) return;
  const seen = readOf(store, ledger);
  const last = Math.max(ledger.upto, ...ledger.entries.map((entry) => entry.seq));
  if (ids === null) return store.write("read", { epoch: ledger.epoch, upto: last, at: {} });
  for (const id of ids) seen.at[id] = last;
  const kept = Object.entries(seen.at).filter(([, seq]) => seq > seen.upto).slice(-ENTRIES);
  store.write("read", { ...seen, at: Object.fromEntries(kept) });
}
