/* The socket: connects, notices silence, comes back with growing pauses, and asks for what was missed. */
import { Sequence } from "./sequence.js";

const FIRST = 500; // ms before the first new attempt; doubled each time ...
const MOST = 30000; // ... up to here, less or more a third, so that not everybody comes back at once
const STABLE = 3000; // ms that a connection must hold before the pauses start afresh
const GAP = 1500; // ms that a missing number may be on its way before it is asked for
const SIGNED_OUT = 4401;
const RENEWALS = [400, 1600]; // ms before the login is asked for again, after the server called it over
const NO_ROLE = 4403;
const SILENT = 4000; // our own: we closed because nothing came
// Why the server, or we, ended it: shown with the attempt to come back.
const REASONS = { 1009: "refused", 1011: "failed", 1012: "restart", 1013: "slow", 4000: "silent", 4409: "many",
  4429: "refused" };

function whyOf(code, reason) {
  if (code === 1013 && reason === "full") return "full";
  if (code === 1011 && reason.startsWith("keepalive")) return "slow"; // it heard nothing of us for too long
  return REASONS[code] || "";
}

export class Line {
  /**
   * after: where to go on. heartbeat: ms between the server's signs of life.
   * told: {state(state), frame(frame), head(head, said), missing(count, head), reset(), restart()}.
   */
  constructor({ address, after, heartbeat, told }) {
    Object.assign(this, { address, told, silence: 3 * heartbeat + 2000 });
    this.stream = new Sequence(after);
    this.attempt = 0;
    this.tried = 0;
    this.asked = { after: -1, at: 0 };
    this.state = { name: "connecting" };
    this.over = false;
    this.renewals = 0;
  }

  say(state) {
    this.state = state;
    this.told.state(state);
  }

  open() {
    clearTimeout(this.timer);
    if (this.over || this.socket) return;
    if (navigator.onLine === false) return this.say({ name: "offline" });
    this.tried = Date.now();
    if (this.attempt === 0) this.say({ name: "connecting" });
    const socket = new WebSocket(this.address);
    this.socket = socket;
    this.listen();
    socket.onopen = () => { this.opened = Date.now(); };
    socket.onmessage = (event) => { if (socket === this.socket) this.receive(JSON.parse(event.data)); };
    socket.onclose = (event) => { if (socket === this.socket) this.closed(event.code, event.reason); };
  }

  /** Ends it for good. */
  close() {
    this.over = true;
    this.drop();
  }

  drop() {
    for (const timer of [this.timer, this.quiet, this.gap]) clearTimeout(timer);
    const socket = this.socket;
    this.socket = null;
    this.opened = 0;
    if (socket) socket.close(SILENT);
  }

  /** The network is gone. */
  offline() {
    if (this.over) return;
    this.drop();
    this.say({ name: "offline" });
  }

  /** Something speaks for trying now: the network is back, somebody looks. */
  kick() {
    if (this.over || this.socket) return;
    this.attempt = Math.min(this.attempt, 2);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), Math.max(0, this.tried + 1000 - Date.now()));
  }

  listen() {
    clearTimeout(this.quiet);
    this.quiet = setTimeout(() => {
      const socket = this.socket;
      this.socket = null;
      if (socket) socket.close(SILENT); // its own end may come late, or never
      this.closed(SILENT);
    }, this.silence);
  }

  closed(code, reason = "") {
    const held = this.opened ? Date.now() - this.opened : 0;
    this.socket = null;
    this.opened = 0;
    clearTimeout(this.quiet);
    clearTimeout(this.gap);
    if (this.over) return;
    if (code === SIGNED_OUT && this.renewals < RENEWALS.length) {
      // A changed password ends the old session and gives this browser a new one: its cookie is tried first.
      this.say({ name: "connecting" });
      this.timer = setTimeout(() => this.open(), RENEWALS[this.renewals++]);
      return;
    }
    if (code === SIGNED_OUT || code === NO_ROLE) {
      this.over = true;
      return this.say({ name: code === SIGNED_OUT ? "login" : "off", why: code === NO_ROLE ? "role" : "" });
    }
    if (navigator.onLine === false) return this.say({ name: "offline" });
    if (code === 1012) this.told.restart();
    if (held > STABLE) this.attempt = 0;
    this.attempt += 1;
    const pause = Math.min(MOST, FIRST * 2 ** Math.min(this.attempt - 1, 7)) * (0.7 + Math.random() * 0.6);
    this.say({ name: "reconnecting", at: Date.now() + pause, why: whyOf(code, reason) });
    this.timer = setTimeout(() => this.open(), pause);
  }

  receive(frame) {
    this.listen();
    if (frame.type === "hello") {
      this.renewals = 0;
      this.say({ name: "live" });
      this.asked = { after: -1, at: 0 };
      if (frame.head < this.stream.upto) this.begin(); // the database was put back to an earlier state
      this.reach(frame.head, false);
      this.told.head(frame.head, frame);
    } else if (frame.type === "heartbeat") {
      if (this.state.name !== "live" || this.state.why) this.say({ name: "live" });
      this.reach(frame.head, true);
      this.told.head(frame.head, frame);
    } else if (frame.type === "reset") {
      this.begin();
    } else if (frame.type === "error") {
      if (frame.code === "DATABASE_UNAVAILABLE") this.say({ name: "live", why: "database" });
    } else if (Number.isInteger(frame.seq)) {
      this.stream.take(frame).forEach(this.told.frame);
      clearTimeout(this.gap);
      if (this.stream.gap) this.gap = setTimeout(() => this.ask(), GAP);
    }
  }

  begin() {
    clearTimeout(this.gap);
    this.stream = new Sequence(null);
    this.told.reset();
  }

  ask() {
    if (!this.socket || this.socket.readyState !== WebSocket.OPEN) return;
    this.asked = { after: this.stream.upto, at: Date.now() };
    this.socket.send(JSON.stringify({ type: "resume", after: this.stream.upto }));
  }

  /* The server stands at `head`. With a heartbeat it has sent all up to it: what is not here then is asked for once, and
     where it does not come it is missing, which is told. */
  reach(head, sent) {
    if (this.stream.upto === null) this.stream.upto = head;
    if (head <= this.stream.upto) return;
    if (this.asked.after !== this.stream.upto) this.ask();
    else if (sent && Date.now() - this.asked.at > GAP) {
      const { missing, frames } = this.stream.skip(head);
      frames.forEach(this.told.frame);
      this.told.missing(missing, head);
    }
  }
}
