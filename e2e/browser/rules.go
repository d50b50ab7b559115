package browser

// What is asked of every page, as a script that is evaluated in it. It judges what stands there at that moment, by what the browser has
// computed: colours as they are blended, places as they are laid out. It knows nothing of our pages.

// rulesBasis is what the rules are written with.
const rulesBasis = `
const findings = [];
const place = (e) => {
  if (!e || !e.localName) return "page";
  const path = [];
  for (let n = e; n && n !== document.body && path.length < 4; n = n.parentElement) {
    path.unshift(n.localName + (n.id ? "#" + n.id : [...n.classList].map((c) => "." + c).join("")));
    if (n.id) break;
  }
  const text = (e.textContent || e.value || "").replace(/\s+/g, " ").trim();
  return path.join(" > ") + (text ? " “" + text.slice(0, 40) + "”" : "");
};
const report = (rule, e, say) => findings.push({ Rule: rule, At: place(e), Say: say });
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const modal = document.querySelector("dialog[open]");
// What a query of its container hides has no place, although it counts as visible.
const shown = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && !clipped(e) && (!modal || modal.contains(e)) &&
  (e.getClientRects().length > 0 || getComputedStyle(e).display === "contents");
// clipped: it is there for those who listen alone.
const clippedBefore = new Map();
const clipped = (e) => {
  if (!e || e === document.documentElement) return false;
  if (!clippedBefore.has(e)) {
    const s = getComputedStyle(e), r = e.getBoundingClientRect();
    clippedBefore.set(e, s.clipPath === "inset(50%)" || s.overflow === "hidden" && r.width <= 1 && r.height <= 1 || clipped(e.parentElement));
  }
  return clippedBefore.get(e);
};

// Colours are read by painting one pixel: the browser knows all the ways to write one.
const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
const coloursBefore = new Map();
const colour = (css) => {
  if (!coloursBefore.has(css)) {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = css;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    coloursBefore.set(css, [r, g, b, a / 255]);
  }
  return coloursBefore.get(css);
};
const over = (top, below, strength = 1) => {
  const a = top[3] * strength;
  return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a)).concat(1);
};
const light = (c) => {
  const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [hi, lo] = [light(a), light(b)].sort((x, y) => y - x);
  return (hi + 0.05) / (lo + 0.05);
};
// ground is what an element is painted on, with its own background or without.
const ground = (e, own = true) => {
  const layers = [];
  for (let n = own ? e : e.parentElement; n; n = n.parentElement) {
    const s = getComputedStyle(n);
    if (s.backgroundImage !== "none") report("picture", n, "its background is a picture, so that nobody can say what text on it looks like");
    const c = colour(s.backgroundColor);
    if (c[3] > 0) layers.push([c, Number(s.opacity)]);
    if (c[3] === 1 && Number(s.opacity) === 1) break;
  }
  return layers.reverse().reduce((below, [c, strength]) => over(c, below, strength), [255, 255, 255, 1]);
};
// drawn is what an element inside of a drawing is painted on: the shapes before it that lie under a point.
const drawn = (e, x, y) => {
  const svg = e.ownerSVGElement || e;
  let below = ground(svg);
  for (const shape of all("path, rect, circle, ellipse, polygon, polyline", svg)) {
    if (!(shape.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING) || !shape.checkVisibility()) continue;
    const s = getComputedStyle(shape), c = s.fill === "none" ? [0, 0, 0, 0] : colour(s.fill);
    if (c[3] === 0 || Number(s.fillOpacity) === 0) continue;
    const at = new DOMPoint(x, y).matrixTransform(shape.getScreenCTM().inverse());
    if (shape.isPointInFill(at)) below = over(c, below, Number(s.fillOpacity) * Number(s.opacity));
  }
  return below;
};
const strength = (e) => {
  let a = 1;
  for (let n = e; n; n = n.parentElement) a *= Number(getComputedStyle(n).opacity);
  return a;
};
`

// rulesOfText judge what is written: its contrast, its size, and whether all of it can be seen.
const rulesOfText = `
const lines = []; // every line of text that is seen: where it is, and whose it is
const judgeText = (e, css, below, size, weight, what) => {
  const large = size >= 24 || size >= 18.66 && weight >= 700;
  const ratio = contrast(over(colour(css), below, strength(e)), below);
  if (ratio < (large ? 3 : 4.5)) {
    report("contrast", e, what + " " + ratio.toFixed(2) + ":1, wanted " + (large ? 3 : 4.5) + ":1 (" + css + " on rgb(" + below.slice(0, 3).map(Math.round) + "))");
  }
  if (size < 11) report("small", e, what + " is " + size.toFixed(1) + " px high");
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const range = document.createRange();
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const e = node.parentElement;
  if (!node.data.trim() || /^(script|style|title|desc|option|noscript|textarea)$/i.test(e.localName) || !shown(e) || e.closest(":disabled")) continue;
  range.selectNodeContents(node);
  const rects = [...range.getClientRects()].filter((r) => r.width > 1 && r.right > 0 && r.bottom + scrollY > 0);
  if (rects.length === 0) continue;
  for (const r of rects) lines.push({ e, r, text: node.data.trim() });
  const s = getComputedStyle(e), r = rects[0];
  if (e.ownerSVGElement) {
    const ctm = e.getScreenCTM(), scale = ctm ? Math.hypot(ctm.c, ctm.d) : 1;
    judgeText(e, s.fill, drawn(e, r.x + r.width / 2, r.y + r.height / 2), parseFloat(s.fontSize) * scale, Number(s.fontWeight), "text in a drawing has");
  } else {
    judgeText(e, s.color, ground(e), parseFloat(s.fontSize), Number(s.fontWeight), "text has");
  }
}
for (const e of all("body *")) {
  if (!shown(e)) continue;
  for (const pseudo of ["::before", "::after"]) {
    const s = getComputedStyle(e, pseudo);
    if (/^"?\s*"?$|^none$|^normal$/.test(s.content)) continue;
    judgeText(e, s.color, ground(e), parseFloat(s.fontSize), Number(s.fontWeight), "text before or after it has");
  }
}
for (const e of all("input:not([type=hidden]):not([type=checkbox]):not([type=radio]), textarea, select")) {
  if (!shown(e)) continue;
  const s = getComputedStyle(e), below = ground(e), around = ground(e, false);
  judgeText(e, s.color, below, parseFloat(s.fontSize), Number(s.fontWeight), "what is typed has");
  if (e.placeholder) judgeText(e, getComputedStyle(e, "::placeholder").color, below, parseFloat(s.fontSize), Number(s.fontWeight), "its suggestion has");
  const edge = contrast(over(colour(s.borderTopColor), around), around);
  if (edge < 3 && contrast(below, around) < 3) report("edge", e, "one cannot see where it is: its edge has " + edge.toFixed(2) + ":1, wanted 3:1");
}
// Cut: beyond what hides it, without a way to scroll there.
for (const { e, r, text } of lines) {
  for (let n = e; n && n !== document.body; n = n.parentElement) {
    const s = getComputedStyle(n);
    if (s.overflowX === "visible" && s.overflowY === "visible") continue;
    const box = n.getBoundingClientRect();
    const cut = (flow, low, high, min, max) => (flow === "hidden" || flow === "clip") && (low < min - 2 || high > max + 2);
    if (n.localName === "svg" && (r.left < box.left - 2 || r.right > box.right + 2 || r.top < box.top - 2 || r.bottom > box.bottom + 2) && s.overflow !== "visible" ||
        cut(s.overflowX, r.left, r.right, box.left, box.right) || cut(s.overflowY, r.top, r.bottom, box.top, box.bottom)) {
      report("cut", e, "“" + text.slice(0, 40) + "” is cut off by " + place(n));
      break;
    }
    if (/auto|scroll/.test(s.overflowX + s.overflowY)) break;
  }
}
// Spilled: beyond the edge of what is drawn around it.
const edged = (n) => {
  const s = getComputedStyle(n);
  return s.position !== "absolute" && n.localName !== "svg" && (parseFloat(s.borderRightWidth) > 0 && s.borderRightStyle !== "none" || s.boxShadow !== "none");
};
for (const { e, r, text } of lines) {
  for (let n = e; n && n !== document.body && !n.ownerSVGElement; n = n.parentElement) {
    const box = n.getBoundingClientRect();
    if (edged(n) && (r.right > box.right + 2 || r.left < box.left - 2)) {
      report("spill", e, "“" + text.slice(0, 40) + "” goes beyond the edge of " + place(n));
      break;
    }
    if (/auto|scroll/.test(getComputedStyle(n).overflowX)) break;
  }
}
// Overlapping: two lines in the same place, which neither can be read.
const layer = (e) => { for (let n = e; n; n = n.parentElement) if (/fixed|sticky|absolute/.test(getComputedStyle(n).position)) return n; return null; };
// inView is the part of a line that is not scrolled away.
const inView = (e, r) => {
  let v = { left: r.left, right: r.right, top: r.top, bottom: r.bottom, height: r.height };
  for (let n = e; n && n !== document.body; n = n.parentElement) {
    const s = getComputedStyle(n);
    if (s.overflowX === "visible" && s.overflowY === "visible") continue;
    const box = n.getBoundingClientRect();
    v = { ...v, left: Math.max(v.left, box.left), right: Math.min(v.right, box.right), top: Math.max(v.top, box.top), bottom: Math.min(v.bottom, box.bottom) };
  }
  return v;
};
const placed = lines.slice(0, 1500).map((l) => ({ ...l, r: inView(l.e, l.r), layer: layer(l.e) })).filter((l) => l.r.right > l.r.left && l.r.bottom > l.r.top);
for (let i = 0; i < placed.length; i++) {
  for (let j = i + 1; j < placed.length; j++) {
    const a = placed[i], b = placed[j];
    if (a.layer !== b.layer) continue;
    const w = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left), h = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
    if (w > 2 && h > 0.4 * Math.min(a.r.height, b.r.height)) report("overlap", a.e, "“" + a.text.slice(0, 30) + "” lies over “" + b.text.slice(0, 30) + "”");
  }
}
// Wider than the window.
const root = document.scrollingElement, main = document.querySelector("main");
if (root.scrollWidth > root.clientWidth) {
  const wide = all("body *").filter((e) => e.getBoundingClientRect().right > root.clientWidth + 1 && shown(e));
  report("wide", wide[wide.length - 1], "the page is " + root.scrollWidth + " px wide in a window of " + root.clientWidth);
}
if (main && main.scrollWidth > main.clientWidth + 1) report("wide", main, "its content is " + main.scrollWidth + " px wide in " + main.clientWidth);
`

// rulesOfParts judge what a page is made of: what a screen reader is told, and what can be hit with a finger.
const rulesOfParts = `
const html = document.documentElement;
if (!/^[a-z]{2}(-[A-Za-z]+)*$/.test(html.lang)) report("lang", html, "lang is " + html.lang);
if (!document.title.trim()) report("title", html, "it has none");
if (/user-scalable\s*=\s*(no|0)|maximum-scale/.test((document.querySelector("meta[name=viewport]") || {}).content || "")) report("zoom", html, "one cannot zoom");
const ids = new Map();
for (const e of all("[id]")) {
  if (ids.has(e.id)) report("id", e, "there is another " + e.id);
  if (!e.id || /\s/.test(e.id)) report("id", e, "its id cannot be meant");
  ids.set(e.id, e);
}
for (const name of ["for", "aria-labelledby", "aria-describedby", "aria-controls", "aria-owns", "aria-errormessage", "headers", "list"]) {
  for (const e of all("[" + name + "]")) {
    for (const id of e.getAttribute(name).split(/\s+/)) {
      if (!ids.has(id)) report("reference", e, name + " names " + id + ", which is not there");
      else if (name === "for" && !ids.get(id).matches("input, select, textarea, output, button, meter, progress")) report("label", e, "its " + id + " cannot have a label");
    }
  }
}
for (const e of all("label:not([for])")) if (!e.control) report("label", e, "it labels nothing");
for (const e of all("main, [role=main]").filter(shown).slice(1)) report("main", e, "there is more than one main");
if (!modal && all("main").length !== 1) report("main", html, all("main").length + " of them");
const navs = new Map();
for (const e of all("nav, [role=navigation], aside, [role=region]").filter(shown)) {
  const name = e.getAttribute("aria-label") || (ids.get(e.getAttribute("aria-labelledby")) || {}).textContent || "";
  if (!name.trim()) report("landmark", e, "it has no label");
  if (navs.has(name)) report("landmark", e, "another one has the same label, " + name);
  navs.set(name, e);
}
let level = 0;
const headings = all("h1, h2, h3, h4, h5, h6").filter((e) => shown(e) || clipped(e) && e.checkVisibility());
const within = modal ? headings.filter((e) => modal.contains(e)) : headings;
if (within.filter((e) => e.localName === "h1").length !== 1) report("heading", html, within.filter((e) => e.localName === "h1").length + " h1");
for (const e of within) {
  const is = Number(e.localName[1]);
  if (is > level + 1) report("heading", e, "h" + is + " comes after h" + level);
  if (!e.textContent.trim()) report("heading", e, "it says nothing");
  level = is;
}
const roles = "alert alertdialog application article banner button cell checkbox columnheader combobox complementary contentinfo definition dialog document feed figure form grid gridcell group heading img link list listbox listitem log main marquee math menu menubar menuitem meter navigation none note option presentation progressbar radio radiogroup region row rowgroup rowheader scrollbar search searchbox separator slider spinbutton status switch tab table tablist tabpanel term textbox timer toolbar tooltip tree treeitem".split(" ");
const children = { list: "listitem", table: "row, rowgroup", rowgroup: "row", row: "cell, columnheader, rowheader, gridcell", menu: "menuitem", menubar: "menuitem", tablist: "tab", listbox: "option", radiogroup: "radio", grid: "row, rowgroup", tree: "treeitem" };
for (const e of all("[role]")) {
  const role = e.getAttribute("role");
  if (!roles.includes(role)) report("role", e, role + " is no role");
  if (children[role] && !children[role].split(", ").some((c) => e.querySelector("[role=" + c + "]") || c === "row" && e.querySelector("tr") || c === "listitem" && e.querySelector("li"))) {
    report("role", e, role + " has no " + children[role]);
  }
}
const aria = /^aria-(activedescendant|atomic|autocomplete|busy|checked|controls|current|describedby|description|details|disabled|errormessage|expanded|haspopup|hidden|invalid|keyshortcuts|label|labelledby|level|live|modal|multiline|multiselectable|orientation|owns|placeholder|posinset|pressed|readonly|relevant|required|roledescription|rowcount|rowindex|selected|setsize|sort|valuemax|valuemin|valuenow|valuetext)$/;
for (const e of all("*")) {
  for (const { name, value } of e.attributes) {
    if (name.startsWith("aria-") && !aria.test(name)) report("aria", e, name + " is no attribute");
    if (name === "aria-label" && !value.trim()) report("aria", e, "its label is empty");
    if (name.startsWith("on") || name === "style") report("inline", e, name + "=" + value);
    if (name === "tabindex" && Number(value) > 0) report("tabindex", e, "tabindex " + value);
    if (/^(href|src|action|formaction)$/.test(name) && /^\s*(javascript|data|vbscript):/i.test(value)) report("scheme", e, name + "=" + value.slice(0, 60));
  }
}
const interactive = "a[href], button, input:not([type=hidden]), select, textarea, summary, [role=button], [role=link], [role=checkbox]";
for (const e of all("[aria-hidden=true]")) {
  if (e.matches(interactive) || e.querySelector(interactive)) report("hidden", e, "it is hidden from those who listen, and can be focused");
}
for (const e of all(interactive)) {
  const outer = e.parentElement.closest("a[href], button, summary, label");
  if (outer && !outer.matches("label")) report("nested", e, "it stands in " + place(outer));
}
for (const e of all("ul > *, ol > *")) if (!/^(li|script|template)$/.test(e.localName)) report("list", e, e.localName + " stands in a list");
for (const e of all("li")) if (!e.parentElement.matches("ul, ol, menu, [role=list]")) report("list", e, "li stands in " + e.parentElement.localName);
for (const e of all("dl > *, dl > div > *")) {
  if (!/^(dt|dd|script|template)$/.test(e.localName) && !(e.localName === "div" && e.parentElement.localName === "dl")) report("list", e, e.localName + " stands in a dl");
}
for (const e of all("dt, dd")) if (!e.parentElement.matches("dl, dl > div")) report("list", e, e.localName + " stands in no dl");
for (const e of all("table")) {
  if (!(e.caption && e.caption.textContent.trim()) && !e.getAttribute("aria-label") && !e.getAttribute("aria-labelledby")) report("table", e, "it has no caption");
  const heads = all("th", e);
  if (heads.length === 0) report("table", e, "it has no th");
  for (const th of heads) {
    if (!th.scope) report("table", th, "it has no scope");
    if (!th.textContent.trim() && !th.getAttribute("aria-label")) report("table", th, "a column without a name");
  }
}
for (const e of all("details")) if (!e.firstElementChild || e.firstElementChild.localName !== "summary") report("details", e, "it has no summary");
for (const e of all("img:not([alt])")) report("image", e, "it has no alt");
for (const e of all("svg")) {
  const role = e.getAttribute("role"), named = e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.querySelector(":scope > title");
  if (role === "img" && !named) report("image", e, "a drawing without a name");
  if (!role && !named && !e.closest("[aria-hidden=true], [role=img]")) report("image", e, "a drawing that is neither named nor hidden from those who listen");
}
for (const e of all("iframe, object, embed, [target=_blank]:not([rel~=noopener])")) report("foreign", e, e.localName);
for (const e of all("time")) if (Number.isNaN(Date.parse(e.dateTime))) report("time", e, "datetime is " + e.dateTime);
// A custom property that is not there leaves its shapes black and its borders away.
for (const sheet of document.styleSheets) {
  const walk = (list) => {
    for (const rule of list) {
      if (rule.cssRules && rule.cssRules.length) walk(rule.cssRules);
      if (!rule.selectorText || !rule.style) continue;
      for (const [, name] of rule.style.cssText.matchAll(/var\((--[\w-]+)\)/g)) {
        let e = null;
        try { e = document.querySelector(rule.selectorText.replace(/::[\w-]+/g, "")); } catch { continue; }
        if (e && getComputedStyle(e).getPropertyValue(name).trim() === "") report("variable", e, rule.selectorText + " uses " + name + ", which is not there");
      }
    }
  };
  walk(sheet.cssRules);
}
// Targets of a finger: 24 px, unless they stand in a sentence or have as much room around them.
const targets = all(interactive).filter((e) => shown(e) && !e.disabled && e.getClientRects().length && e.getBoundingClientRect().right > 0).map((e) => {
  const rects = [e.getBoundingClientRect(), ...(e.matches("[type=checkbox], [type=radio]") ? [...e.labels].map((l) => l.getBoundingClientRect()) : [])];
  const r = { left: Math.min(...rects.map((r) => r.left)), right: Math.max(...rects.map((r) => r.right)), top: Math.min(...rects.map((r) => r.top)), bottom: Math.max(...rects.map((r) => r.bottom)) };
  return { e, r, x: (r.left + r.right) / 2, y: (r.top + r.bottom) / 2, small: r.right - r.left < 23.5 || r.bottom - r.top < 23.5 };
});
for (const t of targets) {
  if (!t.small) continue;
  if (getComputedStyle(t.e).display === "inline") {
    let block = t.e.parentElement;
    while (/^(inline|contents)/.test(getComputedStyle(block).display)) block = block.parentElement;
    if (block.innerText.trim().length > t.e.innerText.trim().length + 1) continue;
  }
  for (const o of targets) {
    if (o === t || o.e.contains(t.e) || t.e.contains(o.e)) continue;
    const dx = Math.max(o.r.left - t.x, 0, t.x - o.r.right), dy = Math.max(o.r.top - t.y, 0, t.y - o.r.bottom);
    const near = o.small ? Math.hypot(o.x - t.x, o.y - t.y) < 24 : Math.hypot(dx, dy) < 12;
    if (near) {
      report("target", t.e, Math.round(t.r.right - t.r.left) + "×" + Math.round(t.r.bottom - t.r.top) + " px, too near to " + place(o.e));
      break;
    }
  }
}
`

// rules are all of them, as one expression.
const rules = "(() => {" + rulesBasis + rulesOfText + rulesOfParts + "return findings; })()"
