package main

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cli"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// program is the whole program.
var program = cmdtest.Program(func() any { return newGrammar() })

func TestMain(m *testing.M) { program.RunTests(m) }

func TestTranscripts(t *testing.T) { program.Transcripts(t, "DISPATCHER_KEY=k") }

// TestEveryCommandHasHelp checks the help of each command, flag and argument.
func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	parser, err := console.NewParser(&program.Terminal().Console, newGrammar())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range cli.CommandNodes(parser.Model.Node, nil) {
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
		cmdtest.Contains(t, term.Stdout.String(), "Usage: dispatcher")
	}
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
			out, err := exec.Command("bash", "-c", script).CombinedOutput()
			if err != nil {
				t.Errorf("%q: %v", line, err)
			}
			return string(out)
		})
	}
	program.Terminal().Ends(t, console.ExitUsage, "completion", "csh")
}
