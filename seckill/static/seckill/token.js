// The purchase token: fetched early, kept for this tab, so that a reload at the start costs nothing.
import { csrf, jitter, sleep } from "./page.js";

export class Token {
  #sale; #options; #held = null; #getting = null;
  failed = false;

  /** `options`: the buy component's data attributes. */
  constructor(sale, options) {
    this.#sale = sale;
    this.#options = options;
  }

  get ready() { return this.#held !== null; }
  get value() { return this.#held?.token; }
  get purchase() { return this.#held?.purchase_id; }

  /** The token of the buyer with this name; solves the small task if there is none yet. */
  get(name) {
    if (this.#held?.name !== name) this.#held = this.#kept(name);
    if (this.#held) return Promise.resolve(this.#held.token);
    this.#getting ??= this.#fetch(name).finally(() => { this.#getting = null; });
    return this.#getting;
  }

  forget() {
    this.#held = null;
    try { sessionStorage.removeItem(this.#key); } catch { /* There was none. */ }
  }

  get #key() { return `token:${this.#sale}`; }

  #kept(name) {
    try {
      const kept = JSON.parse(sessionStorage.getItem(this.#key));
      return kept?.name === name ? kept : null;
    } catch {
      return null;
    }
  }

  async #fetch(name) {
    for (let tries = 1; ; tries += 1) {
      try {
        this.#held = { ...(await this.#ask()), name };
        this.failed = false;
        try { sessionStorage.setItem(this.#key, JSON.stringify(this.#held)); } catch { /* Kept here. */ }
        return this.#held.token;
      } catch (error) {
        this.failed = true;
        if (tries === 3) throw error;
        await sleep(jitter(1000 * 2 ** tries));
      }
    }
  }

  async #ask() {
    const captcha = this.#options.captcha === "off" ? "" : await this.#solved();
    const headers = { "Content-Type": "application/json", "X-CSRFToken": csrf() };
    const body = JSON.stringify({ captcha });
    const answer = await fetch(`/api/v1/sales/${this.#sale}/token`, { method: "POST", headers, body });
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer.json();
  }

  async #solved() {
    const challenge = await (await fetch("/api/v1/captcha", { cache: "no-store" })).json();
    const worker = new Worker(this.#options.worker, { type: "module" });
    try {
      return await new Promise((done, failed) => {
        worker.onmessage = ({ data }) => (data ? done(data) : failed(new Error("not solved")));
        worker.onerror = failed;
        worker.postMessage(challenge);
      });
    } finally {
      worker.terminate();
    }
  }
}
