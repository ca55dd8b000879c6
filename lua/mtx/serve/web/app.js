// SPDX-License-Identifier: MIT
// The chat page: streams /v1/chat/completions. Model text is only ever set as
// text, never as HTML, so nothing a model says can run here.
"use strict";
const $ = (id) => document.getElementById(id);
let turns = [];
let running = null;

function headers() {
  const h = { "Content-Type": "application/json" };
  if ($("key").value) h.Authorization = "Bearer " + $("key").value;
  return h;
}

async function loadModels() {
  const r = await fetch("/api/tags", { headers: headers() });
  if (!r.ok) { $("status").textContent = r.status === 401 ? "This server needs a key." : "Cannot list models."; return; }
  const models = (await r.json()).models.filter((m) => m.capabilities.includes("completion"));
  $("model").replaceChildren(...models.map((m) => new Option(m.name.replace(/:latest$/, ""))));
  $("status").textContent = models.length ? "" : "No chat model in the models folder.";
}

function turn(role, text) {
  const div = document.createElement("div");
  div.className = "turn " + role;
  const thought = document.createElement("span");
  thought.className = "thought";
  const body = document.createElement("span");
  body.textContent = text;
  div.append(thought, body);
  $("log").append(div);
  div.scrollIntoView({ block: "end" });
  return { div, thought, body };
}

// Calls on(data) for every data line of a server-sent event stream.
async function readEvents(response, on) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop();
    for (const f of frames) {
      const line = f.split("\n").find((l) => l.startsWith("data: "));
      if (line && line !== "data: [DONE]") on(JSON.parse(line.slice(6)));
    }
  }
}

async function ask(text) {
  turns.push({ role: "user", content: text });
  turn("user", text);
  const out = turn("assistant", "");
  running = new AbortController();
  $("send").hidden = true;
  $("stop").hidden = false;
  try {
    const r = await fetch("/v1/chat/completions", {
      method: "POST", headers: headers(), signal: running.signal,
      body: JSON.stringify({ model: $("model").value, messages: turns, temperature: Number($("temperature").value), stream: true, stream_options: { include_usage: true } }),
    });
    if (!r.ok) throw new Error((await r.json()).error.message);
    await readEvents(r, (d) => {
      if (d.error) throw new Error(d.error.message);
      const delta = d.choices[0] && d.choices[0].delta;
      if (delta && delta.reasoning_content) out.thought.textContent += delta.reasoning_content;
      if (delta && delta.content) out.body.textContent += delta.content;
      if (d.timings) $("status").textContent = `${d.usage.completion_tokens} tokens, ${d.timings.predicted_per_second.toFixed(1)} per second, ${d.usage.prompt_tokens_details.cached_tokens} of ${d.usage.prompt_tokens} prompt tokens from the cache`;
      out.div.scrollIntoView({ block: "end" });
    });
  } catch (e) {
    if (e.name !== "AbortError") {
      out.div.classList.add("error");
      out.body.textContent += e.message;
    }
  }
  turns.push({ role: "assistant", content: out.body.textContent });
  running = null;
  $("send").hidden = false;
  $("stop").hidden = true;
}

$("form").addEventListener("submit", (e) => {
  e.preventDefault();
  const text = $("input").value.trim();
  if (!text || running) return;
  $("input").value = "";
  ask(text);
});
$("input").addEventListener("keydown", (e) => {
  if (e.key === "Enter" && !e.shiftKey) {
    e.preventDefault();
    $("form").requestSubmit();
  }
});
$("stop").addEventListener("click", () => running && running.abort());
$("clear").addEventListener("click", () => {
  if (running) running.abort();
  turns = [];
  $("log").replaceChildren();
});
$("key").addEventListener("change", loadModels);
loadModels();
