package main

import (
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cli"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// program is the whole program.
var program = cmdtest.Program(func() any { return newGrammar() })

func TestMain(m *testing.M) { program.RunTests(m) }

func TestTranscripts(t *testing.T) { program.Transcripts(t, "DISPATCHER_KEY=k") }

// Every command says what it does, and so does every flag and argument of it.
func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	parser, err := console.NewParser(&program.Terminal().Console, newGrammar())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range cli.CommandNodes(parser.Model.Node, nil) {
		name := strings.Join(n.Path, " ")
		if n.Node.Help == "" {
			t.Errorf("%q says nothing", name)
		}
		for _, flag := range n.Node.Flags {
			if flag.Help == "" {
				t.Errorf("%q: --%s says nothing", name, flag.Name)
			}
		}
		for _, arg := range n.Node.Positional {
			if arg.Help == "" {
				t.Errorf("%q: %s says nothing", name, arg.Name)
			}
		}
		term := program.Terminal()
		term.Ends(t, console.ExitOK, append(n.Path, "--help")...)
		cmdtest.Says(t, term.Stdout.String(), "Usage: dispatcher")
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
