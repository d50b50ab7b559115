package dispatcher

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

const (
	// maxLines is the hard limit of a Go file; most have fewer than 400.
	maxLines = 500
	// maxColumns is where a line of text or code ends. A tab counts as four columns.
	maxColumns = 110
	tabColumns = 4
)

// vague are words that say nothing about what a package or a file does.
var vague = regexp.MustCompile(`^(utils?|common|helpers?|managers?|misc)$`)

func TestFilesAreShortAndFinished(t *testing.T) {
	// The words are split, so that this line is not a finding.
	unfinished := regexp.MustCompile(`\b(` + "TO" + `DO|FIX` + `ME|XX` + `X)\b`)
	for _, f := range files(t) {
		if lines := bytes.Count(f.src, []byte("\n")); lines > maxLines && !ast.IsGenerated(f.ast) {
			t.Errorf("%s has %d lines; at most %d: one file, one role", f.path, lines, maxLines)
		}
		if formatted, err := format.Source(f.src); err != nil || !bytes.Equal(formatted, f.src) {
			t.Errorf("%s is not as gofmt writes it: run make fmt", f.path)
		}
		name := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test")
		if vague.MatchString(f.ast.Name.Name) || vague.MatchString(name) {
			t.Errorf("%s: the name says nothing", f.path)
		}
		for _, group := range f.ast.Comments {
			if found := unfinished.FindString(group.Text()); found != "" {
				t.Errorf("%s has a %s: finish it or file it", f.at(group), found)
			}
		}
	}
}

// TestConditionsOnlyTest allows "if v := f(); v.ok()" and refuses every other statement within an if or a
// switch: an assignment to a variable that exists, a call, and a declaration that the condition does not
// read.
func TestConditionsOnlyTest(t *testing.T) {
	for _, f := range files(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if why := hidden(n); why != "" {
				t.Errorf("%s: %s; write it as a statement on the line before", f.at(n), why)
			}
			return true
		})
	}
}

// hidden returns what is wrong with the statement within an if or a switch, or nothing.
func hidden(n ast.Node) string {
	var init ast.Stmt
	var read ast.Node
	switch n := n.(type) {
	case *ast.IfStmt:
		init, read = n.Init, n.Cond
	case *ast.SwitchStmt:
		init, read = n.Init, n.Body // the cases are its conditions
		if n.Tag != nil {
			read = n.Tag
		}
	}
	if init == nil {
		return ""
	}
	declared, ok := init.(*ast.AssignStmt)
	if !ok || declared.Tok != token.DEFINE {
		return "the condition changes something before it tests"
	}
	used := false
	ast.Inspect(read, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		used = used || ok && slices.ContainsFunc(declared.Lhs, func(left ast.Expr) bool {
			return left.(*ast.Ident).Name == name.Name
		})
		return true
	})
	if !used {
		return "the condition does not test what it declares"
	}
	return ""
}

// written are the kinds of files that people write and read. Of a transcript (.txt) they write the comments;
// the rest is what a program has answered. A catalogue of texts is a table, with one text a line.
var written = []string{
	".go", ".mod", ".lua", ".sql", ".md", ".html", ".css", ".js", ".sh", ".yaml", ".yml", ".txt", "Makefile",
	"Dockerfile", "run",
}

// generated are the files that a program writes.
var generated = regexp.MustCompile(`_made_test\.go$|\.golden$|^web/ui/picture/testdata/`)

// The parts of a line that may be longer: a row of a table, and an address, with the caption of a picture.
var (
	tableRow  = regexp.MustCompile(`^\s*(//\s*)?\|`)
	structTag = regexp.MustCompile("`[a-z]+:\".*\"`( //.*)?$")
	address   = regexp.MustCompile(`\S*(://|@sha256:)\S*|!\[.*\]\(\S*`)
)

// TestLinesEndAt110Columns exempts tables (of Markdown, and the tags of settings), addresses and generated
// files.
func TestLinesEndAt110Columns(t *testing.T) {
	for name, text := range texts(t) {
		if !slices.Contains(written, path.Ext(name)) && !slices.Contains(written, path.Base(name)) ||
			generated.MatchString(name) {
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			if path.Ext(name) == ".txt" && !strings.HasPrefix(line, "#") {
				continue
			}
			if overlong(line) {
				t.Errorf("%s:%d ends at column %d; at most %d", name, i+1, columns(line), maxColumns)
			}
		}
	}
	for line, want := range map[string]bool{
		strings.Repeat("a ", 55):                                 false,
		strings.Repeat("a ", 55) + "b":                           true,
		"\t" + strings.Repeat("a", 107):                          true,
		strings.Repeat("ö", 110):                                 false,
		"| " + strings.Repeat("a ", 80):                          false,
		"see https://x.y/" + strings.Repeat("a", 110):            false,
		"\tA string `help:\"" + strings.Repeat("a", 110) + "\"`": false,
	} {
		if got := overlong(line); got != want {
			t.Errorf("overlong(%q) is %t", line, got)
		}
	}
}

func overlong(line string) bool {
	return columns(line) > maxColumns && !tableRow.MatchString(line) && !structTag.MatchString(line) &&
		columns(address.ReplaceAllString(line, "")) > maxColumns-len(" ")
}

// columns counts the columns of a line.
func columns(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}

// texts reads every file of the project that is text, by its path.
func texts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(scratch, d.Name()) || hiddenDir.MatchString(d.Name())):
			return fs.SkipDir
		case d.IsDir() || slices.Contains(foreign, d.Name()):
			return nil
		}
		text, err := os.ReadFile(name)
		if utf8.Valid(text) {
			all[name] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatalf("read the project: %v", err)
	}
	if len(all) < 100 {
		t.Fatalf("found %d files: the test runs in the wrong directory", len(all))
	}
	return all
}

// hiddenDir matches directories such as .git. The root is "." and .ci is ours.
var hiddenDir = regexp.MustCompile(`^\.([^c]|c[^i]|ci.)`)

var (
	// scratch are directories that are not part of the project: builds, and the data of a server that was run
	// here.
	scratch = []string{"bin", "dispatcher-data", "rapid", "fuzz"}
	// foreign are files whose words are not ours.
	foreign = []string{"LICENSE", "go.sum"}
)

// retired are words that the project has given up, and what to write instead.
var retired = map[string]string{
	`whoever`:              "name the subject: the caller, the process, the receiver",
	`nobody`:               "name the subject: no process, no receiver",
	`tides?`:               "shard version",
	`ladings?`:             "shard load",
	`tellers?`:             "notifier",
	`patience`:             "timeout, or log limiter",
	`heirs?`:               "next waiter",
	`doubt(s|ed|ful|ing)?`: "uncertain stamp; not known",
	`take backs?`:          "undo, withdraw",
	`mend(s|ed|ing|er)?`:   "edit (data), fix (a cause), repair (the index)",
	`by and by`:            "gradually, or say when",
	`cannot be meant`:      "invalid, and what is wrong",
}

func TestRetiredWordsStayAway(t *testing.T) {
	found := regexp.MustCompile(`\b(` + strings.Join(slices.Sorted(maps.Keys(retired)), "|") + `)\b`)
	for name, text := range texts(t) {
		if name == "style_test.go" { // it has the list
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			if word := found.FindString(words(line)); word != "" {
				t.Errorf("%s:%d says %q: %s", name, i+1, word, instead(word))
			}
		}
	}
	for line, want := range map[string]string{
		"func (q *Queue) takeBack(id string)": "take back",
		"judgeMend":                           "mend",
		"mended_at":                           "mended",
		"their amendments, recommended":       "",
		"NOBODY":                              "nobody",
		"maxDoubts":                           "doubts",
		"a  request that cannot be meant":     "cannot be meant",
	} {
		if got := found.FindString(words(line)); got != want {
			t.Errorf("%q: found %q, want %q", line, got, want)
		}
	}
}

// instead says what to write for a retired word.
func instead(word string) string {
	for pattern, other := range retired {
		if regexp.MustCompile(`^(` + pattern + `)$`).MatchString(word) {
			return other
		}
	}
	return fmt.Sprintf("%q is not in the list", word)
}

// words splits the names within a text as well: takeBack and take_back are "take back". All are in lower
// case.
func words(text string) string {
	var b strings.Builder
	lower := false
	for _, r := range text {
		if !unicode.IsLetter(r) || lower && unicode.IsUpper(r) {
			if s := b.String(); s != "" && !strings.HasSuffix(s, " ") {
				b.WriteByte(' ')
			}
		}
		if unicode.IsLetter(r) {
			b.WriteRune(unicode.ToLower(r))
		}
		lower = unicode.IsLower(r)
	}
	return b.String()
}
