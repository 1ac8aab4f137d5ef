/* The live feed of every console page: one socket, resumed after a break, never "live" when it is not.

   Tells other scripts through window events: x:alert {seq, alert}, x:update {seq, alert_id, ...}, x:reset.
   Text goes into the page by textContent alone. */
"use strict";
(() => {
  const feed = document.getElementById("feed");
  if (!feed) return;
  const SILENCE = 45000; // ms without a frame (heartbeats come more often): the line is taken for dead
  const STABLE = 3000; // ms a line must hold before the back-off starts afresh
  const state = document.getElementById("feed-state");
  const label = state.querySelector(".label");
  const bell = document.getElementById("feed-bell");
  const badge = document.getElementById("feed-count");
  const sound = document.getElementById("feed-sound");
  const announcer = document.getElementById("feed-live");
  const toasts = document.getElementById("toasts");
  const words = JSON.parse(feed.dataset.words || "{}");
  const title = document.title;
  const seen = new Set();
  let floor = feed.dataset.seq === "" ? null : Number(feed.dataset.seq);
  let catchUp = 0; // while frames up to this seq are being replayed, later ones do not move the floor
  let asked = 0;
  let socket = null;
  let attempt = 0;
  let timer = 0;
  let silence = 0;
  let news = 0;
  let unseen = 0;

  const TEXT = {
    connecting: gettext("Connecting…"),
    live: gettext("Live"),
    reconnecting: gettext("Reconnecting…"),
    off: gettext("Live feed off"),
  };

  function show(name, text) {
    if (state.dataset.state === name && label.textContent === (text || TEXT[name])) return;
    state.dataset.state = name;
    label.textContent = text || TEXT[name];
  }

  function loggedOut() {
    state.dataset.state = "login";
    label.textContent = gettext("You are logged out.") + " ";
    const link = document.createElement("a");
    link.href = feed.dataset.login + "?next=" + encodeURIComponent(location.pathname + location.search);
    link.textContent = gettext("Log in again");
    label.append(link);
  }

  function tell(name, detail) {
    window.dispatchEvent(new CustomEvent(name, { detail }));
  }

  function band(score) {
    return score >= 80 ? "critical" : score >= 60 ? "high" : score >= 40 ? "medium" : "low";
  }

  function listen() {
    clearTimeout(silence);
    silence = setTimeout(() => socket && socket.close(4000), SILENCE);
  }

  function resumeTo(head) {
    if (floor === null) {
      floor = head;
      return;
    }
    if (head > floor && head > asked) {
      asked = catchUp = head;
      socket.send(JSON.stringify({ type: "resume", after: floor }));
    }
  }

  function connect() {
    clearTimeout(timer);
    show(attempt === 0 ? "connecting" : "reconnecting");
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const mine = new WebSocket(scheme + "//" + location.host + feed.dataset.socket);
    socket = mine;
    let opened = 0;
    asked = 0;
    mine.onopen = () => { opened = Date.now(); listen(); };
    mine.onmessage = (event) => { if (mine === socket) receive(JSON.parse(event.data)); };
    mine.onclose = (event) => {
      if (mine !== socket) return;
      socket = null;
      clearTimeout(silence);
      if (event.code === 4401) return loggedOut();
      if (event.code === 4403) return show("off", gettext("No live feed for your role"));
      if (opened && Date.now() - opened > STABLE) attempt = 0;
      attempt += 1;
      show("reconnecting");
      const pause = Math.min(15000, 500 * 2 ** Math.min(attempt - 1, 5));
      timer = setTimeout(connect, pause * (0.7 + Math.random() * 0.6));
    };
  }

  function receive(frame) {
    listen();
    if (frame.type === "hello") {
      show("live");
      resumeTo(frame.head);
    } else if (frame.type === "heartbeat") {
      resumeTo(frame.head);
    } else if (frame.type === "reset") {
      floor = null;
      seen.clear();
      tell("x:reset", {});
    } else if (frame.type === "alert" || frame.type === "update" || frame.type === "void") {
      if (seen.has(frame.seq)) return;
      seen.add(frame.seq);
      if (seen.size > 5000) seen.delete(seen.values().next().value);
      if (floor === null || (frame.seq > floor && (catchUp <= floor || frame.seq <= catchUp))) floor = frame.seq;
      if (frame.type === "alert") arrived(frame);
      else if (frame.type === "update") tell("x:update", frame);
    }
  }

  function arrived(frame) {
    news += 1;
    badge.hidden = false;
    badge.textContent = news > 99 ? "99+" : String(news);
    unseen += 1;
    document.title = "(" + unseen + ") " + title;
    tell("x:alert", frame);
    const alert = frame.alert;
    if (alert.risk_score < 40) return; // low: no toast, no sound
    const kinds = (alert.alert_subtype || []).map((code) => words[code] || code).join(", ");
    const text = interpolate(gettext("New alert, score %s: %s"), [alert.risk_score, kinds || alert.alert_type]);
    announcer.textContent = text;
    toast(alert, text);
    if (sound.getAttribute("aria-pressed") === "true" && document.visibilityState === "visible") beep(alert.risk_score);
  }

  function toast(alert, text) {
    const box = document.createElement("div");
    box.className = "x-toast " + band(alert.risk_score);
    const score = document.createElement("span");
    score.className = "score " + band(alert.risk_score);
    score.textContent = alert.risk_score;
    const middle = document.createElement("div");
    const link = document.createElement("a");
    link.href = feed.dataset.alerts + encodeURIComponent(alert.alert_id) + "/change/";
    link.textContent = text;
    const who = document.createElement("p");
    who.textContent = alert.customer_id_mask;
    middle.append(link, who);
    const close = document.createElement("button");
    close.type = "button";
    close.textContent = "×";
    close.setAttribute("aria-label", gettext("Dismiss"));
    close.onclick = () => box.remove();
    box.append(score, middle, close);
    toasts.append(box);
    while (toasts.children.length > 3) toasts.firstElementChild.remove();
    setTimeout(() => box.remove(), 12000);
  }

  function beep(score) {
    try {
      const audio = new AudioContext();
      const tone = audio.createOscillator();
      const volume = audio.createGain();
      tone.frequency.value = score >= 80 ? 880 : 587;
      volume.gain.setValueAtTime(0.08, audio.currentTime);
      volume.gain.exponentialRampToValueAtTime(0.0001, audio.currentTime + 0.4);
      tone.connect(volume).connect(audio.destination);
      tone.start();
      tone.stop(audio.currentTime + 0.4);
      tone.onended = () => audio.close();
    } catch (fault) {
      /* a browser without sound still shows the alert */
    }
  }

  function noticed() {
    if (document.visibilityState !== "visible" || unseen === 0) return;
    unseen = 0;
    document.title = title;
  }
  for (const name of ["pointerdown", "keydown"]) document.addEventListener(name, noticed, { passive: true });
  document.addEventListener("visibilitychange", noticed);

  sound.setAttribute("aria-pressed", String(localStorage.getItem("x-sound") === "on"));
  sound.addEventListener("click", () => {
    const on = sound.getAttribute("aria-pressed") !== "true";
    sound.setAttribute("aria-pressed", String(on));
    localStorage.setItem("x-sound", on ? "on" : "off");
    if (on) beep(60);
  });
  window.addEventListener("online", () => { if (!socket) connect(); });
  window.addEventListener("offline", () => { if (socket) socket.close(4000); });
  window.addEventListener("pagehide", () => { if (socket) { const last = socket; socket = null; last.close(); } });
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  connect();
})();
