/* The live feed of every console page. One tab of a person's leads: it holds the socket and tells the others.

   Other scripts hear window events: x:alert {seq, alert}, x:update {seq, alert_id, ..., own}, x:reset. Text goes into the
   page by textContent alone. Its parts: line (the socket), tabs (who leads), ledger (what is known), own (what this
   person did), calls, bell, badge. */
import { Badge } from "./badge.js";
import { Bell } from "./bell.js";
import { Calls } from "./calls.js";
import { Ledger, markRead } from "./ledger.js";
import { Line } from "./line.js";
import { OwnActs } from "./own.js";
import { Sequence } from "./sequence.js";
import { Store } from "./store.js";
import { Tabs } from "./tabs.js";

const KEPT = 1000; // frames that the leader keeps for tabs that are behind
const GATHER = 250; // ms in which news makes one call

function start(feed) {
  const data = feed.dataset;
  const heartbeat = (Number(data.heartbeat) || 15) * 1000;
  const store = new Store(data.person);
  const calls = new Calls({ store, kinds: JSON.parse(data.words || "{}"), alerts: data.alerts });
  const own = new OwnActs({ store, done: (ids) => markRead(store, ids) });
  const ledger = new Ledger({ store, own, me: data.user, news });
  const ask = async (seqs = []) => {
    const query = new URLSearchParams(seqs.map((seq) => ["seq", String(seq)]));
    const answer = await fetch(data.recent + "?" + query, { headers: { Accept: "application/json" }, credentials: "same-origin" });
    if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    return answer.json();
  };
  const bell = new Bell({ store, calls, ask, zone: data.zone });
  const badge = new Badge({ store, login: data.login, zone: data.zone, retry: kick, panel: () => bell.open() });
  let page = new Sequence(data.seq === "" ? null : Number(data.seq)); // what this page's lists know
  let line = null;
  let kept = []; // the leader's last frames ...
  let keptFrom = null; // ... whole after this number
  let state = { name: "connecting" };
  let gathered = [];
  let gathering = 0;
  let wanted = 0;
  let called = { epoch: "", upto: 0 };

  const tabs = new Tabs({ person: data.person, store, silence: 3 * heartbeat + 10000, told: { lead, follow, word } });

  // --- the page's own lists -------------------------------------------------------------------------------------------

  function take(frame) {
    page.take(frame).forEach(deliver);
    if (page.gap) want();
  }

  function deliver(frame) {
    if (frame.type === "alert") tell("x:alert", frame);
    else if (frame.type === "update") tell("x:update", { ...frame, own: own.owns(frame, data.user) });
  }

  function tell(name, detail) {
    window.dispatchEvent(new CustomEvent(name, { detail }));
  }

  /* This page missed frames: it was asleep, or was read while they came. */
  function want() {
    if (tabs.leads || Date.now() - wanted < 1000) return;
    wanted = Date.now();
    tabs.say("want", { after: page.upto });
  }

  function readAfresh(upto) {
    page = new Sequence(upto);
    tell("x:reset", {});
  }

  function show(next) {
    state = next;
    badge.show(state);
  }

  // --- leading --------------------------------------------------------------------------------------------------------

  function lead() {
    const after = ledger.open(page.upto);
    kept = [];
    keptFrom = after;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    line = new Line({
      address: scheme + "//" + location.host + data.socket,
      after,
      heartbeat,
      told: { state: stateOf, frame: frameOf, head: headOf, missing: missingOf, reset: resetOf, restart: checkPlace },
    });
    line.open();
    if (!ledger.data.learned) ask().then((answer) => ledger.data && ledger.learn(answer)).catch(() => {});
  }

  function follow() {
    line?.close();
    line = null;
    ledger.close();
  }

  function stateOf(next) {
    const quiet = next.name === "live" ? state.quiet : undefined;
    pass({ ...next, quiet });
    // Logged out, or without the role: a tab that has logged in since may lead.
    if (next.name === "login" || next.name === "off") tabs.leave();
  }

  function pass(next) {
    tabs.say("state", next);
    show(next);
  }

  function frameOf(frame) {
    if (keptFrom === null) keptFrom = frame.seq - 1;
    kept.push(frame);
    if (kept.length > KEPT) keptFrom = kept.shift().seq;
    tabs.say("frame", frame);
    ledger.note(frame);
    take(frame);
  }

  function headOf(head, said) {
    keptFrom ??= head;
    page.upto ??= head;
    ledger.head(head);
    tabs.say("head", { head });
    const quiet = quietOf(said);
    if (JSON.stringify(quiet) !== JSON.stringify(state.quiet)) pass({ ...state, quiet });
  }

  function missingOf(count, head) {
    ledger.missing(count, head);
    kept = [];
    keptFrom = head;
    tabs.say("afresh", { upto: head });
    readAfresh(head);
  }

  function resetOf() {
    ledger.restart({ after: null, why: "reset", kept: ledger.data });
    kept = [];
    keptFrom = null;
    tabs.say("reset", { epoch: ledger.data.epoch });
    begunAfresh(ledger.data.epoch);
    ask().then((answer) => ledger.data && ledger.learn(answer)).catch(() => {});
  }

  /* The server ended the line to begin anew: perhaps because this person belongs to another tenant now. */
  function checkPlace() {
    ask().then((answer) => { if (answer.place !== data.person) location.reload(); }).catch(() => {});
  }

  function kick() {
    if (line) line.kick();
    else tabs.say("kick");
  }

  // --- what the tabs tell each other ----------------------------------------------------------------------------------

  function word(kind, said, from) {
    if (tabs.leads) {
      if (kind === "hello") tabs.say("state", state, from);
      if (kind === "hello" || kind === "want") serve(said.after, from);
      if (kind === "kick") kick();
    } else if (kind === "frame") take(said);
    else if (kind === "frames") said.forEach(take);
    else if (kind === "head") behind(said.head);
    else if (kind === "afresh") readAfresh(said.upto);
    else if (kind === "reset") begunAfresh(said.epoch);
    else if (kind === "state") {
      show(said);
      if (said.name === "login" || said.name === "off") tabs.leave();
      else if (!tabs.waits) {
        tabs.join();
        tabs.say("hello", { after: page.upto });
      }
    }
    if (kind === "news") call(said);
  }

  function serve(after, from) {
    if (keptFrom === null || after === null) return;
    if (after < keptFrom) tabs.say("afresh", { upto: line.stream.upto }, from);
    else if (after < line.stream.upto) tabs.say("frames", kept.filter((frame) => frame.seq > after), from);
  }

  function behind(head) {
    page.upto ??= head;
    if (head > page.upto) want();
  }

  // --- news -----------------------------------------------------------------------------------------------------------

  function news(entry) {
    gathered.push(entry);
    if (gathering) return;
    gathering = setTimeout(() => {
      gathering = 0;
      const epoch = ledger.data?.epoch;
      // What another tab, which led before, has called for already.
      const entries = gathered.filter((entry) => called.epoch !== epoch || entry.seq > called.upto);
      gathered = [];
      if (!epoch || !entries.length) return;
      const told = { epoch, entries };
      tabs.say("news", told);
      call(told);
    }, GATHER);
  }

  /* Every tab hears of it, one calls: the one that is looked at, else any that is seen, else the leader. */
  async function call({ epoch, entries }) {
    called = { epoch, upto: entries.at(-1).seq };
    const seen = document.visibilityState === "visible";
    const pause = seen && document.hasFocus() ? 0 : seen ? 80 : tabs.leads ? 300 : 600;
    if (pause) await new Promise((resolve) => { setTimeout(resolve, pause); });
    await tabs.first("news:" + epoch + ":" + entries.at(-1).seq, () => {
      const told = store.read("told", {});
      const fresh = entries.filter((entry) => told.epoch !== epoch || entry.seq > told.upto);
      if (!fresh.length) return;
      store.write("told", { epoch, upto: fresh.at(-1).seq });
      calls.call(fresh);
    });
  }

  function begunAfresh(epoch) {
    readAfresh(null);
    tabs.first("begun:" + epoch, () => {
      if (store.read("begun", "") === epoch) return;
      store.write("begun", epoch);
      calls.toast({
        what: gettext("The live feed could not go on from where it had stopped and began afresh."),
        who: gettext("The list was read again. Another page shows how things stood when it was opened."),
        href: location.href,
        link: gettext("Reload"),
        lasting: true,
      });
    });
  }

  // --- the browser ----------------------------------------------------------------------------------------------------

  window.addEventListener("online", () => { if (line) line.kick(); });
  window.addEventListener("offline", () => { if (line) line.offline(); });
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible" && state.name !== "live") kick();
  });
  window.addEventListener("pagehide", () => tabs.leave());
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  const opened = document.getElementById("alert");
  if (opened) markRead(store, [opened.dataset.id]);
  tabs.join();
  tabs.say("hello", { after: page.upto });
}

/** Since when the source is quiet, by the server's word: {since}, or nothing while it speaks. */
function quietOf(said) {
  return said.source === "quiet" ? { since: Date.parse(said.since) || 0 } : undefined;
}

const feed = document.getElementById("feed");
if (feed) start(feed);
