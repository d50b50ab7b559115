// This script adds what HTML cannot do: live updates, filters and actions without a page reload, actions in
// a dialog, and copying. Every page works without it. It requests only URLs that links and forms of the page
// name.
"use strict";

const body = document.body;
const text = (name) => body.dataset["text" + name[0].toUpperCase() + name.slice(1)] || "";

// --- Times: the browser's time zone, and relative times.

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone) {
  for (const input of document.querySelectorAll("input[type=hidden][data-zone]")) input.value = zone;
  const name = body.dataset.askZone;
  if (name) {
    const path = name.startsWith("__Host-") ? "/" : "/ui"; // browsers accept __Host- only with the path "/"
    const rest = "max-age=31536000; samesite=lax" + (location.protocol === "https:" ? "; secure" : "");
    document.cookie = `${name}=${encodeURIComponent(zone)}; path=${path}; ${rest}`;
  }
}

// clockOffset is the server's clock minus the browser's, in milliseconds.
const clockOffset = Number(body.dataset.now || Date.now()) - Date.now();

// units are the page's words for them, which are not those of English on a Chinese page.
const [day, hour, minute, second, millisecond] = body.dataset.units.split(" ");

function duration(ms) {
  const units = [[86400000, day], [3600000, hour], [60000, minute], [1000, second]];
  if (ms < 1000) return Math.round(ms) + millisecond;
  if (ms < 10000) return Math.round(ms / 100) / 10 + second;
  for (let i = 0; i < units.length; i++) {
    const [size, name] = units[i];
    if (ms < size) continue;
    const smaller = units[i + 1];
    const whole = Math.floor(ms / size);
    const rest = smaller && !(i === 0 && whole >= 10) ? Math.floor((ms % size) / smaller[0]) : 0;
    return whole + name + (rest ? rest + smaller[1] : "");
  }
  return "";
}

function relate(within) {
  const now = Date.now() + clockOffset;
  for (const time of within.querySelectorAll("time[datetime]")) {
    const rel = time.querySelector(".rel");
    if (!rel) continue;
    const away = Date.parse(time.dateTime) - now;
    const pattern = text(Math.abs(away) < 500 ? "now" : away > 0 ? "in" : "ago");
    const words = pattern.replace("{d}", duration(Math.abs(away)));
    if (rel.textContent !== words) rel.textContent = words;
  }
}
setInterval(() => { if (!document.hidden) relate(document); }, 1000);

// --- Changing the page in place. Unchanged nodes stay, and with them focus, selection, typed text and open
// parts.

// alike reports whether node a can be changed into node b.
function alike(a, b) {
  if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName) return false;
  if (a.nodeType !== Node.ELEMENT_NODE) return true;
  return a.id === b.id && a.dataset.region === b.dataset.region && a.dataset.id === b.dataset.id;
}

function sync(from, to) {
  if (from.isEqualNode(to)) return;
  if (from.nodeType !== Node.ELEMENT_NODE) {
    from.nodeValue = to.nodeValue;
    return;
  }
  for (const { name } of [...from.attributes]) {
    const opened = name === "open" && /^(DETAILS|DIALOG)$/.test(from.nodeName);
    if (!to.hasAttribute(name) && !opened) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  if (from === document.activeElement && /^(INPUT|TEXTAREA|SELECT)$/.test(from.nodeName)) return;
  children(from, to);
}

// keyOf returns what identifies a node among its siblings, or an empty string.
function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE && (node.id || node.dataset.region || node.dataset.id) || "";
}

// children changes the children of from into copies of the children of to, and inserts or removes the rest. A
// node with a key that to still has is never removed.
function children(from, to) {
  let old = from.firstChild;
  const wanted = new Set([...to.childNodes].map(keyOf).filter(Boolean));
  for (const next of [...to.childNodes]) {
    wanted.delete(keyOf(next));
    let match = old;
    for (let tried = 0; match && tried < 60 && !alike(match, next) && !wanted.has(keyOf(match)); tried++) {
      match = match.nextSibling;
    }
    if (!match || !alike(match, next)) {
      from.insertBefore(next.cloneNode(true), old);
      continue;
    }
    while (old !== match) {
      const gone = old;
      old = old.nextSibling;
      gone.remove();
    }
    old = match.nextSibling;
    sync(match, next);
  }
  while (old) {
    const gone = old;
    old = old.nextSibling;
    gone.remove();
  }
}

function parse(html) {
  return new DOMParser().parseFromString(html, "text/html");
}

// --- The event stream, which sends an open page its changes.

let stream, watchdog, retry;
// streamed has the last HTML of each region, with the number of its event. The stream sends each change once.
let streamed = new Map(), events = 0;

// show updates a region to the HTML that the stream sent.
function show(region, html) {
  const old = document.querySelector(`[data-region="${region}"]`);
  if (!old) return;
  const next = old.cloneNode(false);
  next.innerHTML = html;
  children(old, next);
  relate(old);
}

function liveState(words) {
  const state = document.getElementById("livestate");
  if (!state) return;
  state.hidden = !words;
  if (state.textContent !== words) state.textContent = words;
  state.className = "livestate" + (words ? " off" : "");
}

function beat() {
  clearTimeout(watchdog);
  watchdog = setTimeout(() => { liveState(text("lost")); listen(); }, 90000);
}

function listen() {
  clearTimeout(retry);
  clearTimeout(watchdog);
  if (stream) stream.close();
  stream = null;
  streamed = new Map();
  const address = body.dataset.live;
  if (!address || document.hidden) return;
  stream = new EventSource(address);
  stream.onopen = () => beat();
  stream.onerror = () => {
    liveState(text("lost"));
    if (stream && stream.readyState === EventSource.CLOSED) retry = setTimeout(listen, 5000);
  };
  stream.addEventListener("regions", (event) => {
    beat();
    liveState("");
    events++;
    for (const { region, html } of JSON.parse(event.data)) {
      streamed.set(region, { html, event: events });
      show(region, html);
    }
  });
  stream.addEventListener("stale", () => { beat(); liveState(text("stale")); });
  stream.addEventListener("reload", () => location.reload());
  beat(); // detects a server that accepts the connection and never sends an event
}

document.addEventListener("visibilitychange", () => listen());
addEventListener("pagehide", () => { if (stream) stream.close(); });
addEventListener("pageshow", (event) => { if (event.persisted) listen(); });

// --- Loading pages in place.

function toast(words, kind) {
  const note = document.createElement("p");
  note.className = "toast " + kind;
  note.textContent = words;
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), 8000);
}

// turn changes the page into a fetched page. how says how its URL enters the history: "push", "replace", or
// not at all. since is the number of the last event before the request: later events can be newer than the
// fetched page.
function turn(page, address, how, since) {
  const flash = page.querySelector("[data-flash]");
  if (flash) {
    toast(flash.textContent, flash.classList.contains("bad") ? "bad" : "good");
    flash.remove();
    page.body.normalize(); // joins adjacent text nodes, which would match only one node of the page
  }
  document.title = page.title;
  const main = document.getElementById("main");
  children(main, page.getElementById("main"));
  relate(main);
  for (const around of [".menu", ".who"]) {
    const old = document.querySelector(around), next = page.querySelector(around);
    if (old && next) children(old, next);
  }
  if (how) history[how + "State"](null, "", address);
  const live = page.body.dataset.live || "";
  const moved = live !== (body.dataset.live || "");
  body.dataset.live = live;
  for (const form of main.querySelectorAll("form[data-go]")) {
    if (!form.contains(document.activeElement)) form.reset(); // drops typed text
  }
  wire(main);
  if (!moved) {
    for (const [region, { html, event }] of streamed) if (event > since) show(region, html);
  }
  if (!continueScan() && moved) listen();
  if (document.activeElement === body) main.focus();
}

// A list page that found no row yet continues the scan until a row is found, the list ends, 30 s have passed
// or the user does something else. A scan opens no event stream and adds no entries to the history.
let step, scanUntil = 0;

// continueScan loads the next page of a scan, and reports whether it does.
function continueScan() {
  const link = document.querySelector("#main a[data-continue]");
  if (!link) {
    scanUntil = 0;
    return false;
  }
  scanUntil ||= Date.now() + 30000;
  const on = Date.now() < scanUntil && !document.hidden;
  const stop = link.parentElement.querySelector("[data-stop]");
  const focused = [link, stop].includes(document.activeElement);
  stop.hidden = !on;
  link.hidden = on;
  if (focused) (on ? stop : link).focus();
  if (!on) {
    scanUntil = 0;
    return false;
  }
  if (stream) stream.close();
  stream = null;
  step = setTimeout(() => load(link.href, {}, "replace"), 50);
  return true;
}

// stopScan ends a scan at the present page.
function stopScan() {
  if (!scanUntil) return;
  clearTimeout(step);
  if (loading) loading.abort();
  scanUntil = 1; // a time in the past
  continueScan();
  listen();
}

let loading;

function go(address, options, how) {
  clearTimeout(step);
  scanUntil = 0;
  return load(address, options, how);
}

async function load(address, options, how) {
  if (loading) loading.abort();
  const mine = loading = new AbortController();
  const since = events;
  document.getElementById("main").setAttribute("aria-busy", "true");
  try {
    const response = await fetch(address, { ...options, signal: mine.signal, credentials: "same-origin" });
    const page = parse(await response.text());
    if (mine.signal.aborted) return; // a newer request replaced this one after its response arrived
    const landed = new URL(response.url);
    if (!page.getElementById("main") || landed.pathname === "/ui/sign-in") {
      location.assign(landed);
      return;
    }
    const elsewhere = landed.pathname !== location.pathname;
    turn(page, landed, how && (landed.href === location.href ? "replace" : how), since);
    if (elsewhere) document.getElementById("main").focus();
  } catch (error) {
    if (error.name !== "AbortError") {
      toast(text("failed"), "bad");
      stopScan();
    }
  } finally {
    if (loading === mine) document.getElementById("main").removeAttribute("aria-busy");
  }
}

addEventListener("popstate", () => go(location.href, {}));

// --- Actions: their forms open in a dialog.

let dialog, opener;

function close() {
  if (!dialog) return;
  dialog.remove();
  dialog = null;
  if (opener) (opener.isConnected ? opener : document.getElementById("main")).focus();
}

function ask(section) {
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.addEventListener("close", close);
    document.body.append(dialog);
  }
  section.querySelector("h1").id = "dialog-title";
  dialog.setAttribute("aria-labelledby", "dialog-title");
  dialog.replaceChildren(section);
  if (!dialog.open) dialog.showModal();
  const first = dialog.querySelector("[aria-invalid], input:not([type=hidden]), textarea, select, button");
  if (first) first.focus();
}

async function act(address) {
  try {
    const url = new URL(address, location.href);
    url.searchParams.set("back", location.pathname + location.search);
    const response = await fetch(url, { credentials: "same-origin" });
    const section = parse(await response.text()).querySelector("[data-act]");
    if (!section) {
      location.assign(address);
      return;
    }
    ask(section);
  } catch {
    location.assign(address);
  }
}

async function send(form, submitter) {
  const data = new URLSearchParams(new FormData(form, submitter));
  const action = (submitter && submitter.getAttribute("formaction")) || form.getAttribute("action");
  if (!data.has("back")) data.set("back", location.pathname + location.search);
  const inDialog = dialog && dialog.contains(form);
  if (!inDialog) {
    await go(action, { method: "POST", body: data }, "push");
    return;
  }
  const since = events;
  try {
    const options = { method: "POST", body: data, credentials: "same-origin" };
    const response = await fetch(action, options);
    const page = parse(await response.text());
    const section = page.querySelector("[data-act]");
    if (section) {
      ask(section);
      return;
    }
    close();
    if (new URL(response.url).pathname === "/ui/sign-in" || !page.getElementById("main")) {
      location.assign(response.url);
    } else {
      turn(page, response.url, response.url === location.href ? "replace" : "push", since);
    }
  } catch {
    toast(text("failed"), "bad");
  }
}

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest("a[data-go], a[data-ask], [data-close], button[data-copy], [data-stop]");
  if (!link) return;
  if ("stop" in link.dataset) {
    stopScan();
  } else if ("copy" in link.dataset) {
    const source = document.getElementById(link.dataset.copy);
    navigator.clipboard.writeText(source.textContent).then(() => toast(text("copied"), "good"), () => {
      getSelection().selectAllChildren(source);
    });
  } else if ("close" in link.dataset) {
    if (!dialog || !dialog.contains(link)) return;
    close();
  } else if ("ask" in link.dataset) {
    opener = link;
    stopScan();
    act(link.href);
  } else {
    go(link.href, {}, "continue" in link.dataset ? "replace" : "push");
  }
  event.preventDefault();
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method === "dialog") return;
  const inDialog = dialog && dialog.contains(form);
  if (form.method === "post" && (inDialog || "do" in form.dataset)) {
    event.preventDefault();
    send(form, event.submitter);
  } else if (form.method === "get" && "go" in form.dataset) {
    event.preventDefault();
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value !== "") query.append(name, value);
    const address = form.getAttribute("action") + (query.size ? "?" + query : "");
    go(address, {}, "push");
  }
});

// wire sets up a part of the page: copy buttons, and filters that apply on change.
function wire(within) {
  for (const button of within.querySelectorAll("[data-copy][hidden]")) button.hidden = false;
  for (const form of within.querySelectorAll("form[data-go]")) {
    for (const field of form.querySelectorAll("select, input[type=checkbox]")) {
      field.onchange = () => form.requestSubmit();
    }
  }
}

// --- Keys: "/" moves the focus to the search box.

document.addEventListener("keydown", (event) => {
  const search = document.getElementById("q");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!search || event.target.closest("input, textarea, select, dialog")) return;
  event.preventDefault();
  search.focus();
  search.select();
});

const current = document.querySelector(".menu [aria-current]");
if (current) current.scrollIntoView({ block: "nearest", inline: "center" });
wire(document);
relate(document);
if (!continueScan()) listen();
