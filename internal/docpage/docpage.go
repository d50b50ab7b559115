// Package docpage reads the code blocks of README.md and CONTRIBUTING.md, and of all pages below docs and
// deploy. Package e2e/docs runs them. Pages in Chinese (docs/zh and README.zh.md) are not read: their blocks
// are those of the English pages, which a test in the root compares.
//
// The word after the language of a block decides what happens with it. Readers do not see it.
//
//	```sh                  runs in the page's shell, in the order of the page; it must exit with 0
//	```sh @NAME            runs in a terminal of that name until the page ends. The test waits until it
//	                       prints "listening" or "is serving". A second block of the same name ends the
//	                       first with Ctrl-C
//	```LANGUAGE FILE       is saved under that name: a program or a file that a later block uses
//	```LANGUAGE not run: R is listed with the reason R, and not run
//	```text output         is what the block before it printed; "…" stands for any text, and on a line alone
//	                       for any lines
//	```text soon           likewise; the block before it runs again until it prints this
//	```text @NAME          is what the terminal has printed, maybe among other lines
//
// Blocks in other languages are data; JSON must be valid. These fail the test: a block without a language, an
// indented one, commands in a language other than sh, a program without a file, and a command that acts on
// containers, a cluster, or packages and services of the machine and is not marked as not run.
package docpage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A Kind is what happens with a block.
type Kind int

// The kinds of blocks.
const (
	Data     Kind = iota
	Command       // runs in the page's shell
	Terminal      // runs in a terminal
	File          // is saved
	Output        // is what the block before it printed
	Soon          // likewise, after a while
	Shown         // is what a terminal printed
	NotRun
)

// A Block is one fenced block of a page.
type Block struct {
	Kind Kind
	Line int
	Name string // of the terminal or the file; of NotRun: the reason
	Text string
}

// Runs reports whether the block is a command that runs.
func (b Block) Runs() bool { return b.Kind == Command || b.Kind == Terminal }

// A Page is one of the files that Read reads.
type Page struct {
	Name   string
	Blocks []Block
	Wrong  []string // what is wrong with the blocks
}

// Read reads all pages of a project.
func Read(project fs.FS) (pages []Page, err error) {
	err = fs.WalkDir(project, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		top, _, _ := strings.Cut(name, "/")
		below := top == "docs" || top == "deploy"
		if d.IsDir() && name != "." && (!below || name == "docs/zh") {
			return fs.SkipDir
		}
		isPage := below || name == "README.md" || name == "CONTRIBUTING.md"
		if d.IsDir() || path.Ext(name) != ".md" || !isPage {
			return nil
		}
		text, err := fs.ReadFile(project, name)
		blocks, wrong := Parse(string(text))
		pages = append(pages, Page{name, blocks, wrong})
		return err
	})
	return pages, err
}

// programs are languages of which a block must be saved and run, and shells those of which it must be "sh".
var (
	programs = []string{"go", "java", "javascript", "js", "python", "php", "sql"}
	shells   = []string{"bash", "shell", "console", "zsh"}
)

// elsewhere matches a command that acts on something that is not the test's: containers, a cluster, packages
// and services of this machine, or a server at its usual port.
var elsewhere = regexp.MustCompile(`(?m)^\s*(sudo|docker|podman|kubectl|helm|apt|apt-get|dpkg|rpm|` +
	`systemctl|journalctl|redis-cli|psql|make docker)\b`)

// indented matches the first line of an indented block, which follows an empty line that ends no list.
var indented = regexp.MustCompile(`^(\t| {4,})\S`)

// Parse returns the blocks of a page, and what is wrong with them.
func Parse(text string) (blocks []Block, wrong []string) {
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
			b.Line = open
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
func classify(info, text string) (Block, error) {
	language, rest, _ := strings.Cut(info, " ")
	b := Block{Text: text, Name: strings.TrimPrefix(rest, "@")}
	reason, unexplained := strings.CutPrefix(rest, "not run:")
	switch {
	case unexplained:
		b.Kind, b.Name = NotRun, strings.TrimSpace(reason)
		if b.Name == "" {
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
		b.Kind = Command
	case language == "sh" && strings.HasPrefix(rest, "@"):
		b.Kind = Terminal
	case language == "text" && rest == "output":
		b.Kind = Output
	case language == "text" && rest == "soon":
		b.Kind = Soon
	case language == "text" && strings.HasPrefix(rest, "@"):
		b.Kind = Shown
	case language == "sh" || language == "text" && rest != "":
		return b, fmt.Errorf("%q is not known after %s", rest, language)
	case rest != "":
		b.Kind = File
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
