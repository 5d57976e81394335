"use strict";
/* The page of dra serve. Text of a model is only ever put into textContent. A conversation is a list
 * of turns, and one state on the server, which every finished answer replaces and the next one goes
 * on from: only what is new is sent. Where there is no such state, or it is gone, all is sent again. */

const $ = (id) => document.getElementById(id);
/* from: a state whose text is not known here; name: of the conversation's own state, which `saved`
 * tells about: { name, model, turns: how many of them it has read, system }. */
const talk = { turns: [], from: null, running: null, name: null, saved: null };

/* A name that a person can read: the first words that were said, and when. "Tell-me-a-story.14.32.07";
 * no other state has it. */
async function state_name(text) {
  const words = text.match(/[A-Za-z0-9]+/g) || ["talk"];
  let name = words[0].slice(0, 32);
  for (const word of words.slice(1, 4)) if (name.length + word.length < 32) name += "-" + word;
  name += "." + new Date().toTimeString().slice(0, 8).replaceAll(":", ".");
  const taken = new Set((await (await ask("GET", "/states")).json()).data.map((s) => s.name));
  let free = name;
  for (let i = 2; taken.has(free); i++) free = name + "-" + i;
  return free;
}

function notice(text) { $("notice").textContent = text || ""; }

function headers() {
  const h = { "Content-Type": "application/json" };
  if ($("key").value) h["Authorization"] = "Bearer " + $("key").value;
  return h;
}

async function ask(method, path, body, signal) {
  const r = await fetch(path, { method, headers: headers(), signal,
    body: body === undefined ? undefined : JSON.stringify(body) });
  if (r.ok) return r;
  let why = r.status + " " + r.statusText;
  try { why = (await r.json()).error.message; } catch (e) { /* no JSON: the status has to do */ }
  throw Object.assign(new Error(why), { status: r.status });
}

function make(tag, text, attributes) {
  const x = document.createElement(tag);
  if (text !== undefined) x.textContent = text;
  for (const name in attributes || {}) x.setAttribute(name, attributes[name]);
  return x;
}

function button(text, label, act) {
  const b = make("button", text, { type: "button", class: "small", "aria-label": label });
  b.addEventListener("click", act);
  return b;
}

/* ---- the conversation ---- */

function at_end() {
  const m = $("messages");
  return m.scrollHeight - m.scrollTop - m.clientHeight < 80;
}

function show_turn(turn, i) {
  const li = make("li", undefined, { class: turn.role });
  const who = make("div", undefined, { class: "who" });
  who.append(make("span", turn.role === "user" ? "you" : turn.model));
  if (turn.role === "assistant" && !turn.pending)
    who.append(button("fork", "fork from message " + (i + 1), () => fork_from(i)));
  turn.shown = make("div", turn.content, { class: "text" });
  li.append(who, turn.shown);
  $("messages").append(li);
  turn.who = who;
}

function show_all() {
  $("messages").replaceChildren();
  talk.turns.forEach(show_turn);
  remember();
}

/* A page that is loaded again shows the same conversation. */
function remember() {
  sessionStorage.setItem("talk", JSON.stringify({ turns: talk.turns.map(plain), from: talk.from,
    name: talk.name, saved: talk.saved }));
}

function plain(turn) { return { role: turn.role, content: turn.content, model: turn.model }; }

/* The state belongs to one tab: a copy of it, which the browser gives what was kept, has its own. */
function recall() {
  const again = performance.getEntriesByType("navigation").some((n) => n.type === "reload");
  try {
    const kept = JSON.parse(sessionStorage.getItem("talk"));
    if (kept) Object.assign(talk, kept, again ? {} : { name: null, saved: null });
  } catch (e) { /* nothing was kept */ }
  show_all();
}

function settings() {
  const out = {};
  for (const x of document.querySelectorAll("#sampling input"))
    if (x.value !== "") out[x.id] = Number(x.value);
  return out;
}

/* An input for each option of samplers, as the server lists them. */
async function show_sampler() {
  if ($("sampler").children.length) return;
  const options = (await (await ask("GET", "/sampler")).json()).data;
  $("sampler").replaceChildren(...options.map((o) => {
    const label = make("label", o.name.replaceAll("_", " ") + " ", { title: o.help });
    label.append(make("input", undefined, { id: o.name, type: "number", min: o.least, max: o.most,
      step: o.whole ? 1 : "any", value: o.usual }));
    return label;
  }));
}

function instruction() { return $("system").value.trim(); }

/* Whether the state of the last answer has read what was said before the last message. */
function goes_on() {
  const s = talk.saved;
  return s && s.turns < talk.turns.length && s.model === $("model").value &&
    s.system === instruction();
}

/* What is sent of a conversation, and the state that it follows, if any. */
function said() {
  const all = talk.turns.filter((t) => !t.pending).map((t) => ({ role: t.role,
    content: t.content.replaceAll("\0", "\ufffd") })); /* which no message may have */
  if (goes_on())
    return { messages: all.slice(talk.saved.turns), dra_state: talk.saved.name,
      dra_after_answer: true };
  if (talk.from) return { messages: all, dra_state: talk.from };
  if (instruction()) all.unshift({ role: "system", content: instruction() });
  return { messages: all };
}

/* Where the state is gone, or cannot be had, the whole text is sent. */
async function ask_for_answer(signal) {
  const request = () => ask("POST", "/v1/chat/completions", Object.assign(settings(), said(), {
    model: $("model").value, stream: true, stream_options: { include_usage: true },
    dra_look: true, dra_save_state: talk.name }), signal);
  try {
    return await request();
  } catch (e) {
    if (!goes_on() || ![400, 404, 409, 507].includes(e.status)) throw e;
    talk.saved = null;
    return request();
  }
}

async function send(text) {
  if (talk.running || !text.trim()) return;
  notice("");
  talk.turns.push({ role: "user", content: text });
  const turn = { role: "assistant", content: "", pending: true, model: $("model").value };
  talk.turns.push(turn);
  show_all();
  $("messages").scrollTop = $("messages").scrollHeight;
  const running = talk.running = new AbortController();
  $("stop").disabled = false;
  $("send").disabled = true;
  look_clear();
  try {
    if (!talk.name) talk.name = await state_name(talk.turns[0].content);
    const system = instruction();
    await read_stream(await ask_for_answer(running.signal), turn);
    talk.saved = { name: talk.name, model: turn.model, turns: talk.turns.length, system };
  } catch (e) {
    if (e.name !== "AbortError") notice(e.message);
    if (!turn.content && talk.turns.at(-1) === turn) take_back(text);
  }
  turn.pending = false;
  talk.running = null;
  $("stop").disabled = true;
  $("send").disabled = false;
  show_all();
  show_states();
}

/* What was never answered is not said: it can be changed and sent again. */
function take_back(text) {
  talk.turns.length -= 2;
  if (!$("say").value) $("say").value = text;
}

async function read_stream(response, turn) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  const began = performance.now();
  let held = "", tokens = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += decoder.decode(value, { stream: true });
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ") || event === "data: [DONE]") continue;
      const x = JSON.parse(event.slice(6));
      if (x.error) throw new Error(x.error.message);
      if (x.dra_look) look(x.dra_look);
      if (x.usage) figures(x.usage, (performance.now() - began) / 1000);
      const delta = x.choices && x.choices[0] && x.choices[0].delta;
      if (delta && delta.content) {
        const follow = at_end();
        tokens += 1;
        turn.content += delta.content;
        turn.shown.textContent = turn.content;
        if (follow) $("messages").scrollTop = $("messages").scrollHeight;
      }
    }
  }
}

function figures(usage, seconds) {
  const cached = usage.prompt_tokens_details.cached_tokens;
  $("figures").textContent = usage.prompt_tokens + " tokens read (" + cached + " reused), " +
    usage.completion_tokens + " written, " +
    (usage.completion_tokens / Math.max(seconds, 1e-3)).toFixed(1) + " a second";
}

function stop() { if (talk.running) talk.running.abort(); }

function begin(from, turns, saved) {
  stop();
  talk.from = from;
  talk.turns = turns || [];
  talk.name = null;
  talk.saved = saved || null;
  show_all();
  $("say").focus();
}

/* ---- states ---- */

/* The state of a conversation goes with it; one that was kept has another name. */
async function begin_fresh() {
  const s = talk.saved && talk.saved.name === talk.name ? talk.saved : null;
  begin(null);
  if (s) await remove(s);
}

/* Another conversation with the same beginning; its first answer makes its state. */
function fork_from(i) {
  const s = talk.saved && talk.saved.turns <= i + 1 ? talk.saved : null;
  begin(talk.from, talk.turns.slice(0, i + 1).map(plain), s);
  notice("");
}

async function show_states() {
  let all = [];
  try { all = (await (await ask("GET", "/states")).json()).data; } catch (e) { notice(e.message); }
  const several = $("model").options.length > 1;
  $("states").replaceChildren(...all.map((s) => {
    const li = make("li"), of = several ? ", " + s.model : "";
    const tokens = s.tokens === null ? "on disk" : s.tokens + " tokens";
    li.append(make("span", s.name, { class: "name" }), make("span", tokens + of),
      button("load", "load " + s.name + of, () => load(s)),
      button("delete", "delete " + s.name + of, () => remove(s)));
    return li;
  }));
}

/* A state is one of its model. */
async function load(s) {
  $("model").value = s.model;
  begin(s.name);
  await show_facts();
  look_state(s);
}

function path_of(s, verb) {
  return "/states/" + s.name + (verb || "") + "?model=" + encodeURIComponent(s.model);
}

async function remove(s) {
  try {
    await ask("DELETE", path_of(s));
    if (talk.saved && s.name === talk.saved.name && s.model === talk.saved.model)
      talk.saved = null;
  } catch (e) { notice(e.message); }
  show_states();
}

async function keep(event) {
  event.preventDefault();
  const from = talk.saved ? talk.saved.name : talk.from;
  if (!from) return notice("There is nothing to keep yet.");
  try {
    await ask("POST", "/states/" + from + "/fork", { to: $("state-name").value,
      model: $("model").value });
    $("state-name").value = "";
    notice("");
  } catch (e) { notice(e.message); }
  show_states();
}

/* ---- a look into the memory: a line for each head, over tokens ---- */

const seen = new Map();

function look_clear() { seen.clear(); $("memory").replaceChildren(); }

async function look_state(s) {
  look_clear();
  try { look(await (await ask("GET", path_of(s, "/look"))).json()); }
  catch (e) { notice(e.message); }
}

function look(tensors) {
  $("memory-none").hidden = true;
  for (const t of tensors) {
    if (!seen.has(t.name)) {
      const box = make("div", undefined, { class: "tensor" });
      const plot = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      plot.setAttribute("preserveAspectRatio", "none");
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", "norms of " + t.name + " over tokens");
      box.append(make("div", t.name, { class: "title" }), plot);
      $("memory").append(box);
      seen.set(t.name, { plot, box, rows: [] });
    }
    const x = seen.get(t.name);
    x.rows.push(t.norm.map((v) => (v === null ? 0 : v)));
    draw(x);
    const last = x.rows[x.rows.length - 1];
    x.box.firstChild.textContent = t.name + "  " +
      last.slice(0, 8).map((v) => v.toPrecision(3)).join(" ") + (last.length > 8 ? " …" : "");
  }
}

function draw(x) {
  const n = x.rows.length, heads = x.rows[0].length;
  const most = Math.max(1e-9, ...x.rows.map((r) => Math.max(...r)));
  x.plot.setAttribute("viewBox", "0 0 100 30");
  const shapes = [];
  for (let h = 0; h < heads; h++) {
    const y = (i) => (29 - 28 * x.rows[i][h] / most).toFixed(2);
    const kind = n > 1 ? "polyline" : "rect";
    const s = document.createElementNS("http://www.w3.org/2000/svg", kind);
    if (n > 1) {
      s.setAttribute("points", x.rows.map((r, i) => (100 * i / (n - 1)).toFixed(2) + "," + y(i))
        .join(" "));
    } else {
      s.setAttribute("x", 100 * h / heads + 1);
      s.setAttribute("width", Math.max(0.5, 100 / heads - 2));
      s.setAttribute("y", y(0));
      s.setAttribute("height", 30 - y(0));
    }
    shapes.push(s);
  }
  x.plot.replaceChildren(...shapes);
}

/* ---- the model ---- */

async function show_facts() {
  const name = $("model").value;
  if (!name) return;
  const facts = (await (await ask("GET", "/v1/models/" + encodeURIComponent(name))).json())
    .dra_facts || {};
  const list = [];
  for (const key in facts)
    if (key !== "half_lives") list.push(make("dt", key), make("dd", String(facts[key])));
  $("facts").replaceChildren(...list);
  const layers = new Map();
  for (const h of facts.half_lives || []) {
    if (!layers.has(h.layer)) layers.set(h.layer, []);
    layers.get(h.layer).push(h.tokens);
  }
  $("half-lives").replaceChildren(...[...layers].map(([layer, all]) => {
    const some = all.filter((x) => x !== null).sort((a, b) => a - b);
    return make("div", "half-lives of layer " + layer + ": " + (some.length ?
      some[0].toPrecision(3) + " to " + some[some.length - 1].toPrecision(3) + " tokens" :
      "without end"), { class: "title" });
  }));
}

async function open_page() {
  notice("");
  try {
    const models = (await (await ask("GET", "/v1/models")).json()).data;
    $("model").replaceChildren(...models.map((m) => make("option", m.id, { value: m.id })));
    await show_sampler();
    await show_facts();
    await show_states();
  } catch (e) { notice(e.message); }
}

$("form").addEventListener("submit", (e) => {
  e.preventDefault();
  const text = $("say").value;
  if (talk.running || !text.trim()) return;
  $("say").value = "";
  send(text);
});
$("say").addEventListener("keydown", (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    $("form").requestSubmit();
  }
});
document.addEventListener("keydown", (e) => { if (e.key === "Escape") stop(); });
$("stop").addEventListener("click", stop);
$("fresh").addEventListener("click", begin_fresh);
$("keep").addEventListener("submit", keep);
$("model").addEventListener("change", show_facts);
$("key").addEventListener("change", open_page);
$("panels").addEventListener("click", () => {
  const open = $("side").classList.toggle("open");
  $("panels").setAttribute("aria-expanded", String(open));
  $("panels").textContent = open ? "conversation" : "settings";
});
recall();
open_page();
