// SPDX-License-Identifier: MIT
// The page for operators: what each model does now (GET /admin/stats, every two seconds), and the limits of the
// prompt cache on disk. Names and figures are only ever set as text.
"use strict";
const $ = (id) => document.getElementById(id);
let before = new Map(); // model -> its last figures, for tokens per second

function headers() {
  const h = { "Content-Type": "application/json" };
  if ($("key").value) h.Authorization = "Bearer " + $("key").value;
  return h;
}

async function ask(path, method, body) {
  const r = await fetch(path, { method: method || "GET", headers: headers(), body: body && JSON.stringify(body) });
  if (r.status === 401 || r.status === 403) throw new Error("This page needs an admin key.");
  const answer = await r.json();
  if (!r.ok) throw new Error(answer.error && (answer.error.message || answer.error) || `status ${r.status}`);
  return answer;
}

const percent = (part, all) => (all ? `${Math.round((100 * part) / all)} %` : "");

function row(m, seconds) {
  const last = before.get(m.id);
  const rate = (name) => (last && m[name] >= last[name] ? ((m[name] - last[name]) / seconds).toFixed(1) : "");
  const wait = m.predicted_wait_seconds === undefined ? "" : `${m.predicted_wait_seconds.toFixed(1)} s`;
  const tr = document.createElement("tr");
  for (const text of [m.id, m.waiting, m.running, percent(m.kv_pages_total - m.kv_pages_free, m.kv_pages_total), rate("prompt_tokens"), rate("generated_tokens"),
    percent(m.cached_tokens, m.prompt_tokens), wait]) {
    const td = document.createElement("td");
    td.textContent = text;
    tr.append(td);
  }
  const button = document.createElement("button");
  button.textContent = "unload";
  button.addEventListener("click", () => act(() => ask("/admin/models/unload", "POST", { id: m.id })));
  const td = document.createElement("td");
  td.append(button);
  tr.append(td);
  return tr;
}

async function act(f) {
  try {
    await f();
    $("status").textContent = "";
  } catch (e) {
    $("status").textContent = e.message;
  }
}

let shown = 0;
async function look() {
  const stats = await ask("/admin/stats");
  const now = Date.now();
  $("models").replaceChildren(...stats.models.map((m) => row(m, (now - shown) / 1000)));
  before = new Map(stats.models.map((m) => [m.id, m]));
  shown = now;
}

function fill(c) {
  $("enabled").checked = c.enabled;
  $("budget_mb").value = c.budget_mb;
  $("ttl_hours").value = c.ttl_hours;
  $("used").textContent = `${c.files} files, ${Math.ceil(c.used_bytes / 1048576)} MiB`;
}

const start = () => act(async () => { fill(await ask("/api/cache/persistence")); await look(); });

$("cache").addEventListener("submit", (e) => {
  e.preventDefault();
  act(async () => fill(await ask("/api/cache/persistence", "PUT",
    { enabled: $("enabled").checked, budget_mb: Number($("budget_mb").value), ttl_hours: Number($("ttl_hours").value) })));
});
$("key").addEventListener("change", start);
setInterval(() => document.hidden || act(look), 2000);
start();
