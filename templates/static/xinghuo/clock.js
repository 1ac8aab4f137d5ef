/* Due chips count down, and up once it is past, by the server's clock whatever ours says.

   Limits are instants: hours of work are counted by the server when it sets them. */
const SOON = 7200000; // ms, as risk.console.rows.SOON

function span(ms, unit) {
  const minutes = Math.floor(ms / 60000);
  if (minutes < 1) return unit(Math.floor(ms / 1000), "second");
  if (minutes < 60) return unit(minutes, "minute");
  if (minutes < 24 * 60) return unit(Math.floor(minutes / 60), "hour") + (minutes % 60 ? " " + unit(minutes % 60, "minute") : "");
  const hours = Math.floor(minutes / 60) % 24;
  return unit(Math.floor(minutes / 1440), "day") + (hours ? " " + unit(hours, "hour") : "");
}

/** Runs the chips (`time[data-due]`) within an element. at: the server's time; left, over: words with %(time)s. */
export function runClock(root, { at, left, over }) {
  const server = Date.parse(at);
  const drift = Number.isNaN(server) ? 0 : server - Date.now();
  const lang = document.documentElement.lang;
  const unit = (value, name) => new Intl.NumberFormat(lang, { style: "unit", unit: name, unitDisplay: "short" }).format(value);
  function tick() {
    const now = Date.now() + drift;
    for (const chip of root.querySelectorAll("time[data-due]")) {
      const rest = Date.parse(chip.dataset.due) - now;
      chip.classList.toggle("late", rest < 0);
      chip.classList.toggle("soon", rest >= 0 && rest <= SOON);
      const words = (rest < 0 ? over : left).replace("%(time)s", span(Math.abs(rest), unit));
      if (chip.textContent !== words) chip.textContent = words;
    }
  }
  tick();
  return setInterval(tick, 1000);
}
