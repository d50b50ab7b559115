// The rules that every page must keep. They check the page as it is at that moment, by what the browser
// computed: colours after blending, positions after layout. They know nothing about our pages. Each
// evaluation wraps this whole file in a function.

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
// visible reports whether an element can be seen. An element that a container query hides has no rectangles,
// although checkVisibility returns true.
const visible = (e) =>
  e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
  !clipped(e) &&
  (!modal || modal.contains(e)) &&
  (e.getClientRects().length > 0 || getComputedStyle(e).display === "contents");
const clippedBefore = new Map();
// clipped reports whether an element is clipped to nothing: only screen readers read it.
const clipped = (e) => {
  if (!e || e === document.documentElement) return false;
  if (!clippedBefore.has(e)) {
    const s = getComputedStyle(e);
    const r = e.getBoundingClientRect();
    clippedBefore.set(
      e,
      s.clipPath === "inset(50%)" ||
        (s.overflow === "hidden" && r.width <= 1 && r.height <= 1) ||
        clipped(e.parentElement),
    );
  }
  return clippedBefore.get(e);
};

const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
const painter = canvas.getContext("2d", { willReadFrequently: true });
const coloursBefore = new Map();
// colour returns a CSS colour as red, green, blue (0 to 255) and alpha (0 to 1). It paints one pixel and
// reads it back, because only the browser knows every notation.
const colour = (css) => {
  if (!coloursBefore.has(css)) {
    painter.clearRect(0, 0, 1, 1);
    painter.fillStyle = css;
    painter.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = painter.getImageData(0, 0, 1, 1).data;
    coloursBefore.set(css, [r, g, b, a / 255]);
  }
  return coloursBefore.get(css);
};
// over returns the colour of top, with an opacity, painted on below.
const over = (top, below, strength = 1) => {
  const a = top[3] * strength;
  return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a)).concat(1);
};
// light returns the relative luminance of WCAG.
const light = (c) => {
  const [r, g, b] = c.slice(0, 3).map((v) => {
    v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
// contrast returns the contrast ratio of WCAG, 1 to 21.
const contrast = (a, b) => {
  const [hi, lo] = [light(a), light(b)].sort((x, y) => y - x);
  return (hi + 0.05) / (lo + 0.05);
};
// ground returns the colour behind an element, with or without the element's own background.
const ground = (e, own = true) => {
  const layers = [];
  for (let n = own ? e : e.parentElement; n; n = n.parentElement) {
    const s = getComputedStyle(n);
    if (s.backgroundImage !== "none") {
      report("picture", n, "it has a background image, so the contrast of its text is unknown");
    }
    const c = colour(s.backgroundColor);
    if (c[3] > 0) layers.push([c, Number(s.opacity)]);
    if (c[3] === 1 && Number(s.opacity) === 1) break;
  }
  return layers.reverse().reduce((below, [c, strength]) => over(c, below, strength), [255, 255, 255, 1]);
};
// drawn returns the colour behind an element of an SVG at a point: the earlier shapes under that point.
const drawn = (e, x, y) => {
  const svg = e.ownerSVGElement || e;
  let below = ground(svg);
  for (const shape of all("path, rect, circle, ellipse, polygon, polyline", svg)) {
    const earlier = shape.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING;
    if (!earlier || !shape.checkVisibility()) continue;
    const s = getComputedStyle(shape);
    const c = s.fill === "none" ? [0, 0, 0, 0] : colour(s.fill);
    if (c[3] === 0 || Number(s.fillOpacity) === 0) continue;
    const at = new DOMPoint(x, y).matrixTransform(shape.getScreenCTM().inverse());
    if (shape.isPointInFill(at)) below = over(c, below, Number(s.fillOpacity) * Number(s.opacity));
  }
  return below;
};
// strength returns the opacity of an element, with that of its ancestors.
const strength = (e) => {
  let a = 1;
  for (let n = e; n; n = n.parentElement) a *= Number(getComputedStyle(n).opacity);
  return a;
};

// layer returns the positioned element that an element is drawn with, or null.
const layer = (e) => {
  for (let n = e; n; n = n.parentElement) {
    if (/fixed|sticky|absolute/.test(getComputedStyle(n).position)) return n;
  }
  return null;
};

// checkTexts checks the texts: contrast, size, and whether each can be seen in full.
const checkTexts = () => {
  const lines = []; // the visible lines of text: element, rectangle and text
  const checkText = (e, css, below, size, weight, what) => {
    const large = size >= 24 || (size >= 18.66 && weight >= 700);
    const ratio = contrast(over(colour(css), below, strength(e)), below);
    if (ratio < (large ? 3 : 4.5)) {
      const want = large ? 3 : 4.5;
      const on = "rgb(" + below.slice(0, 3).map(Math.round) + ")";
      const say = `the contrast of ${what} is ${ratio.toFixed(2)}:1, want ${want}:1 (${css} on ${on})`;
      report("contrast", e, say);
    }
    if (size < 11) report("small", e, what + " is " + size.toFixed(1) + " px high");
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement;
    if (
      !node.data.trim() ||
      /^(script|style|title|desc|option|noscript|textarea)$/i.test(e.localName) ||
      !visible(e) ||
      e.closest(":disabled")
    ) {
      continue;
    }
    range.selectNodeContents(node);
    const rects = [...range.getClientRects()].filter(
      (r) => r.width > 1 && r.right > 0 && r.bottom + scrollY > 0,
    );
    if (rects.length === 0) continue;
    for (const r of rects) lines.push({ e, r, text: node.data.trim() });
    const s = getComputedStyle(e);
    const r = rects[0];
    if (e.ownerSVGElement) {
      const ctm = e.getScreenCTM();
      const scale = ctm ? Math.hypot(ctm.c, ctm.d) : 1;
      const below = drawn(e, r.x + r.width / 2, r.y + r.height / 2);
      const size = parseFloat(s.fontSize) * scale;
      checkText(e, s.fill, below, size, Number(s.fontWeight), "text in a drawing");
    } else {
      checkText(e, s.color, ground(e), parseFloat(s.fontSize), Number(s.fontWeight), "text");
    }
  }
  for (const e of all("body *")) {
    if (!visible(e)) continue;
    for (const pseudo of ["::before", "::after"]) {
      const s = getComputedStyle(e, pseudo);
      if (/^"?\s*"?$|^none$|^normal$/.test(s.content)) continue;
      checkText(e, s.color, ground(e), parseFloat(s.fontSize), Number(s.fontWeight), "generated text");
    }
  }
  for (const e of all("input:not([type=hidden]):not([type=checkbox]):not([type=radio]), textarea, select")) {
    if (!visible(e)) continue;
    const s = getComputedStyle(e);
    const below = ground(e);
    const around = ground(e, false);
    checkText(e, s.color, below, parseFloat(s.fontSize), Number(s.fontWeight), "typed text");
    if (e.placeholder) {
      const css = getComputedStyle(e, "::placeholder").color;
      checkText(e, css, below, parseFloat(s.fontSize), Number(s.fontWeight), "the placeholder");
    }
    const edge = contrast(over(colour(s.borderTopColor), around), around);
    if (edge < 3 && contrast(below, around) < 3) {
      report("edge", e, "the contrast of its edge is " + edge.toFixed(2) + ":1, want 3:1");
    }
  }
  // A text that ends with an ellipsis is not cut if its title has all of it.
  const shortened = (n) => getComputedStyle(n).textOverflow === "ellipsis" && n.closest("[title]");
  const ellipsis = (e) =>
    e && (getComputedStyle(e).textOverflow === "ellipsis" || ellipsis(e.parentElement));
  // Cut: text outside of an ancestor that hides its overflow and does not scroll.
  for (const { e, r, text } of lines) {
    for (let n = e; n && n !== document.body; n = n.parentElement) {
      const s = getComputedStyle(n);
      if (s.overflowX === "visible" && s.overflowY === "visible") continue;
      if (shortened(n)) break;
      const box = n.getBoundingClientRect();
      const cut = (flow, low, high, min, max) =>
        (flow === "hidden" || flow === "clip") && (low < min - 2 || high > max + 2);
      const beyondX = r.left < box.left - 2 || r.right > box.right + 2;
      const beyondY = r.top < box.top - 2 || r.bottom > box.bottom + 2;
      if (
        (n.localName === "svg" && (beyondX || beyondY) && s.overflow !== "visible") ||
        cut(s.overflowX, r.left, r.right, box.left, box.right) ||
        cut(s.overflowY, r.top, r.bottom, box.top, box.bottom)
      ) {
        report("cut", e, "“" + text.slice(0, 40) + "” is cut off by " + place(n));
        break;
      }
      if (/auto|scroll/.test(s.overflowX + s.overflowY)) break;
    }
  }
  // Spilled: text beyond the border or shadow of an ancestor.
  const edged = (n) => {
    const s = getComputedStyle(n);
    const bordered = parseFloat(s.borderRightWidth) > 0 && s.borderRightStyle !== "none";
    return s.position !== "absolute" && n.localName !== "svg" && (bordered || s.boxShadow !== "none");
  };
  for (const { e, r, text } of lines) {
    for (let n = e; n && n !== document.body && !n.ownerSVGElement; n = n.parentElement) {
      if (shortened(n)) break;
      const box = n.getBoundingClientRect();
      if (edged(n) && (r.right > box.right + 2 || r.left < box.left - 2)) {
        report("spill", e, "“" + text.slice(0, 40) + "” goes beyond the edge of " + place(n));
        break;
      }
      if (/auto|scroll/.test(getComputedStyle(n).overflowX)) break;
    }
  }
  // Overlapping: two lines of text in the same place.
  // inView returns the part of a line that is scrolled into view.
  const inView = (e, r) => {
    let v = { left: r.left, right: r.right, top: r.top, bottom: r.bottom, height: r.height };
    for (let n = e; n && n !== document.body; n = n.parentElement) {
      const s = getComputedStyle(n);
      if (s.overflowX === "visible" && s.overflowY === "visible") continue;
      const box = n.getBoundingClientRect();
      v = {
        ...v,
        left: Math.max(v.left, box.left),
        right: Math.min(v.right, box.right),
        top: Math.max(v.top, box.top),
        bottom: Math.min(v.bottom, box.bottom),
      };
    }
    return v;
  };
  const placed = lines
    .slice(0, 1500)
    .map((l) => ({ ...l, r: inView(l.e, l.r), layer: layer(l.e) }))
    .filter((l) => l.r.right > l.r.left && l.r.bottom > l.r.top);
  for (let i = 0; i < placed.length; i++) {
    for (let j = i + 1; j < placed.length; j++) {
      const a = placed[i];
      const b = placed[j];
      if (a.layer !== b.layer) continue;
      if (a.e === b.e && ellipsis(a.e)) continue; // one text, and its ellipsis
      const w = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left);
      const h = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
      if (w > 2 && h > 0.4 * Math.min(a.r.height, b.r.height)) {
        report("overlap", a.e, `“${a.text.slice(0, 30)}” overlaps “${b.text.slice(0, 30)}”`);
      }
    }
  }
  // Wider than the window.
  const root = document.scrollingElement;
  const main = document.querySelector("main");
  if (root.scrollWidth > root.clientWidth) {
    const beyond = (e) => e.getBoundingClientRect().right > root.clientWidth + 1;
    const wide = all("body *").filter((e) => beyond(e) && visible(e));
    const say = "the page is " + root.scrollWidth + " px wide in a window of " + root.clientWidth;
    report("wide", wide[wide.length - 1], say);
  }
  if (main && main.scrollWidth > main.clientWidth + 1) {
    report("wide", main, "its content is " + main.scrollWidth + " px wide in " + main.clientWidth);
  }
};

// checkParts checks the structure of a page: what a screen reader reads, and the sizes of touch targets.
const checkParts = () => {
  const html = document.documentElement;
  if (!/^[a-z]{2}(-[A-Za-z]+)*$/.test(html.lang)) report("lang", html, "lang is " + html.lang);
  if (!document.title.trim()) report("title", html, "it has none");
  const viewport = (document.querySelector("meta[name=viewport]") || {}).content || "";
  if (/user-scalable\s*=\s*(no|0)|maximum-scale/.test(viewport)) report("zoom", html, "zooming is limited");
  const ids = new Map();
  for (const e of all("[id]")) {
    if (ids.has(e.id)) report("id", e, "another element has the id " + e.id);
    if (!e.id || /\s/.test(e.id)) report("id", e, "the id is empty or has a space");
    ids.set(e.id, e);
  }
  const references =
    "for aria-labelledby aria-describedby aria-controls aria-owns aria-errormessage headers list";
  const labelable = "input, select, textarea, output, button, meter, progress";
  for (const name of references.split(" ")) {
    for (const e of all("[" + name + "]")) {
      for (const id of e.getAttribute(name).split(/\s+/)) {
        if (!ids.has(id)) {
          report("reference", e, name + " names " + id + ", which does not exist");
        } else if (name === "for" && !ids.get(id).matches(labelable)) {
          report("label", e, "its " + id + " cannot have a label");
        }
      }
    }
  }
  for (const e of all("label:not([for])")) if (!e.control) report("label", e, "it labels nothing");
  for (const e of all("main, [role=main]").filter(visible).slice(1)) {
    report("main", e, "there is more than one main");
  }
  if (!modal && all("main").length !== 1) report("main", html, all("main").length + " of them");
  const navs = new Map();
  for (const e of all("nav, [role=navigation], aside, [role=region]").filter(visible)) {
    const name =
      e.getAttribute("aria-label") || (ids.get(e.getAttribute("aria-labelledby")) || {}).textContent || "";
    if (!name.trim()) report("landmark", e, "it has no label");
    if (navs.has(name)) report("landmark", e, "another landmark has the same label, " + name);
    navs.set(name, e);
  }
  let level = 0;
  const headings = all("h1, h2, h3, h4, h5, h6").filter(
    (e) => visible(e) || (clipped(e) && e.checkVisibility()),
  );
  const within = modal ? headings.filter((e) => modal.contains(e)) : headings;
  const titles = within.filter((e) => e.localName === "h1");
  if (titles.length !== 1) report("heading", html, titles.length + " h1");
  for (const e of within) {
    const is = Number(e.localName[1]);
    if (is > level + 1) report("heading", e, "h" + is + " comes after h" + level);
    if (!e.textContent.trim()) report("heading", e, "it is empty");
    level = is;
  }
  const roles = (
    "alert alertdialog application article banner button cell checkbox columnheader combobox " +
    "complementary contentinfo definition dialog document feed figure form grid gridcell group heading " +
    "img link list listbox listitem log main marquee math menu menubar menuitem meter navigation none " +
    "note option presentation progressbar radio radiogroup region row rowgroup rowheader scrollbar " +
    "search searchbox separator slider spinbutton status switch tab table tablist tabpanel term textbox " +
    "timer toolbar tooltip tree treeitem"
  ).split(" ");
  const children = {
    list: "listitem",
    table: "row, rowgroup",
    rowgroup: "row",
    row: "cell, columnheader, rowheader, gridcell",
    menu: "menuitem",
    menubar: "menuitem",
    tablist: "tab",
    listbox: "option",
    radiogroup: "radio",
    grid: "row, rowgroup",
    tree: "treeitem",
  };
  for (const e of all("[role]")) {
    const role = e.getAttribute("role");
    if (!roles.includes(role)) report("role", e, role + " is not a role");
    const has = (child) =>
      e.querySelector("[role=" + child + "]") ||
      (child === "row" && e.querySelector("tr")) ||
      (child === "listitem" && e.querySelector("li"));
    if (children[role] && !children[role].split(", ").some(has)) {
      report("role", e, role + " has no " + children[role]);
    }
  }
  const aria = (
    "activedescendant atomic autocomplete busy checked controls current describedby description details " +
    "disabled errormessage expanded haspopup hidden invalid keyshortcuts label labelledby level live " +
    "modal multiline multiselectable orientation owns placeholder posinset pressed readonly relevant " +
    "required roledescription rowcount rowindex selected setsize sort valuemax valuemin valuenow " +
    "valuetext"
  ).split(" ");
  for (const e of all("*")) {
    for (const { name, value } of e.attributes) {
      const known = aria.includes(name.slice("aria-".length));
      if (name.startsWith("aria-") && !known) report("aria", e, name + " is not an attribute");
      if (name === "aria-label" && !value.trim()) report("aria", e, "its label is empty");
      if (name.startsWith("on") || name === "style") report("inline", e, name + "=" + value);
      if (name === "tabindex" && Number(value) > 0) report("tabindex", e, "tabindex " + value);
      const link = /^(href|src|action|formaction)$/.test(name);
      if (link && /^\s*(javascript|data|vbscript):/i.test(value)) {
        report("scheme", e, name + "=" + value.slice(0, 60));
      }
    }
  }
  const interactive =
    "a[href], button, input:not([type=hidden]), select, textarea, summary, " +
    "[role=button], [role=link], [role=checkbox]";
  for (const e of all("[aria-hidden=true]")) {
    if (e.matches(interactive) || e.querySelector(interactive)) {
      report("hidden", e, "it is hidden from screen readers and can be focused");
    }
  }
  for (const e of all(interactive)) {
    const outer = e.parentElement.closest("a[href], button, summary, label");
    if (outer && !outer.matches("label")) report("nested", e, "it is inside of " + place(outer));
  }
  for (const e of all("ul > *, ol > *")) {
    if (!/^(li|script|template)$/.test(e.localName)) report("list", e, e.localName + " in a list");
  }
  for (const e of all("li")) {
    const parent = e.parentElement;
    if (!parent.matches("ul, ol, menu, [role=list]")) report("list", e, "li in " + parent.localName);
  }
  for (const e of all("dl > *, dl > div > *")) {
    if (
      !/^(dt|dd|script|template)$/.test(e.localName) &&
      !(e.localName === "div" && e.parentElement.localName === "dl")
    ) {
      report("list", e, e.localName + " in a dl");
    }
  }
  for (const e of all("dt, dd")) {
    if (!e.parentElement.matches("dl, dl > div")) report("list", e, e.localName + " outside of a dl");
  }
  for (const e of all("table")) {
    if (
      !(e.caption && e.caption.textContent.trim()) &&
      !e.getAttribute("aria-label") &&
      !e.getAttribute("aria-labelledby")
    ) {
      report("table", e, "it has no caption");
    }
    const heads = all("th", e);
    if (heads.length === 0) report("table", e, "it has no th");
    for (const th of heads) {
      if (!th.scope) report("table", th, "it has no scope");
      const named = th.textContent.trim() || th.getAttribute("aria-label");
      if (!named) report("table", th, "a column without a name");
    }
  }
  for (const e of all("details")) {
    const first = e.firstElementChild;
    if (!first || first.localName !== "summary") report("details", e, "it has no summary");
  }
  for (const e of all("img:not([alt])")) report("image", e, "it has no alt");
  for (const e of all("svg")) {
    const role = e.getAttribute("role");
    const named =
        e.getAttribute("aria-label") ||
        e.getAttribute("aria-labelledby") ||
        e.querySelector(":scope > title");
    if (role === "img" && !named) report("image", e, "a drawing without a name");
    if (!role && !named && !e.closest("[aria-hidden=true], [role=img]")) {
      report("image", e, "a drawing that has no name and is not hidden from screen readers");
    }
  }
  for (const e of all("iframe, object, embed, [target=_blank]:not([rel~=noopener])")) {
    report("foreign", e, e.localName);
  }
  for (const e of all("time")) {
    if (Number.isNaN(Date.parse(e.dateTime))) report("time", e, "datetime is " + e.dateTime);
  }
  // An undefined custom property makes shapes black and removes borders.
  for (const sheet of document.styleSheets) {
    const walk = (list) => {
      for (const rule of list) {
        if (rule.cssRules && rule.cssRules.length) walk(rule.cssRules);
        if (!rule.selectorText || !rule.style) continue;
        for (const [, name] of rule.style.cssText.matchAll(/var\((--[\w-]+)\)/g)) {
          let e = null;
          try {
            e = document.querySelector(rule.selectorText.replace(/::[\w-]+/g, ""));
          } catch {
            continue;
          }
          if (e && getComputedStyle(e).getPropertyValue(name).trim() === "") {
            report("variable", e, rule.selectorText + " uses " + name + ", which is not defined");
          }
        }
      }
    };
    walk(sheet.cssRules);
  }
  // Touch targets have 24 px, unless they are part of a sentence or have as much space around them.
  const touchable = (e) =>
    visible(e) && !e.disabled && e.getClientRects().length && e.getBoundingClientRect().right > 0;
  const targets = all(interactive)
    .filter(touchable)
    .map((e) => {
      const labels = e.matches("[type=checkbox], [type=radio]") ? [...e.labels] : [];
      const rects = [e, ...labels].map((part) => part.getBoundingClientRect());
      const r = {
        left: Math.min(...rects.map((r) => r.left)),
        right: Math.max(...rects.map((r) => r.right)),
        top: Math.min(...rects.map((r) => r.top)),
        bottom: Math.max(...rects.map((r) => r.bottom)),
      };
      return {
        e,
        r,
        x: (r.left + r.right) / 2,
        y: (r.top + r.bottom) / 2,
        small: r.right - r.left < 23.5 || r.bottom - r.top < 23.5,
      };
    });
  // The points of a chart are one group of radio buttons: the arrow keys reach each of them.
  const equivalent = (e) => e.matches("input[type=radio]") && e.closest("[role=group]");
  for (const t of targets) {
    if (!t.small || equivalent(t.e)) continue;
    if (getComputedStyle(t.e).display === "inline" && !(t.e instanceof SVGElement)) {
      let block = t.e.parentElement;
      while (/^(inline|contents)/.test(getComputedStyle(block).display)) block = block.parentElement;
      if (block.innerText.trim().length > t.e.innerText.trim().length + 1) continue;
    }
    for (const o of targets) {
      if (o === t || o.e.contains(t.e) || t.e.contains(o.e) || layer(o.e) !== layer(t.e)) continue;
      const dx = Math.max(o.r.left - t.x, 0, t.x - o.r.right);
      const dy = Math.max(o.r.top - t.y, 0, t.y - o.r.bottom);
      const near = o.small ? Math.hypot(o.x - t.x, o.y - t.y) < 24 : Math.hypot(dx, dy) < 12;
      if (near) {
        const size = Math.round(t.r.right - t.r.left) + "×" + Math.round(t.r.bottom - t.r.top);
        report("target", t.e, size + " px, too close to " + place(o.e));
        break;
      }
    }
  }
};

// rules checks all rules and returns what breaks them.
const rules = () => {
  checkTexts();
  checkParts();
  return findings;
};

// watchFocus returns how many elements Tab must reach, and records the focus from now on. Without a focus,
// Tab continues from the last click. So watchFocus puts a start element before all others. It is removed when
// Tab leaves it.
const watchFocus = () => {
  const scrolls = (e) => {
    const s = getComputedStyle(e);
    return (
      /auto|scroll/.test(s.overflowX + s.overflowY) &&
      (e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight)
    );
  };
  const controls =
    "a[href], button, input:not([type=hidden]), select, textarea, [tabindex]:not([tabindex='-1'])";
  const inner = "a[href], button, input, select, textarea, summary, [tabindex]";
  // Tab reaches one radio button of a group.
  const others = (e) =>
    e.type === "radio" && e !== (all(`[name="${e.name}"]:checked`)[0] || all(`[name="${e.name}"]`)[0]);
  const focusable = (e) =>
    (e.matches(controls) && e.tabIndex >= 0 && !others(e)) ||
    (e.localName === "summary" && e.parentElement.localName === "details") ||
    (scrolls(e) && e.tabIndex < 0 && e.getAttribute("tabindex") === null && !e.querySelector(inner));
  const reach = all("*", modal || document.body).filter(
    (e) => e.checkVisibility({ visibilityProperty: true }) && !e.disabled && focusable(e),
  );
  const looks = (e) => {
    const s = getComputedStyle(e);
    return [s.borderColor, s.boxShadow, s.backgroundColor, s.textDecorationLine].join("|");
  };
  const before = new Map(reach.map((e) => [e, looks(e)]));
  const names = reach.map((e, i) => i + " " + place(e));
  const went = [];
  const unseen = [];
  const start = document.createElement("span");
  addEventListener(
    "focusin",
    (event) => {
      const e = event.target;
      const i = reach.indexOf(e);
      const name = i < 0 ? "not expected: " + place(e) : names[i];
      if (e === start || went[went.length - 1] === name) return;
      went.push(name);
      const s = getComputedStyle(e);
      const outlined = s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1;
      if (!outlined && looks(e) === before.get(e)) {
        unseen.push(place(e) + ": nothing shows that it has the focus");
      } else if (outlined && s.outlineStyle !== "auto") {
        const around = ground(e, false);
        const ratio = contrast(over(colour(s.outlineColor), around), around);
        const say = `${place(e)}: the contrast of its outline is ${ratio.toFixed(2)}:1, want 3:1`;
        if (ratio < 3) unseen.push(say);
      }
    },
    true,
  );
  start.tabIndex = 1;
  start.addEventListener("blur", () => start.remove());
  document.body.prepend(start);
  start.focus();
  getSelection().removeAllRanges();
  scrollTo(0, 0);
  window.__walk = { reach, names, went, unseen, place };
  return reach.length;
};

// walked returns what watchFocus recorded. It also focuses all elements from the last to the first: none may
// end up under a fixed element.
const walked = () => {
  const { reach, names, went, unseen, place } = window.__walk;
  const hidden = [];
  const steps = [...went];
  for (const e of [...reach].reverse()) {
    if (!e.isConnected || !e.checkVisibility()) continue;
    e.focus();
    const r = e.getClientRects()[0];
    if (!r) continue;
    const seen = [
      [0.5, 0.5],
      [0.05, 0.5],
      [0.95, 0.5],
      [0.5, 0.1],
      [0.5, 0.9],
    ].some(([x, y]) => {
      const top = document.elementFromPoint(
        Math.min(Math.max(r.x + r.width * x, 0), innerWidth - 1),
        Math.min(Math.max(r.y + r.height * y, 0), innerHeight - 1),
      );
      return top && (e.contains(top) || top.contains(e));
    });
    if (!seen) hidden.push(place(e) + ": another element covers it when it has the focus");
  }
  return { Want: names, Went: steps, Unseen: unseen, Hidden: hidden };
};

// harmful returns what hostile texts have put into a page.
const harmful = () => {
  const wrong = [];
  if (window.__pwned !== undefined) wrong.push("a script has run: " + window.__pwned);
  const foreign =
    "img, iframe, object, embed, base, style, script:not([src]), [autofocus]:not(#key), svg[onload]";
  for (const e of all(foreign)) wrong.push(e.outerHTML.slice(0, 200));
  for (const e of all("script[src], link[href]")) {
    if (new URL(e.src || e.href).origin !== location.origin) wrong.push(e.outerHTML);
  }
  for (const e of all("a[href], form[action]")) {
    const scheme = new URL(e.href || e.action, location).protocol;
    if (!/^https?:$/.test(scheme)) wrong.push(e.outerHTML.slice(0, 200));
  }
  if (all("main").length !== 1 || all("[data-region=banner]").length !== 1) {
    wrong.push("the page has lost its main element or its banner");
  }
  // Text with characters that change the writing direction must not change the direction of its neighbours.
  const isolated = (e) => /isolate|plaintext/.test(getComputedStyle(e).unicodeBidi);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walker.nextNode(); n; n = walker.nextNode()) {
    if (!/[\u202a-\u202e\u2066-\u2069]/.test(n.data)) continue;
    let e = n.parentElement;
    while (/^(inline|contents)$/.test(getComputedStyle(e).display) && !isolated(e)) e = e.parentElement;
    if (isolated(e) || e.textContent.trim() === n.data.trim()) continue;
    wrong.push("it changes the writing direction of its neighbours: " + e.outerHTML.slice(0, 200));
  }
  return wrong;
};

// strangers returns texts in another language than the page's that are not marked as data: a text without a
// translation, or the key of a missing text. words are spelled the same in all languages.
const strangers = (words) => {
  const chinese = document.documentElement.lang === "zh-CN";
  const alike = new Set(words);
  const found = new Set();
  for (const e of all(".untranslated")) found.add("no translation: " + e.textContent.slice(0, 80));
  // Durations that a person types have the units of the API, also in the example of a field.
  const typed = (e, name) => name === "placeholder" || e.closest(".help");
  const look = (said, e, name) => {
    // without commands of the program, URLs and the references of the scene
    const text = said.replace(/dispatcher [^。；）”]*/g, "").replace(/https?:\S+|\/v1\/\S+/g, "")
      .replace(/refund-\d+|order-\d+-\d+/g, "");
    if (e.closest("[translate]")?.getAttribute("translate") === "no") return;
    if (e.closest("textarea")) return;
    if (/\b[a-z_]+\.[a-z_.]+[a-z]\b/.test(text) && !/\d/.test(text)) found.add("a key? " + text.trim());
    const latin = typed(e, name) ? /[A-Za-z][A-Za-z-]{2,}/g
      : /[A-Za-z][A-Za-z-]{2,}|\d(ms|[dhms])(?![A-Za-z])/g;
    const foreign = chinese
      ? (text.match(latin) || []).filter((w) => !alike.has(w))
      : text.match(/[\u3000-\u9fff]+/g) || [];
    if (foreign.length) found.add(foreign.join(" ") + " in “" + text.trim().slice(0, 80) + "”");
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walker.nextNode(); n; n = walker.nextNode()) if (n.data.trim()) look(n.data, n.parentElement);
  for (const e of document.querySelectorAll("[aria-label], [title], [placeholder], [alt]")) {
    for (const name of ["aria-label", "title", "placeholder", "alt"]) {
      // The title of a cell repeats its text.
      if (e.getAttribute(name) && !e.matches(".cut")) look(e.getAttribute(name), e, name);
    }
  }
  look(document.title.replace("Dispatcher", ""), document.querySelector("h1") || document.body);
  return [...found];
};
