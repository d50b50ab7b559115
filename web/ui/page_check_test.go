package ui

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/html"
)

// staticBytes returns the size of a page's style sheet, script and icon, uncompressed.
var staticBytes = sync.OnceValues(func() (n int, err error) {
	all, err := readAssets()
	for _, a := range all.files {
		n += len(a.plain)
	}
	return n, err
})

// checkSize checks the bytes that a browser loads for a page with usual rows.
func checkSize(t *testing.T, res result) {
	t.Helper()
	static, err := staticBytes()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(res.body) + static; n > 100<<10 {
		t.Errorf("the page has %d bytes with its style, script and icon; at most 100 KiB", n)
	}
}

// checkPage checks what must hold for every page with any content.
func checkPage(t *testing.T, res result) {
	t.Helper()
	if strings.Contains(res.body, "hunter2") {
		t.Error("the page contains the text of an internal error or a credential")
	}
	if strings.Contains(fmt.Sprint(res.header), "whsec_") {
		t.Errorf("a signing secret is in the headers: %v", res.header)
	}
	policy := res.header.Get("Content-Security-Policy")
	if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("the content security policy is too weak: %q", policy)
	}
	// Case 60.
	if !strings.Contains(policy, "frame-ancestors 'none'") || res.header.Get("X-Frame-Options") != "DENY" {
		t.Errorf("another site may frame the page: %q, %q", policy, res.header.Get("X-Frame-Options"))
	}
	ids := make(map[string]bool)
	level := 0
	for n := range res.doc.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		switch n.Data {
		case "script":
			if attr(n, "src") == "" || n.FirstChild != nil {
				t.Errorf("the page has an inline script: %q", textOf(n))
			}
		case "style", "iframe", "object", "embed", "base":
			t.Errorf("the page has a %s", n.Data)
		case "img":
			t.Errorf("the page has an image from %q", attr(n, "src"))
		case "a", "form", "button":
			for _, name := range []string{"href", "action", "formaction"} {
				value := attr(n, name)
				if value != "" && !strings.HasPrefix(value, "/ui/") && !strings.HasPrefix(value, "#") {
					t.Errorf("a %s has a foreign URL %q", n.Data, value)
				}
			}
			if n.Data != "form" && strings.TrimSpace(textOf(n)) == "" && attr(n, "aria-label") == "" {
				t.Errorf("a %s has no name: %v", n.Data, n.Attr)
			}
		case "input", "select", "textarea":
			checkLabel(t, res, n)
		case "h1", "h2", "h3", "h4":
			next := int(n.Data[1] - '0')
			if next > level+1 {
				t.Errorf("heading %q of level %d follows a heading of level %d", textOf(n), next, level)
			}
			level = next
		case "table":
			if len(find(n, "caption")) == 0 {
				t.Errorf("a table has no caption: %.60q", textOf(n))
			}
		}
		for _, a := range n.Attr {
			switch {
			case strings.HasPrefix(a.Key, "on"):
				t.Errorf("a %s has an inline handler %s", n.Data, a.Key)
			case a.Key == "style":
				t.Errorf("a %s has an inline style, which the policy forbids: %q", n.Data, a.Val)
			case a.Key == "id":
				if ids[a.Val] {
					t.Errorf("duplicate id %q", a.Val)
				}
				ids[a.Val] = true
			}
		}
	}
	for n := range res.doc.Descendants() {
		for _, a := range n.Attr {
			if a.Key == "for" || a.Key == "aria-labelledby" || a.Key == "aria-describedby" {
				for _, id := range strings.Fields(a.Val) {
					if !ids[id] {
						t.Errorf("%s of a %s names the missing id %q", a.Key, n.Data, id)
					}
				}
			}
		}
	}
	if n := res.count("h1"); n != 1 {
		t.Errorf("the page has %d headings h1, want 1", n)
	}
	missing := regexp.MustCompile(`\b[a-z_]+(\.[a-z_]+)+\b`).FindAllString(ownText(res.doc), -1)
	if len(missing) > 0 {
		t.Errorf("the page shows keys of missing texts: %q", missing)
	}
}

func checkLabel(t *testing.T, res result, n *html.Node) {
	t.Helper()
	if attr(n, "type") == "hidden" || attr(n, "aria-label") != "" {
		return
	}
	for p := n.Parent; p != nil; p = p.Parent {
		if p.Data == "label" {
			return
		}
	}
	for _, label := range find(res.doc, "label") {
		if attr(label, "for") == attr(n, "id") && strings.TrimSpace(textOf(label)) != "" {
			return
		}
	}
	t.Errorf("a field has no label: %v", n.Attr)
}

// ownText returns the text of a page without elements that are marked as data (translate="no").
func ownText(n *html.Node) string {
	return textWithout(n, func(n *html.Node) bool { return attr(n, "translate") == "no" })
}

// textWithout returns the text of a page, its titles and labels, without scripts and elements that are data.
func textWithout(n *html.Node, data func(n *html.Node) bool) string {
	var out strings.Builder
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.ElementNode && (data(n) || n.Data == "script") {
			return
		}
		if n.Type == html.TextNode {
			out.WriteString(n.Data + "\n")
		}
		for _, name := range []string{"title", "aria-label", "placeholder", "data-name"} {
			classes := strings.Fields(attr(n, "class"))
			if name == "title" && slices.Contains(classes, "cut") {
				continue // it repeats the text of the cell
			}
			if hasAttr(n, name) && n.Data != "input" && n.Data != "textarea" {
				out.WriteString(attr(n, name) + "\n")
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(n)
	return out.String()
}

// alike are words that are the same in Chinese texts. The browser tests read the same file.
var alike = sync.OnceValue(func() map[string]bool {
	words := make(map[string]bool)
	raw, _ := os.ReadFile("../../e2e/browser/testdata/alike.txt") // without it every page fails
	for line := range strings.Lines(string(raw)) {
		for _, word := range strings.Fields(line) {
			words[word] = !strings.HasPrefix(line, "#")
		}
	}
	return words
})

var (
	englishWord = regexp.MustCompile(`[A-Za-z][A-Za-z_-]{2,}`)
	// inSentences are data within sentences: commands of the program, typed values, URLs, paths and zones.
	inSentences = regexp.MustCompile(`dispatcher [^。；）”]*|“[^”]*”|https?:[^\s；，。]*|/[^\s；，。]+|` +
		`[A-Z][a-z]+/\w+`)
)

// halfWidth is a sign of English after a Chinese character, or alone between elements.
var halfWidth = regexp.MustCompile(`\p{Han}[,;:]|^\s*[,;:]\s*$`)

// checkChinese checks that a page in Chinese has no text of the program without a translation, and no English
// words, except for data: elements with translate="no", typed texts and the values of the page's URL.
func checkChinese(t *testing.T, res result) {
	t.Helper()
	data := func(n *html.Node) bool {
		return attr(n, "translate") == "no" || n.Data == "textarea"
	}
	if root := find(res.doc, "html"); attr(root[0], "lang") != "zh-CN" {
		return // the script has chosen another language
	}
	for _, n := range find(res.doc, ".untranslated") {
		if strings.HasPrefix(textOf(n), "strange") || textOf(n) == hostile {
			continue // a name that the script has made up
		}
		t.Errorf("%s: the program's text %q has no translation", res.path, textOf(n))
	}
	text := textWithout(res.doc, data)
	if address, err := url.Parse(res.path); err == nil {
		for _, values := range address.Query() {
			if len(values[0]) > len("and") {
				text = strings.ReplaceAll(text, values[0], "")
			}
		}
	}
	for line := range strings.Lines(inSentences.ReplaceAllString(text, "")) {
		if halfWidth.MatchString(line) {
			t.Errorf("%s: a half-width sign in %.80q", res.path, strings.TrimSpace(line))
		}
		for _, word := range englishWord.FindAllString(line, -1) {
			if !alike()[word] {
				t.Errorf("%s: %q is English in %.80q", res.path, word, strings.TrimSpace(line))
			}
		}
	}
}
