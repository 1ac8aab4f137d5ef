/* The feed's sentences, in the reader's language. */
export function band(score) {
  return score >= 80 ? "critical" : score >= 60 ? "high" : score >= 40 ? "medium" : "low";
}

/** What an entry says: {what, who}. kinds: words of the subtypes. */
export function said(entry, kinds) {
  if (entry.kind === "handed") return { what: gettext("An alert was assigned to you."), who: "" };
  if (entry.kind === "returned") return { what: gettext("Your proposed disposition was returned."), who: "" };
  if (entry.kind === "approved") return { what: gettext("Your proposed disposition was approved."), who: "" };
  const alert = entry.alert;
  const what = (alert.alert_subtype || []).map((code) => kinds[code] || code).join(gettext(", ")) || alert.alert_type;
  const pattern = entry.kind === "raised" ? gettext("Alert has grown, score %s: %s") : gettext("New alert, score %s: %s");
  const level = { LEVEL_1: gettext("level 1"), LEVEL_2: gettext("level 2") }[alert.escalation_level];
  const sentence = interpolate(pattern, [alert.risk_score, what]);
  return { what: level ? sentence + " · " + level : sentence, who: alert.customer_id_mask };
}

export function several(count) {
  return interpolate(ngettext("%s piece of news", "%s pieces of news", count), [count]);
}

/** `09:12` in the console's time zone, with the date where it is another day. */
export function clock(at, zone) {
  const lang = document.documentElement.lang;
  const day = new Intl.DateTimeFormat(lang, { timeZone: zone, dateStyle: "short" });
  const time = new Intl.DateTimeFormat(lang, { timeZone: zone, hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const words = time.format(at);
  return day.format(at) === day.format(Date.now()) ? words : day.format(at) + " " + words;
}

/** What the proof says: since when every number of the feed is here. */
export function proof(ledger, zone) {
  if (!ledger || ledger.upto === null) return "";
  const values = [clock(ledger.since, zone), ledger.missing, ledger.upto];
  const whole = ledger.missing
    ? interpolate(gettext("Not complete since %s: %s missing, sequence number %s"), values)
    : interpolate(gettext("Complete since %s, %s missing, sequence number %s"), values);
  const voids = ledger.voids
    ? " " + interpolate(ngettext("(%s number without a message)", "(%s numbers without a message)", ledger.voids), [ledger.voids])
    : "";
  const why = {
    reset: gettext("The feed began afresh then: it could not go on from where it had stopped."),
    away: gettext("The feed began afresh then: too much had come since this browser last listened."),
  }[ledger.why];
  return whole + voids + (why ? ". " + why : "");
}
