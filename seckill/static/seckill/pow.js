// A worker: finds the counter that an ALTCHA challenge asks for. SHA-256 in plain JavaScript, because
// the browser's own is asynchronous (slow for many short inputs) and needs https.
const K = new Uint32Array(64);
const START = new Uint32Array(8);

(function constants() {
  let n = 0;
  for (let candidate = 2; n < 64; candidate += 1) {
    let prime = true;
    for (let i = 2; i * i <= candidate; i += 1) if (candidate % i === 0) { prime = false; break; }
    if (!prime) continue;
    const fraction = (root) => ((root - Math.floor(root)) * 2 ** 32) >>> 0;
    if (n < 8) START[n] = fraction(Math.sqrt(candidate));
    K[n] = fraction(Math.cbrt(candidate));
    n += 1;
  }
}());

const w = new Uint32Array(64);

/** One block of 64 bytes is enough: the inputs have at most 55. */
export function sha256(bytes) {
  const block = new Uint8Array(64);
  block.set(bytes);
  block[bytes.length] = 0x80;
  const view = new DataView(block.buffer);
  view.setUint32(60, bytes.length * 8);
  for (let i = 0; i < 16; i += 1) w[i] = view.getUint32(i * 4);
  for (let i = 16; i < 64; i += 1) {
    const a = w[i - 15], b = w[i - 2];
    const s0 = (a >>> 7 | a << 25) ^ (a >>> 18 | a << 14) ^ (a >>> 3);
    const s1 = (b >>> 17 | b << 15) ^ (b >>> 19 | b << 13) ^ (b >>> 10);
    w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
  }
  let [a, b, c, d, e, f, g, h] = START;
  for (let i = 0; i < 64; i += 1) {
    const s1 = (e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7);
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
    const s0 = (a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10);
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
  }
  const out = new DataView(new ArrayBuffer(32));
  [a, b, c, d, e, f, g, h].forEach((value, i) => out.setUint32(i * 4, value + START[i]));
  return new Uint8Array(out.buffer);
}

const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** The answer in the form of the `captcha` field, or null. */
export function solve(challenge, most = 10_000_000) {
  const { algorithm, salt, nonce, cost, keyLength, keyPrefix } = challenge.parameters;
  if (algorithm !== "SHA-256") return null;
  const input = new Uint8Array([...fromHex(salt), ...fromHex(nonce), 0, 0, 0, 0]);
  if (input.length > 55) return null;
  const tail = new DataView(input.buffer, input.length - 4);
  for (let counter = 0; counter < most; counter += 1) {
    tail.setUint32(0, counter);
    let key = sha256(input);
    for (let i = 1; i < cost; i += 1) key = sha256(key);
    const derivedKey = toHex(key.subarray(0, keyLength));
    if (derivedKey.startsWith(keyPrefix)) return btoa(JSON.stringify({ challenge, solution: { counter, derivedKey } }));
  }
  return null;
}

if (typeof WorkerGlobalScope !== "undefined") onmessage = ({ data }) => postMessage(solve(data));
