package dispatcher

import (
	"encoding/json"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// maxWords is the maximum of words in a sentence that users read.
const maxWords = 25

// foreignWords are words that texts for users do not have, beside the retired ones.
var foreignWords = regexp.MustCompile(`(?i)\b(anew|beside (it|them)|by (it|them)sel(f|ves)|told|tells?|` +
	`put(s|ting)? (off|back)|hand(s|ed|ing)? over|of its own|books|ladders?|by hand|charged?|somebody)\b`)

// named are names of the API and of the command line, and data within texts.
var named = regexp.MustCompile("`[^`]*`|“[^”]*”|\"[^\"]*\"|--[a-z-]+|https?://\\S+|/v1/\\S+|" +
	`\w*_[\w.]*\w`)

// TestTextsForUsersArePlain checks the words of the pages, of the engine, of the problems and descriptions of
// the API, of the command line's help, of the log and of the docs, and the length of their sentences.
func TestTextsForUsersArePlain(t *testing.T) {
	for source, all := range textsForUsers(t) {
		if len(all) < 20 {
			t.Errorf("%s has %d texts: the test looks in the wrong place", source, len(all))
		}
		for _, text := range all {
			text = named.ReplaceAllString(text, "NAME")
			if word := foreignWords.FindString(text); word != "" {
				t.Errorf("%s says %q: %s", source, word, text)
			}
			if source == tables {
				continue
			}
			for _, sentence := range sentenceEnd.Split(text, -1) {
				if n := len(strings.Fields(sentence)); n > maxWords {
					t.Errorf("%s: a sentence has %d words; at most %d: %s", source, n, maxWords, sentence)
				}
			}
		}
	}
}

func TestPlainTextsAreTested(t *testing.T) {
	for text, want := range map[string]string{
		"The receiver will not be told.":                   "told",
		"It is put back, and sent anew.":                   "put back",
		"Set `ladder`, or --ladder once.":                  "",
		"See “tells” in https://shop.example/by-hand now.": "",
	} {
		if got := foreignWords.FindString(named.ReplaceAllString(text, "NAME")); got != want {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}
}

var sentenceEnd = regexp.MustCompile(`[.?!:;]+[*)]*(\s+|$)|\n\s*\n|\n\s*-`)

// textsForUsers returns the texts by where they are.
func textsForUsers(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	catalogues, err := filepath.Glob("web/ui/texts/en/*.json")
	if err != nil {
		t.Fatal(err)
	}
	read := texts(t)
	decode := func(name string) map[string]string {
		var all map[string]string
		if err := json.Unmarshal([]byte(read[name]), &all); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return all
	}
	for _, name := range catalogues {
		found["the pages"] = slices.AppendSeq(found["the pages"], maps.Values(decode(filepath.ToSlash(name))))
	}
	found["the engine"] = slices.Collect(maps.Keys(decode("web/ui/texts/engine/zh.json")))
	for _, f := range files(t) {
		switch {
		case f.test:
		case f.dir == "web/httperr":
			found["problems"] = append(found["problems"], literals(f.ast)...)
		case f.dir == "dispatch/control" && strings.HasSuffix(f.path, "blocks.go"):
			found["explanations"] = append(found["explanations"], literals(f.ast)...)
		case strings.HasPrefix(f.dir, "cmd/dispatcher"):
			found["help"] = append(found["help"], helpTexts(f.ast)...)
		}
		if !f.test && !strings.HasPrefix(f.dir, "e2e") {
			found["the log"] = append(found["the log"], logMessages(f.ast)...)
		}
	}
	for name, text := range read {
		if path.Ext(name) == ".md" && !chinesePage.MatchString(name) && !slices.Contains(reports, name) {
			found["the docs"] = append(found["the docs"], paragraphs(name, text)...)
			found[tables] = append(found[tables], tableRows(name, text)...)
		}
	}
	found["openapi.yaml"] = descriptions(read["web/api/openapi.yaml"])
	return found
}

// tables are the rows of tables in docs. Their cells are no sentences.
const tables = "the tables of the docs"

func tableRows(name, page string) (all []string) {
	for line := range strings.Lines(page) {
		if tableRow.MatchString(line) {
			all = append(all, name+": "+line)
		}
	}
	return all
}

var chinesePage = regexp.MustCompile(`^docs/zh/|\.zh\.md$`)

// reports are pages that tests and tools write.
var reports = []string{"docs/reports/alerts.md", "docs/reports/faults.md", "docs/reports/licenses.md",
	"docs/reports/relay.md"}

// logLevels are the methods of a slog.Logger, by the number of arguments before the message.
var logLevels = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "DebugContext": 1, "InfoContext": 1, "WarnContext": 1,
	"ErrorContext": 1, "Log": 2,
}

// logMessages returns the messages that a file logs.
func logMessages(file *ast.File) (all []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if at, logs := logLevels[f.Sel.Name]; logs && at < len(call.Args) {
			if text, ok := joined(call.Args[at]); ok {
				all = append(all, text)
			}
		}
		return true
	})
	return all
}

var (
	markdownLink  = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	markdownItem  = regexp.MustCompile(`^\s*(>\s*)?([-*]|\d+\.) `)
	markdownBreak = regexp.MustCompile(`^\s*(#.*)?$|^\s*\||^\s*<`)
)

// paragraphs returns the paragraphs and items of a page, each behind the page's name. It leaves out code,
// tables and headings.
func paragraphs(name, page string) (all []string) {
	text := ""
	flush := func() {
		if text != "" {
			all = append(all, name+": "+markdownLink.ReplaceAllString(text, "$1"))
		}
		text = ""
	}
	for line := range strings.Lines(fencedCode.ReplaceAllString(page, "")) {
		if markdownBreak.MatchString(line) {
			flush()
			continue
		}
		if item := markdownItem.FindString(line); item != "" {
			flush()
			line = line[len(item):]
		}
		text += strings.TrimLeft(line, "> ")
	}
	flush()
	return all
}

var (
	yamlBlock  = regexp.MustCompile(`^( *)(?:- )?(?:description|summary): [|>]-?$`)
	yamlInline = regexp.MustCompile(`\b(?:description|summary): *("(?:[^"\\]|\\.)*"|[^|>{}"\s][^{}]*)`)
)

// descriptions returns the descriptions and summaries of a document in YAML.
func descriptions(document string) (all []string) {
	lines := strings.Split(document, "\n")
	for i := 0; i < len(lines); i++ {
		if m := yamlBlock.FindStringSubmatch(lines[i]); m != nil {
			indent, text := m[1]+" ", ""
			for i+1 < len(lines) && (lines[i+1] == "" || strings.HasPrefix(lines[i+1], indent)) {
				i++
				text += lines[i] + "\n"
			}
			all = append(all, paragraphs("openapi", text)...)
		} else if m := yamlInline.FindStringSubmatch(lines[i]); m != nil {
			text := m[1]
			for i+1 < len(lines) && !strings.HasSuffix(text, `"`) && strings.HasPrefix(text, `"`) {
				i++
				text += " " + strings.TrimSpace(lines[i])
			}
			all = append(all, strings.Trim(text, `"`))
		}
	}
	return all
}

// literals returns the texts of a file that have more than one word. Parts that are joined are one text.
func literals(n ast.Node) (all []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := joined(e)
		if ok && strings.Contains(text, " ") {
			all = append(all, text)
		}
		return !ok
	})
	return all
}

// joined returns the text of an expression of literals. Other parts of it become a name.
func joined(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok := joined(e.X)
		right, also := joined(e.Y)
		if !ok {
			left = "NAME"
		}
		if !also {
			right = "NAME"
		}
		return left + right, (ok || also) && e.Op == token.ADD
	}
	return "", false
}

var helpTag = regexp.MustCompile(`\bhelp:("(?:[^"\\]|\\.)*")`)

// helpTexts returns the help of commands and flags: the tags of fields and the results of Help.
func helpTexts(file *ast.File) (all []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if n.Tag == nil {
				break
			}
			if m := helpTag.FindStringSubmatch(n.Tag.Value); m != nil {
				if text, err := strconv.Unquote(m[1]); err == nil {
					all = append(all, text)
				}
			}
		case *ast.FuncDecl:
			if n.Name.Name == "Help" && n.Body != nil {
				all = append(all, literals(n.Body)...)
			}
		}
		return true
	})
	return all
}
