package dispatcher

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/seed-ff5a32d8/dispatcher/internal/docpage"
)

var (
	fencedCode = regexp.MustCompile("(?ms)^```.*?^```")
	namedPage  = regexp.MustCompile(`\bdocs/[\w./-]*\.md\b`)
	// published matches the address of a file of the project, with its heading.
	published = regexp.MustCompile(`https://` + module + `/(?:blob|tree)/main/([\w./-]+(?:#[\w-]+)?)`)
)

// namers are the files that may name a page of docs by its path from the root. Scratch files are none of
// them.
var namers = []string{".md", ".go", ".sql", ".sh", ".golden", ".yaml", ".html", ".lua", "Makefile",
	"Dockerfile"}

// TestLinksOfDocsLeadSomewhere follows each relative link of each page, to its heading too. It also follows
// each path docs/….md and each public address of a file of the project, in files of other kinds too.
func TestLinksOfDocsLeadSomewhere(t *testing.T) {
	pages, wrong := brokenLinks(os.DirFS("."))
	if pages < 10 {
		t.Errorf("found %d pages: the test runs in the wrong directory", pages)
	}
	for _, w := range wrong {
		t.Error(w)
	}
	const page = "# One `code` heading, Größe\n[a](b.md#two) [b](#one-code-heading-größe) " +
		"[c](https://x.y/z.md)\n"
	for _, c := range []struct{ page, want string }{
		{page, ""},
		{"[a](../docs/b.md) [b](../go/x.go)\n", ""},
		{"```\n[a](none.md)\n```\n", ""},
		{"[a](none.md)\n", "docs/a.md: the link none.md leads nowhere"},
		{"[a](b.md#three)\n", "docs/a.md: the link b.md#three leads nowhere"},
		{"[a](#two)\n", "docs/a.md: the link #two leads nowhere"},
		{"https://" + module + "/blob/main/docs/b.md#two\n", ""},
		{"https://" + module + "/blob/main/docs/b.md#three\n",
			"docs/a.md: the address of docs/b.md#three leads nowhere"},
		{"see docs/guide/none.md\n", "docs/a.md: docs/guide/none.md does not exist"},
	} {
		_, wrong := brokenLinks(fstest.MapFS{
			"docs/a.md": {Data: []byte(c.page)}, "docs/b.md": {Data: []byte("# Two\n")}, "go/x.go": {},
		})
		if got := strings.Join(wrong, "; "); got != c.want {
			t.Errorf("page %q: %q, want %q", c.page, got, c.want)
		}
	}
}

// archived matches the files of the repository that .goreleaser.yaml puts into the archives.
var archived = regexp.MustCompile(`(?m)^      - ([\w./]+?)(?:/\*\*)?$`)

// TestLinksOfTheArchivesLeadSomewhere follows the relative links of the pages within an archive of a release.
func TestLinksOfTheArchivesLeadSomewhere(t *testing.T) {
	config, err := os.ReadFile(".goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	project, archive := os.DirFS("."), fstest.MapFS{}
	for _, root := range archived.FindAllStringSubmatch(string(config), -1) {
		err := fs.WalkDir(project, root[1], func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := fs.ReadFile(project, name)
			archive[name] = &fstest.MapFile{Data: text}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	pages := 0
	for name, file := range archive {
		if path.Ext(name) == ".md" {
			pages++
			for _, link := range docpage.BrokenLinks(archive, name, string(file.Data)) {
				t.Errorf("%s: the link %s leads out of the archive", name, link)
			}
		}
	}
	if pages < 10 {
		t.Errorf("found %d pages", pages)
	}
}

// TestBlocksOfThePagesAreExplained requires that each code block is data, runs in package e2e/docs, or has a
// reason not to.
func TestBlocksOfThePagesAreExplained(t *testing.T) {
	pages, err := docpage.Read(os.DirFS("."))
	if err != nil || len(pages) < 10 {
		t.Fatalf("found %d pages: %v", len(pages), err)
	}
	for _, p := range pages {
		for _, wrong := range p.Wrong {
			t.Errorf("%s, %s (see the doc comment of internal/docpage)", p.Name, wrong)
		}
	}
}

// TestMetricsOfThePagesExist looks up each metric that a page names in the reference of metrics. Another test
// compares the reference with the program.
func TestMetricsOfThePagesExist(t *testing.T) {
	reference, err := os.ReadFile("docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(`\b(dispatcher|go_sql)(_[a-z]+)+\b`)
	known := metric.FindAllString(string(reference), -1)
	guide, err := fs.Glob(os.DirFS("."), "docs/guide/*.md")
	others, err2 := fs.Glob(os.DirFS("."), "docs/reference/*.md")
	if err := errors.Join(err, err2); err != nil || len(known) < 50 || len(guide) < 10 || len(others) == 0 {
		t.Fatalf("found %d metrics and %d pages: %v", len(known), len(guide)+len(others), err)
	}
	for _, page := range slices.Concat([]string{"README.md"}, guide, others) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metric.FindAllString(string(text), -1) {
			series := regexp.MustCompile("_(bucket|sum|count)$").ReplaceAllString(name, "")
			isTable := strings.HasPrefix(name, "dispatcher_outbox") // that of the relay
			if !slices.Contains(known, name) && !slices.Contains(known, series) && !isTable {
				t.Errorf("%s names the metric %s, which does not exist", page, name)
			}
		}
	}
}

// TestTheIndexNamesEachPage requires a line in docs/index.md for each page. Decisions have their own index.
func TestTheIndexNamesEachPage(t *testing.T) {
	index, err := os.ReadFile("docs/index.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := fs.Glob(os.DirFS("docs"), "[^a]*/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("found the pages %q: %v", pages, err)
	}
	for _, page := range pages {
		if !strings.Contains(string(index), "("+page+")") {
			t.Errorf("docs/index.md has no line for %s", page)
		}
	}
}

// TestReferenceHasEachClassAndReason compares two tables of the page of errors with the constants of package
// client.
func TestReferenceHasEachClassAndReason(t *testing.T) {
	text, err := os.ReadFile("docs/reference/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	for table, constants := range map[string]string{"classes": "Class", "reasons": "TerminalReason"} {
		_, rest, _ := strings.Cut(string(text), "<!-- "+table+" -->")
		rest, _, found := strings.Cut(rest, "<!-- /"+table+" -->")
		var named, want []string
		for _, row := range firstCode.FindAllStringSubmatch(rest, -1) {
			named = append(named, row[1])
		}
		for _, f := range files(t) {
			if f.dir == "client" {
				value := regexp.MustCompile(`\s` + constants + ` += "(\w+)"`)
				for _, c := range value.FindAllSubmatch(f.src, -1) {
					want = append(want, string(c[1]))
				}
			}
		}
		if !found || len(want) == 0 || !slices.Equal(named, want) {
			t.Errorf("the table of %s names %q, want %q", table, named, want)
		}
	}
}

// firstCode matches the first cell of a row, if it is code.
var firstCode = regexp.MustCompile("(?m)^\\| `(\\w+)` \\|")

// brokenLinks counts the pages below root and says which links of theirs, and which paths of pages, are
// wrong.
func brokenLinks(root fs.FS) (pages int, wrong []string) {
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" ||
				d.Name() == "dispatcher-data") {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains(namers, path.Ext(name)) && !slices.Contains(namers, name) ||
			name == "docs_test.go" || name == "mirror_test.go" {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		for _, page := range namedPage.FindAllString(string(text), -1) {
			if _, err := fs.Stat(root, page); err != nil {
				wrong = append(wrong, name+": "+page+" does not exist")
			}
		}
		for _, file := range published.FindAllStringSubmatch(string(text), -1) {
			if !docpage.Leads(root, ".", file[1]) {
				wrong = append(wrong, name+": the address of "+file[1]+" leads nowhere")
			}
		}
		if path.Ext(name) != ".md" {
			return nil
		}
		pages++
		for _, link := range docpage.BrokenLinks(root, name, string(text)) {
			wrong = append(wrong, name+": the link "+link+" leads nowhere")
		}
		return nil
	})
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	return pages, wrong
}
