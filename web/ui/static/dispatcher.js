// What HTML cannot do: pages that stay up to date, filters and acts without loading the page anew, acts in a dialog, copying. Everything
// works without this file; it only ever asks for pages that links and forms of the page name.
"use strict";

const body = document.body;
const text = (name) => body.dataset["text" + name[0].toUpperCase() + name.slice(1)] || "";

// --- Times: the zone that the browser is in, and how long ago things were.

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone) {
  for (const input of document.querySelectorAll("input[type=hidden][data-zone]")) input.value = zone;
  const name = body.dataset.askZone;
  if (name) {
    const path = name.startsWith("__Host-") ? "/" : "/ui"; // a browser takes that name with no other path
    const rest = "max-age=31536000; samesite=lax" + (location.protocol === "https:" ? "; secure" : "");
    document.cookie = `${name}=${encodeURIComponent(zone)}; path=${path}; ${rest}`;
  }
}

const ahead = Number(body.dataset.now || Date.now()) - Date.now(); // of this machine's clock

function duration(ms) {
  const units = [[86400000, "d"], [3600000, "h"], [60000, "m"], [1000, "s"]];
  if (ms < 1000) return Math.round(ms) + "ms";
  if (ms < 10000) return Math.round(ms / 100) / 10 + "s";
  for (let i = 0; i < units.length; i++) {
    const [size, name] = units[i];
    if (ms < size) continue;
    const smaller = units[i + 1];
    const whole = Math.floor(ms / size);
    const rest = smaller && !(name === "d" && whole >= 10) ? Math.floor((ms % size) / smaller[0]) : 0;
    return whole + name + (rest ? rest + smaller[1] : "");
  }
  return "";
}

function relate(within) {
  const now = Date.now() + ahead;
  for (const time of within.querySelectorAll("time[datetime]")) {
    const rel = time.querySelector(".rel");
    if (!rel) continue;
    const away = Date.parse(time.dateTime) - now;
    const words = Math.abs(away) < 500 ? text("now") : text(away > 0 ? "in" : "ago").replace("{d}", duration(Math.abs(away)));
    if (rel.textContent !== words) rel.textContent = words;
  }
}
setInterval(() => { if (!document.hidden) relate(document); }, 1000);

// --- Changing the page in place: what is the same stays, so that focus, selection and what was typed or opened stay too.

// alike says whether one node can become the other.
function alike(a, b) {
  if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName) return false;
  return a.nodeType !== Node.ELEMENT_NODE || a.id === b.id && a.dataset.region === b.dataset.region && a.dataset.id === b.dataset.id;
}

function sync(from, to) {
  if (from.isEqualNode(to)) return;
  if (from.nodeType !== Node.ELEMENT_NODE) {
    from.nodeValue = to.nodeValue;
    return;
  }
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && !(name === "open" && /^(DETAILS|DIALOG)$/.test(from.nodeName))) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  if (from === document.activeElement && /^(INPUT|TEXTAREA|SELECT)$/.test(from.nodeName)) return;
  children(from, to);
}

// named is what tells a node from its siblings, or nothing.
function named(node) {
  return node.nodeType === Node.ELEMENT_NODE && (node.id || node.dataset.region || node.dataset.id) || "";
}

// children makes the one's children what the other's are. What is new is put in, what is gone is taken out, and the rest stays where it is:
// nothing that has a name and is still wanted is taken out for the sake of something else.
function children(from, to) {
  let old = from.firstChild;
  const wanted = new Set([...to.childNodes].map(named).filter(Boolean));
  for (const next of [...to.childNodes]) {
    wanted.delete(named(next));
    let match = old;
    for (let looked = 0; match && looked < 60 && !alike(match, next) && !wanted.has(named(match)); looked++) match = match.nextSibling;
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

// --- The stream by which an open page is told what has changed.

let stream, watchdog, retry;
// The last HTML that the stream sent for each region, and the number of that event. It sends a change only once.
let told = new Map(), events = 0;

// show makes a region what the stream says that it is.
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
  told = new Map();
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
      told.set(region, { html, event: events });
      show(region, html);
    }
  });
  stream.addEventListener("stale", () => { beat(); liveState(text("stale")); });
  stream.addEventListener("reload", () => location.reload());
  beat(); // also a server that takes the connection and never answers is noticed
}

document.addEventListener("visibilitychange", () => listen());
addEventListener("pagehide", () => { if (stream) stream.close(); });
addEventListener("pageshow", (event) => { if (event.persisted) listen(); });

// --- Loading pages without loading them anew.

function toast(words, kind) {
  const note = document.createElement("p");
  note.className = "toast " + kind;
  note.textContent = words;
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), 8000);
}

// turn makes the page what a fetched one is. Its address is written down as how says: "push", "replace", or not at
// all. since is the last event of the stream before the request: a later event may be newer than the page.
function turn(page, address, how, since) {
  const flash = page.querySelector("[data-flash]");
  if (flash) {
    toast(flash.textContent, flash.classList.contains("bad") ? "bad" : "good");
    flash.remove();
    page.body.normalize(); // two texts side by side would be compared with one
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
    if (!form.contains(document.activeElement)) form.reset(); // to what the page says, whatever was typed before
  }
  wire(main);
  if (!moved) for (const [region, { html, event }] of told) if (event > since) show(region, html);
  if (!lookOn() && moved) listen();
  if (document.activeElement === body) main.focus();
}

// Where nothing was found so far, the page looks on by itself: until something is found, all was looked through, half a minute is over, or
// somebody does something else. It goes from place to place without a stream, and without a trace in the history.
let step, lookUntil = 0;

function lookOn() {
  const link = document.querySelector("#main a[data-lookon]");
  if (!link) {
    lookUntil = 0;
    return false;
  }
  lookUntil ||= Date.now() + 30000;
  const on = Date.now() < lookUntil && !document.hidden;
  const stop = link.parentElement.querySelector("[data-stop]");
  const focused = [link, stop].includes(document.activeElement);
  stop.hidden = !on;
  link.hidden = on;
  if (focused) (on ? stop : link).focus();
  if (!on) {
    lookUntil = 0;
    return false;
  }
  if (stream) stream.close();
  stream = null;
  step = setTimeout(() => load(link.href, {}, "replace"), 50);
  return true;
}

// stopLooking leaves the page where it is.
function stopLooking() {
  if (!lookUntil) return;
  clearTimeout(step);
  if (loading) loading.abort();
  lookUntil = 1; // which is over
  lookOn();
  listen();
}

let loading;

function go(address, options, how) {
  clearTimeout(step);
  lookUntil = 0;
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
    if (mine.signal.aborted) return; // it had come already, and is not wanted any more
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
      stopLooking();
    }
  } finally {
    if (loading === mine) document.getElementById("main").removeAttribute("aria-busy");
  }
}

addEventListener("popstate", () => go(location.href, {}));

// --- Acts: the form that asks is shown in a dialog.

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
  if (!data.has("back")) data.set("back", location.pathname + location.search);
  const inDialog = dialog && dialog.contains(form);
  if (!inDialog) {
    await go(form.getAttribute("action"), { method: "POST", body: data }, "push");
    return;
  }
  const since = events;
  try {
    const response = await fetch(form.getAttribute("action"), { method: "POST", body: data, credentials: "same-origin" });
    const page = parse(await response.text());
    const section = page.querySelector("[data-act]");
    if (section) {
      ask(section);
      return;
    }
    close();
    if (new URL(response.url).pathname === "/ui/sign-in" || !page.getElementById("main")) location.assign(response.url);
    else turn(page, response.url, response.url === location.href ? "replace" : "push", since);
  } catch {
    toast(text("failed"), "bad");
  }
}

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest("a[data-go], a[data-ask], [data-close], button[data-copy], [data-stop]");
  if (!link) return;
  if ("stop" in link.dataset) {
    stopLooking();
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
    stopLooking();
    act(link.href);
  } else {
    go(link.href, {}, "lookon" in link.dataset ? "replace" : "push");
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

// wire adds what a part of the page needs beyond listening at the document.
function wire(within) {
  for (const button of within.querySelectorAll("[data-copy][hidden]")) button.hidden = false;
  for (const form of within.querySelectorAll("form[data-go]")) {
    for (const field of form.querySelectorAll("select, input[type=checkbox]")) field.onchange = () => form.requestSubmit();
  }
}

// --- Keys: "/" searches.

document.addEventListener("keydown", (event) => {
  const search = document.getElementById("q");
  if (event.key === "/" && search && !event.target.closest("input, textarea, select, dialog") && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    search.focus();
    search.select();
  }
});

const current = document.querySelector(".menu [aria-current]");
if (current) current.scrollIntoView({ block: "nearest", inline: "center" });
wire(document);
relate(document);
if (!lookOn()) listen();
