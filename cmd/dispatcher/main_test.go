package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cli"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// program is the whole program.
var program = cmdtest.Program(func() any { return newGrammar() })

func TestMain(m *testing.M) { program.RunTests(m) }

func TestTranscripts(t *testing.T) { program.Transcripts(t, "DISPATCHER_KEY=k") }

// TestEveryCommandHasHelp checks the help of each command, flag and argument: that there is one, that its
// lines have at most 80 columns, and that its examples are accepted by the grammar.
func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	examples := newGrammar().Examples()
	for _, n := range cli.CommandNodes(parser(t).Model.Node, nil) {
		name := strings.Join(n.Path, " ")
		if n.Node.Help == "" {
			t.Errorf("%q has no help", name)
		}
		for _, flag := range n.Node.Flags {
			if flag.Help == "" {
				t.Errorf("%q: --%s has no help", name, flag.Name)
			}
		}
		for _, arg := range n.Node.Positional {
			if arg.Help == "" {
				t.Errorf("%q: %s has no help", name, arg.Name)
			}
		}
		term := program.Terminal()
		term.Ends(t, console.ExitOK, append(n.Path, "--help")...)
		cmdtest.Contains(t, term.Stdout.String(), "Usage: dispatcher", "Example:", examples[name])
		for line := range strings.Lines(term.Stdout.String()) {
			if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
				t.Errorf("%q: a line of its help is longer than 80 columns: %s", name, line)
			}
		}
		checkExample(t, name, examples[name])
		delete(examples, name)
	}
	for name := range examples {
		t.Errorf("examples.txt has %q, which is no command", name)
	}
}

// parser returns the parser of the whole grammar.
func parser(t *testing.T) *kong.Kong {
	t.Helper()
	p, err := console.NewParser(&program.Terminal().Console, newGrammar())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// checkExample parses the command lines of an example, which must be for this command or one below it.
func checkExample(t *testing.T, name, example string) {
	t.Helper()
	lines := 0
	for line := range strings.SplitSeq(strings.ReplaceAll(example, "\\\n", " "), "\n") {
		_, line, found := strings.Cut(line, "dispatcher ")
		if !found { // a comment
			continue
		}
		lines++
		args := cmdtest.Arguments(strings.TrimSuffix(line, ")"))
		end := slices.IndexFunc(args, func(arg string) bool { return arg == "#" || arg == "|" || arg == ">" })
		if end >= 0 {
			args = args[:end]
		}
		parsed, err := parser(t).Parse(args)
		if err != nil {
			t.Errorf("%q: the example %q does not parse: %v", name, line, err)
			continue
		}
		if !strings.HasPrefix(parsed.Command()+" ", strings.TrimSpace(name+" ")) {
			t.Errorf("%q: the example %q is for %q", name, line, parsed.Command())
		}
	}
	if lines == 0 {
		t.Errorf("%q has no example: add one to examples.txt", name)
	}
}

// TestCommandsInTextsParse parses the commands within the sentences of the pages. They may lack arguments.
// Another test runs those in blocks.
func TestCommandsInTextsParse(t *testing.T) {
	t.Parallel()
	span := regexp.MustCompile("(?s)`dispatcher ([a-z][^`]*)`")
	checked := 0
	for _, pages := range []string{"README*.md", "docs/guide/*.md", "docs/reference/*.md", "docs/zh/*.md"} {
		found, err := filepath.Glob("../../" + pages)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range found {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range span.FindAllStringSubmatch(string(text), -1) {
				checked++
				args := cmdtest.Arguments(strings.Join(strings.Fields(match[1]), " "))
				if end := slices.Index(args, ">"); end >= 0 {
					args = args[:end]
				}
				_, err := parser(t).Parse(args)
				lacks := err != nil && regexp.MustCompile(`^(--\S+: )?expected `).MatchString(err.Error())
				if err != nil && !lacks && match[1] != "is serving" { // a line of the log
					t.Errorf("%s: %q does not parse: %v", page, match[0], err)
				}
			}
		}
	}
	if checked < 30 {
		t.Errorf("found %d commands", checked)
	}
}

// TestEachCommandIsInTheReference writes the tables of docs/reference/commands.md, one for each group of
// commands.
func TestEachCommandIsInTheReference(t *testing.T) {
	t.Parallel()
	tables, titles := map[string]string{}, []string{}
	for _, n := range cli.CommandNodes(parser(t).Model.Node, nil) {
		if len(n.Path) == 0 {
			continue
		}
		title := n.Node.ClosestGroup().Title
		if len(n.Path) > 1 {
			title = n.Node.Parent.Group.Title
		}
		title = strings.TrimSuffix(title, ":")
		if !slices.Contains(titles, title) {
			titles = append(titles, title)
		}
		if len(n.Node.Children) == 0 {
			tables[title] += fmt.Sprintf("| `%s` | %s |\n", strings.Join(n.Path, " "), n.Node.Help)
		}
	}
	page := ""
	for _, title := range titles {
		page += fmt.Sprintf("\n### %s\n\n| command | does |\n|---|---|\n%s", title, tables[title])
	}
	transcript.Block(t, "../../docs/reference/commands.md", "commands", page+"\n")
}

func TestVersion(t *testing.T) {
	t.Parallel()
	term := program.Terminal()
	term.Ends(t, console.ExitOK, "version")
	if got := term.Stdout.String(); !strings.HasPrefix(got, "dispatcher ") || strings.Count(got, "\n") != 1 {
		t.Errorf("got %q", got)
	}
}

// TestCompletion checks that the scripts contain the commands and flags. bash runs its script.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		term := program.Terminal()
		term.Ends(t, console.ExitOK, "completion", shell)
		for _, word := range []string{"doctor", "import", "callback", "send", "hold", "unknown", "bench",
			"phases", "rotate-secret", "operate", "on-result-url", "runs"} {
			if !strings.Contains(term.Stdout.String(), word) {
				t.Errorf("%s: no %q in\n%s", shell, word, term.Stdout.String())
			}
		}
		if strings.Contains(term.Stdout.String(), "bench-server") {
			t.Errorf("%s: contains a hidden command", shell)
		}
		if shell != "bash" || testing.Short() { // the short tests need nothing installed
			continue
		}
		transcript.Run(t, "testdata/lines/completion.txt", func(line string) string {
			last := strconv.Itoa(len(strings.Fields(line)) - 1)
			script := term.Stdout.String() + "\nCOMP_WORDS=(" + line + ")\nCOMP_CWORD=" + last +
				"\n_dispatcher\necho \"${COMPREPLY[@]}\""
			bash := exec.Command("bash") // the script is too long for an argument
			bash.Stdin = strings.NewReader(script)
			out, err := bash.CombinedOutput()
			if err != nil {
				t.Errorf("%q: %v", line, err)
			}
			return string(out)
		})
	}
	program.Terminal().Ends(t, console.ExitUsage, "completion", "csh")
}
