package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// root is the root of the project.
const root = "../.."

// A kind is what the test does with a block.
type kind int

const (
	data     kind = iota
	command       // runs in the page's shell
	terminal      // runs in a terminal
	file          // is saved
	output        // is what the block before it printed
	soon          // likewise, after a while
	shown         // is what a terminal printed
	notRun
)

// A block is one fenced block of a page.
type block struct {
	kind kind
	line int
	name string // of the terminal or the file; of notRun: the reason
	text string
}

// programs are languages of which a block must be saved and run, and shells those of which it must be "sh".
var (
	programs = []string{"go", "java", "javascript", "js", "python", "php"}
	shells   = []string{"bash", "shell", "console", "zsh"}
)

// pages returns the names of README.md and all pages below docs, from the root of the project.
func pages(t *testing.T) []string {
	names := []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(name) == ".md" {
			name, err = filepath.Rel(root, name)
			names = append(names, name)
		}
		return err
	})
	harness.Check(t, err)
	return names
}

// elsewhere matches a command that acts on something that is not the test's: containers, a cluster, packages
// and services of this machine, or a server at its usual port.
var elsewhere = regexp.MustCompile(`(?m)^\s*(sudo|docker|podman|kubectl|helm|apt|apt-get|dpkg|rpm|` +
	`systemctl|journalctl|redis-cli|psql|make docker)\b`)

// readPage returns the blocks of a page, and what is wrong with them.
func readPage(t *testing.T, name string) (blocks []block, wrong []string) {
	text, err := os.ReadFile(filepath.Join(root, name))
	harness.Check(t, err)
	return parsePage(string(text))
}

// indented matches the first line of an indented block, which follows an empty line that ends no list.
var indented = regexp.MustCompile(`^(\t| {4,})\S`)

func parsePage(text string) (blocks []block, wrong []string) {
	var lines []string // of the open block
	var info string    // of the open block
	open, above := 0, ""
	for i, line := range strings.Split(text, "\n") {
		fence, rest, _ := strings.Cut(line, "```")
		switch {
		case open > 0 && line == "```":
			b, err := classify(info, strings.Join(lines, "\n"))
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("line %d: %v", open, err))
			}
			b.line = open
			blocks = append(blocks, b)
			open, lines = 0, nil
		case open > 0:
			lines = append(lines, line)
		case strings.TrimSpace(fence) == "" && rest != "" || line == "```":
			if fence != "" {
				wrong = append(wrong, fmt.Sprintf("line %d: a block within a list; move it out", i+1))
			}
			open, info = i+1, rest
		case indented.MatchString(line) && above == "":
			wrong = append(wrong, fmt.Sprintf("line %d: an indented block; use ```", i+1))
		}
		// A line of a list allows indented lines after an empty one.
		if line != "" || above != "" && !strings.ContainsAny(above[:1], "-*123456789 ") {
			above = line
		}
	}
	if open > 0 {
		wrong = append(wrong, fmt.Sprintf("line %d: the block does not end", open))
	}
	return blocks, wrong
}

// classify reads the line after the ``` of a block.
func classify(info, text string) (block, error) {
	language, rest, _ := strings.Cut(info, " ")
	b := block{text: text, name: strings.TrimPrefix(rest, "@")}
	reason, unexplained := strings.CutPrefix(rest, "not run:")
	switch {
	case unexplained:
		b.kind, b.name = notRun, strings.TrimSpace(reason)
		if b.name == "" {
			return b, fmt.Errorf("no reason why %q is not run", info)
		}
	case language == "":
		return b, fmt.Errorf("a block without a language; write sh, text, json or another")
	case slices.Contains(shells, language):
		return b, fmt.Errorf("the language of commands is sh, not %s", language)
	case language == "sh" && elsewhere.MatchString(text):
		return b, fmt.Errorf("%q acts on more than the directory of the test; say why it is not run",
			strings.TrimSpace(elsewhere.FindString(text)))
	case language == "sh" && rest == "":
		b.kind = command
	case language == "sh" && strings.HasPrefix(rest, "@"):
		b.kind = terminal
	case language == "text" && rest == "output":
		b.kind = output
	case language == "text" && rest == "soon":
		b.kind = soon
	case language == "text" && strings.HasPrefix(rest, "@"):
		b.kind = shown
	case language == "sh" || language == "text" && rest != "":
		return b, fmt.Errorf("%q is not known after %s", rest, language)
	case rest != "":
		b.kind = file
	case language == "json":
		return b, checkJSON(text)
	case slices.Contains(programs, language):
		return b, fmt.Errorf("name the file of the program and run it, or say why it is not run")
	}
	return b, nil
}

// checkJSON reports whether a text is a sequence of JSON values.
func checkJSON(text string) error {
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var value any
		switch err := d.Decode(&value); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("not JSON: %w", err)
		}
	}
}

func TestBlocksAreClassified(t *testing.T) {
	const fence = "```"
	for text, want := range map[string]string{
		"sh\nls":                      "[{1 1  ls}] []",
		"sh @server\nls":              "[{2 1 server ls}] []",
		"go a.go\npackage a\n\nvar a": "[{3 1 a.go package a\n\nvar a}] []",
		"text output\n…":              "[{4 1 output …}] []",
		"text soon\n…":                "[{5 1 soon …}] []",
		"text @server\n…":             "[{6 1 server …}] []",
		"sh not run: a reason\nls":    "[{7 1 a reason ls}] []",
		"json\n{}\n{}":                "[{0 1  {}\n{}}] []",
		"json\n{a}": "[{0 1  {a}}] [line 1: not JSON: invalid character 'a' " +
			"looking for beginning of object key string]",
		"text\n    indented": "[{0 1      indented}] []",
		"\nls": "[{0 1  ls}] [line 1: a block without a language; " +
			"write sh, text, json or another]",
		"bash\nls":        "[{0 1  ls}] [line 1: the language of commands is sh, not bash]",
		"sh not run:\nls": `[{7 1  ls}] [line 1: no reason why "sh not run:" is not run]`,
		"sh\nls\n  sudo ls": `[{0 1  ls
  sudo ls}] [line 1: "sudo" acts on more than the directory of the test; say why it is not run]`,
		"sh server\nls": `[{0 1 server ls}] [line 1: "server" is not known after sh]`,
		"go\npackage a": "[{0 1  package a}] [line 1: name the file of the program and run it, " +
			"or say why it is not run]",
	} {
		blocks, wrong := parsePage(fence + text + "\n" + fence + "\n")
		if got := fmt.Sprint(blocks, " ", wrong); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"a\n\n    ls\n":           "[line 3: an indented block; use ```]",
		"- a\n\n    more of a\n":  "[]",
		"- a\n  ```sh\nls\n```\n": "[line 2: a block within a list; move it out]",
		"a\n\n```sh\nls\n":        "[line 3: the block does not end]",
	} {
		if _, wrong := parsePage(text); fmt.Sprint(wrong) != want {
			t.Errorf("%q: %q, want %s", text, wrong, want)
		}
	}
}
