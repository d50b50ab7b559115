// What is asked of every page. It judges what stands there at that moment, by what the browser has computed: colours as
// they are blended, places as they are laid out. It knows nothing of our pages. Each evaluation has all of this file in a
// function of its own.

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

// judgeTexts judges what is written: its contrast, its size, and whether all of it can be seen.
const judgeTexts = () => {
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
};

// judgeParts judges what a page is made of: what a screen reader is told, and what can be hit with a finger.
const judgeParts = () => {
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
};

// rules are all of them.
const rules = () => {
  judgeTexts();
  judgeParts();
  return findings;
};

// watchFocus lists what can be reached, and notes where the focus goes from now on. Tab goes on from where the last click
// was, also when nothing has the focus. So it starts from an element that comes before all others, and is taken out when
// Tab has left it.
const watchFocus = () => {
  const scrolls = (e) => { const s = getComputedStyle(e); return /auto|scroll/.test(s.overflowX + s.overflowY) && (e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight); };
  const reach = all("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex], *", modal || document.body).filter((e) =>
    e.checkVisibility({ visibilityProperty: true }) && !e.disabled && (
      e.matches("a[href], button, input:not([type=hidden]), select, textarea, [tabindex]:not([tabindex='-1'])") && e.tabIndex >= 0 ||
      e.localName === "summary" && e.parentElement.localName === "details" ||
      scrolls(e) && e.tabIndex < 0 && e.getAttribute("tabindex") === null && !e.querySelector("a[href], button, input, select, textarea, summary, [tabindex]")));
  const looks = (e) => { const s = getComputedStyle(e); return [s.borderColor, s.boxShadow, s.backgroundColor, s.textDecorationLine].join("|"); };
  const before = new Map(reach.map((e) => [e, looks(e)])), names = reach.map((e, i) => i + " " + place(e));
  const went = [], unseen = [], start = document.createElement("span");
  addEventListener("focusin", (event) => {
    const e = event.target, i = reach.indexOf(e), name = i < 0 ? "not expected: " + place(e) : names[i];
    if (e === start || went[went.length - 1] === name) return;
    went.push(name);
    const s = getComputedStyle(e);
    const outlined = s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1;
    if (!outlined && looks(e) === before.get(e)) unseen.push(place(e) + ": nothing shows that it has the focus");
    else if (outlined && s.outlineStyle !== "auto" && contrast(over(colour(s.outlineColor), ground(e, false)), ground(e, false)) < 3) {
      unseen.push(place(e) + ": what shows the focus has " + contrast(over(colour(s.outlineColor), ground(e, false)), ground(e, false)).toFixed(2) + ":1, wanted 3:1");
    }
  }, true);
  start.tabIndex = 1;
  start.addEventListener("blur", () => start.remove());
  document.body.prepend(start);
  start.focus();
  getSelection().removeAllRanges();
  scrollTo(0, 0);
  window.__walk = { reach, names, went, unseen, place };
  return reach.length;
};

// walked is what was noted. What has the focus must not lie under what stands fixed, when one comes from below.
const walked = () => {
  const { reach, names, went, unseen, place } = window.__walk;
  const hidden = [], steps = [...went];
  for (const e of [...reach].reverse()) {
    if (!e.isConnected || !e.checkVisibility()) continue;
    e.focus();
    const r = e.getClientRects()[0];
    if (!r) continue;
    const seen = [[.5, .5], [.05, .5], [.95, .5], [.5, .1], [.5, .9]].some(([x, y]) => {
      const top = document.elementFromPoint(Math.min(Math.max(r.x + r.width * x, 0), innerWidth - 1), Math.min(Math.max(r.y + r.height * y, 0), innerHeight - 1));
      return top && (e.contains(top) || top.contains(e));
    });
    if (!seen) hidden.push(place(e) + ": it lies under something when it has the focus");
  }
  return { Want: names, Went: steps, Unseen: unseen, Hidden: hidden };
};

// harmful lists what is in a page that should not be, whatever texts it shows.
const harmful = () => {
  const wrong = [];
  if (window.__pwned !== undefined) wrong.push("a script has run: " + window.__pwned);
  for (const e of document.querySelectorAll("img, iframe, object, embed, base, style, script:not([src]), [autofocus]:not(#key), svg[onload]")) wrong.push(e.outerHTML.slice(0, 200));
  for (const e of document.querySelectorAll("script[src], link[href]")) if (new URL(e.src || e.href).origin !== location.origin) wrong.push(e.outerHTML);
  for (const e of document.querySelectorAll("a[href], form[action]")) if (!/^https?:$/.test(new URL(e.href || e.action, location).protocol)) wrong.push(e.outerHTML.slice(0, 200));
  if (document.querySelectorAll("main").length !== 1 || document.querySelectorAll("[data-region=banner]").length !== 1) wrong.push("the page is no longer what it was");
  // A text that turns the direction around must not turn what stands beside it.
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walker.nextNode(); n; n = walker.nextNode()) {
    if (!/[\u202a-\u202e\u2066-\u2069]/.test(n.data)) continue;
    let e = n.parentElement;
    while (/^(inline|contents)$/.test(getComputedStyle(e).display) && !/isolate|plaintext/.test(getComputedStyle(e).unicodeBidi)) e = e.parentElement;
    if (/isolate|plaintext/.test(getComputedStyle(e).unicodeBidi) || e.textContent.trim() === n.data.trim()) continue;
    wrong.push("it turns around what stands beside it: " + e.outerHTML.slice(0, 200));
  }
  return wrong;
};

// strangers lists what a page says in another language than its own, and does not mark as data: a text that was forgotten in
// a catalogue, or a key that is shown in its place. The words are those that are written alike in all languages.
const strangers = (words) => {
  const chinese = document.documentElement.lang === "zh-CN", alike = new Set(words);
  const found = new Set();
  const look = (said, e) => {
    const text = said.replace(/https?:\S+/g, "").replace(/refund-\d+|order-\d+-\d+/g, ""); // addresses and the scene's references
    if (e.closest("[translate=no], pre, code, q, textarea") || e.closest("[lang]").lang !== document.documentElement.lang) return;
    if (/\b[a-z_]+\.[a-z_.]+[a-z]\b/.test(text) && !/\d/.test(text)) found.add("a key? " + text.trim());
    const foreign = chinese ? (text.match(/[A-Za-z][A-Za-z-]{2,}/g) || []).filter((w) => !alike.has(w)) : text.match(/[\u3000-\u9fff]+/g) || [];
    if (foreign.length) found.add(foreign.join(" ") + " in “" + text.trim().slice(0, 80) + "”");
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walker.nextNode(); n; n = walker.nextNode()) if (n.data.trim()) look(n.data, n.parentElement);
  for (const e of document.querySelectorAll("[aria-label], [title], [placeholder], [alt]")) {
    for (const name of ["aria-label", "title", "placeholder", "alt"]) if (e.getAttribute(name)) look(e.getAttribute(name), e);
  }
  look(document.title.replace("Dispatcher", ""), document.querySelector("h1") || document.body);
  return [...found];
};
