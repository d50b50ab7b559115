package dispatcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/internal/docpage"
)

// TestChinesePagesFollowTheEnglishOnes compares README.zh.md and each page of docs/zh with its English page:
// blocks, headings, links, figures, and everything that is written as code.
func TestChinesePagesFollowTheEnglishOnes(t *testing.T) {
	project := os.DirFS(".")
	pairs, err := mirrors(project)
	if err != nil || len(pairs) < 6 {
		t.Fatalf("found %d Chinese pages: %v", len(pairs), err)
	}
	for english := range pairs {
		for what, diff := range mirrorDiffs(t, project, pairs, english) {
			t.Errorf("the %s of %s (-) and %s (+) differ:\n%s", what, english, pairs[english], diff)
		}
	}
}

func TestMirrorDiffs(t *testing.T) {
	const english = "# A\n[中文](../zh/a.md) Wait 5 s, see [b](b.md#two) and `x`.\n## B\n```sh\nls # all\n```\n"
	const chinese = "# 甲\n[English](../guide/a.md) 等 5 秒，见 `x` 和 [b](b.md#二)。\n## 乙\n" +
		"```sh\nls # 全部\n```\n"
	for _, c := range []struct{ old, changed, want string }{
		{"", "", ""},
		{"5 秒", "6 秒", "figures"},
		{"ls # 全", "ls -l # 全", "blocks"},
		{"## 乙", "乙", "headings"},
		{"见 `x`", "见 `y`", "code"},
		{"b.md#二", "../guide/b.md#two", "links"},
		{"b.md#二", "b.md", "links"},
		{"[中文](../zh/a.md) ", "", "link to the other language"},
	} {
		project := fstest.MapFS{
			"docs/guide/a.md": {Data: []byte(strings.Replace(english, c.old, c.changed, 1))},
			"docs/zh/a.md":    {Data: []byte(strings.Replace(chinese, c.old, c.changed, 1))},
			"docs/guide/b.md": {Data: []byte("# One\n## Two\n")},
			"docs/zh/b.md":    {Data: []byte("# 一\n[English](../guide/b.md)\n## 二\n")},
		}
		pairs, err := mirrors(project)
		if err != nil {
			t.Fatal(err)
		}
		diffs := mirrorDiffs(t, project, pairs, "docs/guide/a.md")
		if got := strings.Join(slices.Sorted(maps.Keys(diffs)), ", "); got != c.want {
			t.Errorf("%q for %q: these differ: %q, want %q", c.changed, c.old, got, c.want)
		}
	}
}

// TestLabelsOfChinesePagesExist looks up each text in “ ” of docs/zh in the Chinese catalogue of the pages.
func TestLabelsOfChinesePagesExist(t *testing.T) {
	known := map[string]bool{}
	catalogues, err := filepath.Glob("web/ui/texts/zh/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range catalogues {
		text, err := os.ReadFile(name)
		var all map[string]string
		if err == nil {
			err = json.Unmarshal(text, &all)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, label := range all {
			known[strings.TrimSuffix(label, "（{n}）")] = true
		}
	}
	pages, err := filepath.Glob("docs/zh/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, label := range regexp.MustCompile("“([^”]*)”").FindAllStringSubmatch(string(text), -1) {
			found++
			if !known[label[1]] {
				t.Errorf("%s names “%s”, which the admin pages do not have", page, label[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d labels in %d pages", found, len(pages))
	}
}

var toEnglish = regexp.MustCompile(`\[English\]\(([^()\s]+)\)`)

// mirrors returns the Chinese page of each English page that has one. The Chinese page names it.
func mirrors(project fs.FS) (map[string]string, error) {
	pairs := map[string]string{}
	readme, err := fs.Glob(project, "README.zh.md")
	pages, err2 := fs.Glob(project, "docs/zh/*.md")
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	for _, page := range slices.Concat(readme, pages) {
		text, err := fs.ReadFile(project, page)
		if err != nil {
			return nil, err
		}
		link := toEnglish.FindSubmatch(text)
		if link == nil {
			return nil, fmt.Errorf("%s has no link [English](PAGE)", page)
		}
		pairs[fromRoot(page, string(link[1]))] = page
	}
	return pairs, nil
}

// mirrorDiffs says what differs between an English page and its Chinese one.
func mirrorDiffs(t *testing.T, project fs.FS, pairs map[string]string, english string) map[string]string {
	t.Helper()
	diffs := map[string]string{}
	a := readMirror(t, project, english)
	b := readMirror(t, project, pairs[english])
	if !slices.Contains(a.links, pairs[english]) {
		diffs["link to the other language"] = "the English page has none\n"
	}
	b.links = slices.DeleteFunc(b.links, func(link string) bool { return link == english })
	// The Chinese page links to Chinese pages, where they exist, and to the same headings.
	var links []string
	chinese := slices.Collect(maps.Values(pairs))
	for _, link := range a.links {
		to, anchor, _ := strings.Cut(link, "#")
		if slices.Contains(chinese, to) {
			continue // for a reader of Chinese
		}
		if page := pairs[to]; page != "" {
			from := readMirror(t, project, to).anchors
			at := slices.Index(from, anchor)
			if there := readMirror(t, project, page).anchors; at >= 0 && at < len(there) {
				link = page + "#" + there[at]
			} else {
				link = page
			}
		}
		links = append(links, link)
	}
	slices.Sort(links)
	for what, pair := range map[string][2][]string{
		"blocks": {a.blocks, b.blocks}, "headings": {a.headings, b.headings}, "links": {links, b.links},
		"figures": {a.figures, b.figures}, "code": {a.code, b.code},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			diffs[what] = diff
		}
	}
	return diffs
}

// A mirrorPage is what a page has in common with the same page in another language.
type mirrorPage struct {
	blocks   []string // without the comments of commands
	headings []string // their levels
	anchors  []string // of the headings
	links    []string // sorted; relative ones from the root of the project
	figures  []string // sorted
	code     []string // sorted, each once
}

var (
	figure     = regexp.MustCompile(`\d[\d.,]*\d|\b\d\b`)
	codeSpan   = regexp.MustCompile("`[^`]+`")
	linkTarget = regexp.MustCompile(`\]\([^()\s]+\)`)
	// shellComment matches a comment of a command, which a translation may translate.
	shellComment = regexp.MustCompile(`(?m)(^|\s+)# .*$`)
)

func readMirror(t *testing.T, project fs.FS, name string) mirrorPage {
	t.Helper()
	text, err := fs.ReadFile(project, name)
	if err != nil {
		t.Fatal(err)
	}
	var p mirrorPage
	for _, block := range fencedCode.FindAllString(string(text), -1) {
		if strings.HasPrefix(block, "```sh") || strings.HasPrefix(block, "```text\n") {
			block = shellComment.ReplaceAllString(block, "")
		}
		p.blocks = append(p.blocks, block)
	}
	prose := docpage.WithoutBlocks(string(text))
	for _, heading := range docpage.Headings(string(text)) {
		p.headings = append(p.headings, strings.Repeat("#", heading.Level))
		p.anchors = append(p.anchors, heading.Anchor)
	}
	for _, link := range docpage.Links(string(text)) {
		p.links = append(p.links, fromRoot(name, link))
	}
	p.figures = figure.FindAllString(linkTarget.ReplaceAllString(prose, "]"), -1)
	for _, span := range codeSpan.FindAllString(prose, -1) {
		p.code = append(p.code, strings.Join(strings.Fields(span), " "))
	}
	slices.Sort(p.links)
	slices.Sort(p.figures)
	slices.Sort(p.code)
	p.code = slices.Compact(p.code)
	return p
}

// fromRoot returns a link of a page, from the root of the project if it is relative.
func fromRoot(page, link string) string {
	switch {
	case strings.Contains(link, "://"):
		return link
	case strings.HasPrefix(link, "#"):
		return page + link
	}
	return path.Join(path.Dir(page), link)
}
