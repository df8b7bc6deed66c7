// A websocket that comes back: full jitter, a heartbeat, and nothing told twice.
const PING_EVERY = 20_000;
const DEAD_AFTER = 45_000;
const FOR_GOOD = new Set([4401, 4403, 4404]);

/** Milliseconds to wait before try number `tries` (from 1): full jitter, 0.5 s doubling to 30 s. */
export const backoff = (tries, random = Math.random) => random() * Math.min(30_000, 500 * 2 ** (tries - 1));

export class Live {
  #path; #hear; #socket = null; #tries = 0; #heard = 0; #seen = new Set(); #timer = 0; #over = false;

  /** `hear(frame)` gets each event once; snapshots after a gap are events too. */
  constructor(path, hear) {
    this.#path = path;
    this.#hear = hear;
    this.#open();
    setInterval(() => this.#beat(), PING_EVERY);
    const now = () => this.#hurry();
    addEventListener("online", now);
    // A page that is kept for "back" may hold no connection.
    addEventListener("pagehide", () => this.#letGo());
    addEventListener("pageshow", (event) => event.persisted && now());
    document.addEventListener("visibilitychange", () => document.hidden || now());
  }

  get connected() { return this.#socket?.readyState === WebSocket.OPEN; }
  /** Milliseconds since anything was heard. */
  get silence() { return performance.now() - this.#heard; }

  close() { this.#over = true; this.#letGo(); }

  #open() {
    clearTimeout(this.#timer);
    if (this.#over) return;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}${this.#path}`);
    this.#socket = socket;
    socket.addEventListener("message", (event) => socket === this.#socket && this.#receive(event.data));
    socket.addEventListener("close", (event) => socket === this.#socket && this.#lost(event.code));
  }

  #receive(text) {
    this.#heard = performance.now();
    this.#tries = 0;
    const frame = JSON.parse(text);
    if (frame.type === "ping") { this.#say({ type: "ping" }); return; }
    if (frame.type === "pong") return;
    if (frame.type !== "hello") {
      if (this.#seen.has(frame.id)) return;
      this.#seen.add(frame.id);
      if (this.#seen.size > 500) this.#seen.delete(this.#seen.values().next().value);
    }
    this.#hear(frame);
  }

  #lost(code) {
    this.#socket = null;
    if (FOR_GOOD.has(code)) { this.#over = true; return; }
    this.#tries += 1;
    this.#timer = setTimeout(() => this.#open(), backoff(this.#tries));
  }

  #beat() {
    if (!this.connected || document.hidden) return;
    if (this.silence > DEAD_AFTER) this.#drop();
    else this.#say({ type: "ping" });
  }

  /** The network or the page came back: ask for the present state, or connect at once. */
  #hurry() {
    if (this.#over) return;
    if (this.connected && this.silence < DEAD_AFTER) this.#say({ type: "resume" });
    else this.#drop();
  }

  #letGo() {
    clearTimeout(this.#timer);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  #drop() {
    this.#letGo();
    this.#tries = 0;
    this.#open();
  }

  #say(message) { if (this.connected) this.#socket.send(JSON.stringify(message)); }
}
