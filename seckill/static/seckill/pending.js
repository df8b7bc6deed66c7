// Purchases of this tab that wait for their outcome: ids in the tab's own storage.
const KEY = "pending";

function read() {
  try { return new Set(JSON.parse(sessionStorage.getItem(KEY) ?? "[]")); } catch { return new Set(); }
}

function write(ids) {
  try { sessionStorage.setItem(KEY, JSON.stringify([...ids].slice(-20))); } catch { /* Only a toast is lost. */ }
}

export const pending = {
  get size() { return read().size; },
  has: (id) => read().has(id),
  add: (id) => write(read().add(id)),
  delete: (id) => { const ids = read(); ids.delete(id); write(ids); },
};
