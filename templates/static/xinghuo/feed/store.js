/* What one person's tabs share in this browser: small JSON values by name. No customer's data is kept here.

   A browser that keeps nothing (private mode, a full disk) has it for the page's life. */
export class Store {
  constructor(person) {
    this.prefix = "x-feed:" + person + ":";
    this.memory = new Map();
    this.listeners = new Map();
    window.addEventListener("storage", (event) => {
      if (event.key && event.key.startsWith(this.prefix)) this.tell(event.key.slice(this.prefix.length));
    });
  }

  read(name, otherwise) {
    let text = null;
    try {
      text = localStorage.getItem(this.prefix + name);
    } catch (fault) {
      text = null;
    }
    if (text === null) text = this.memory.get(name) ?? null;
    if (text === null) return otherwise;
    try {
      return JSON.parse(text) ?? otherwise;
    } catch (fault) {
      return otherwise;
    }
  }

  write(name, value) {
    const text = JSON.stringify(value);
    try {
      localStorage.setItem(this.prefix + name, text);
      this.memory.delete(name);
    } catch (fault) {
      this.memory.set(name, text);
    }
    this.tell(name);
  }

  /** Calls `listener` whenever the value may have changed, here or in another tab. */
  on(name, listener) {
    this.listeners.set(name, [...(this.listeners.get(name) || []), listener]);
  }

  tell(name) {
    for (const listener of this.listeners.get(name) || []) listener();
  }
}
