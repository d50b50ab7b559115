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

func TestHelp(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"help":          {"--help"},
		"help_serve":    {"serve", "--help"},
		"help_demo":     {"demo", "--help"},
		"help_bench":    {"bench", "--help"},
		"help_listen":   {"listen", "--help"},
		"help_callback": {"callback", "send", "--help"},
		"help_endpoint": {"endpoint", "set", "--help"},
		"help_poll":     {"poll", "create", "--help"},
		"help_schedule": {"schedule", "set", "--help"},
		"help_key":      {"key", "create", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term := program.Terminal()
			term.Ends(t, console.ExitOK, args...)
			cmdtest.Golden(t, name, term.Stdout.String())
		})
	}
}

func TestCommandLinesThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	lines := [][]string{
		{"callback", "send", "--url", "http://h/", "-H", "X: 1", "-H", "X: 2"},
		{"endpoint", "get", ""},
		{"poll", "create", "--ref", "r", "--url", "http://h/", "--failure", "/state=A, B"},
	}
	for _, line := range []string{
		"frobnicate", "serve --frobnicate", "endpoint", "project set p --policy x --clear policy",
		"project set p --clear id", "demo --redis-url redis://h", "callback get", "serve --listen",
		"callback cancel", "callback cancel cb_1 --ref r", "callback cancel cb_1 --topic t",
		"callback cancel cb_1 --include-terminal", "callback send --url http://h/ --policy p --tiers 1s",
		"callback send --url http://h/ --timeout 1s", "callback send --url http://h/ -H X",
		"verify --server localhost", "callback retry cb_1 --ladder twice", "listen --respond 100",
		"callback send", "callback send --url http://h/ --policy {tiers}",
		"callback send --url http://h/ --success @/does/not/exist",
		"callback send --url http://h/ --signer @", "key create n --scope write", "key create n",
		"key revoke dk_x", "endpoint set m", "endpoint set m --rate 1/s --clear rate",
		"endpoint set m --clear url", "endpoint set m --enable --disable",
		"pause --for 1h --until 2027-01-01T00:00:00Z", "lane limit l --rate 1/s --clear rate", "lane limit l",
		"lane list --limit 0", "endpoint test m --wait --timeout soon", "signer list rot13",
		"callback send --url http://h/ --repeat-last", "poll create --url http://h/ --success /s=A",
		"poll create --ref r --success /s=A", "poll create --ref r --url http://h/",
		"poll create --ref r --url http://h/ --success state=A",
		"poll create --ref r --url http://h/ --success /state=",
		"poll create --ref r --url http://h/ --hold-if {pointer}",
		"poll create --ref r --url http://h/ --success /s=A --context a",
		"poll create --ref r --url http://h/ --success /s=A --deadline 1h",
		"poll create --ref r --url http://h/ --success /s=A --on-result {} --on-result-url http://h/",
		"poll create --ref r --url http://h/ --success /s=A --on-result http://h/",
		"poll resolve cb_1 --data {", "schedule create --cron @daily --url http://h/",
		"schedule create --name n --url http://h/", "schedule create --name n --cron @daily",
		"schedule set sc_1 --payload {}", "schedule set sc_1 --callback {} --url http://h/",
		"schedule set sc_1 --callback {} --callback-file f", "schedule set sc_1 --callback http://h/",
		"schedule set sc_1 --callback-file /does/not/exist", "schedule set sc_1 --reason r",
		"schedule set sc_1 --enabled --disabled",
	} {
		lines = append(lines, strings.Fields(line))
	}
	for _, args := range lines {
		term := program.Terminal("DISPATCHER_KEY=k")
		term.Ends(t, console.ExitUsage, args...)
		if said := term.Lines(); len(said) != 1 || !strings.HasPrefix(said[0], "dispatcher: ") {
			t.Errorf("%q: wants one line, got %q", args, said)
		}
	}
}

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
		if term := program.Terminal(); term.Invoke(append(n.Path, "--help")...) != console.ExitOK || !strings.Contains(term.Stdout.String(), "Usage: dispatcher") {
			t.Errorf("%q has no help: %s", name, term.Stderr.String())
		}
	}
}

// A line that cannot be parsed says which help is about it.
func TestUsageErrorsNameTheHelpThatHelps(t *testing.T) {
	t.Parallel()
	for help, args := range map[string][]string{
		"dispatcher --help": {"frobnicate"}, "dispatcher endpoint --help": {"endpoint"}, "dispatcher endpoint get --help": {"endpoint", "get"}, "dispatcher key create --help": {"key", "create", "n", "--scope", "x"},
	} {
		term := program.Terminal()
		if code := term.Invoke(args...); code != console.ExitUsage || !strings.HasSuffix(term.Stderr.String(), "(see \""+help+"\")\n") {
			t.Errorf("%v: exit code %d: %s", args, code, term.Stderr.String())
		}
	}
}

func TestNoCommandShowsTheHelpAndIsNoSuccess(t *testing.T) {
	t.Parallel()
	term := program.Terminal()
	term.Ends(t, console.ExitUsage)
	if !strings.Contains(term.Stdout.String(), "callback") {
		t.Errorf("no help: %q", term.Stdout.String())
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
