package main

import (
	"strings"
	"testing"
)

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
			term := newTerminal()
			if code := term.invoke(args...); code != exitOK {
				t.Errorf("exit code %d", code)
			}
			golden(t, name, term.stdout.String())
		})
	}
}

func TestCommandLinesThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"unknown command":            {"frobnicate"},
		"unknown flag":               {"serve", "--frobnicate"},
		"command without its own":    {"endpoint"},
		"default that contradicts":   {"project", "set", "p", "--policy", "x", "--clear", "policy", "--key", "k"},
		"default that cannot go":     {"project", "set", "p", "--clear", "id"},
		"flag of another command":    {"demo", "--redis-url", "redis://h"},
		"missing argument":           {"callback", "get"},
		"missing value":              {"serve", "--listen"},
		"neither id nor ref":         {"callback", "cancel"},
		"both id and ref":            {"callback", "cancel", "cb_1", "--ref", "r"},
		"topic without ref":          {"callback", "cancel", "cb_1", "--topic", "t"},
		"end without ref":            {"callback", "cancel", "cb_1", "--include-terminal"},
		"policy and tiers":           {"callback", "send", "--url", "http://h/", "--policy", "p", "--tiers", "1s"},
		"timeout without tiers":      {"callback", "send", "--url", "http://h/", "--timeout", "1s"},
		"header without colon":       {"callback", "send", "--url", "http://h/", "-H", "X"},
		"server that is no address":  {"verify", "--server", "localhost", "--key", "k"},
		"ladder that does not exist": {"callback", "retry", "cb_1", "--ladder", "twice"},
		"status out of range":        {"listen", "--respond", "100"},
		"neither url nor endpoint":   {"callback", "send", "--key", "k"},
		"policy that is no JSON":     {"callback", "send", "--url", "http://h/", "--policy", "{tiers}"},
		"file that is not there":     {"callback", "send", "--url", "http://h/", "--success", "@/does/not/exist"},
		"file without a name":        {"callback", "send", "--url", "http://h/", "--signer", "@"},
		"header twice":               {"callback", "send", "--url", "http://h/", "-H", "X: 1", "-H", "X: 2"},
		"scope that does not exist":  {"key", "create", "n", "--scope", "write"},
		"key without a scope":        {"key", "create", "n"},
		"key in place of its id":     {"key", "revoke", "dk_x", "--key", "k"},
		"nothing to change":          {"endpoint", "set", "m", "--key", "k"},
		"change that contradicts":    {"endpoint", "set", "m", "--rate", "1/s", "--clear", "rate", "--key", "k"},
		"field that cannot go":       {"endpoint", "set", "m", "--clear", "url", "--key", "k"},
		"on and off":                 {"endpoint", "set", "m", "--enable", "--disable"},
		"empty name of an endpoint":  {"endpoint", "get", "", "--key", "k"},
		"two ends of a pause":        {"pause", "--for", "1h", "--until", "2027-01-01T00:00:00Z"},
		"bound that contradicts":     {"lane", "limit", "l", "--rate", "1/s", "--clear", "rate", "--key", "k"},
		"no bound at all":            {"lane", "limit", "l", "--key", "k"},
		"list of nothing":            {"lane", "list", "--limit", "0", "--key", "k"},
		"time that is none":          {"endpoint", "test", "m", "--wait", "--timeout", "soon"},
		"signer that does not exist": {"signer", "list", "rot13"},
		"repeat without tiers":       {"callback", "send", "--url", "http://h/", "--repeat-last"},
		"poll without ref":           {"poll", "create", "--url", "http://h/", "--success", "/s=A", "--key", "k"},
		"poll of nothing":            {"poll", "create", "--ref", "r", "--success", "/s=A", "--key", "k"},
		"poll without an end":        {"poll", "create", "--ref", "r", "--url", "http://h/", "--key", "k"},
		"predicate in no form":       {"poll", "create", "--ref", "r", "--url", "http://h/", "--success", "state=A", "--key", "k"},
		"predicate without a value":  {"poll", "create", "--ref", "r", "--url", "http://h/", "--success", "/state=", "--key", "k"},
		"predicate with a space":     {"poll", "create", "--ref", "r", "--url", "http://h/", "--failure", "/state=A, B", "--key", "k"},
		"predicate that is no JSON":  {"poll", "create", "--ref", "r", "--url", "http://h/", "--hold-if", "{pointer}", "--key", "k"},
		"context that is no JSON":    {"poll", "create", "--ref", "r", "--url", "http://h/", "--success", "/s=A", "--context", "a", "--key", "k"},
		"deadline without tiers":     {"poll", "create", "--ref", "r", "--url", "http://h/", "--success", "/s=A", "--deadline", "1h", "--key", "k"},
		"two results":                {"poll", "create", "--ref", "r", "--url", "http://h/", "--success", "/s=A", "--on-result", "{}", "--on-result-url", "http://h/", "--key", "k"},
		"result that is no object":   {"poll", "create", "--ref", "r", "--url", "http://h/", "--success", "/s=A", "--on-result", "http://h/", "--key", "k"},
		"data that is no JSON":       {"poll", "resolve", "cb_1", "--data", "{", "--key", "k"},
		"schedule without a name":    {"schedule", "create", "--cron", "@daily", "--url", "http://h/", "--key", "k"},
		"schedule without a time":    {"schedule", "create", "--name", "n", "--url", "http://h/", "--key", "k"},
		"schedule of nothing":        {"schedule", "create", "--name", "n", "--cron", "@daily", "--key", "k"},
		"payload to nobody":          {"schedule", "set", "sc_1", "--payload", "{}", "--key", "k"},
		"callback in two ways":       {"schedule", "set", "sc_1", "--callback", "{}", "--url", "http://h/", "--key", "k"},
		"callback twice":             {"schedule", "set", "sc_1", "--callback", "{}", "--callback-file", "f", "--key", "k"},
		"callback that is no object": {"schedule", "set", "sc_1", "--callback", "http://h/", "--key", "k"},
		"callback that is not there": {"schedule", "set", "sc_1", "--callback-file", "/does/not/exist", "--key", "k"},
		"no change of a schedule":    {"schedule", "set", "sc_1", "--reason", "r", "--key", "k"},
		"schedule on and off":        {"schedule", "set", "sc_1", "--enabled", "--disabled", "--key", "k"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term := newTerminal()
			if code := term.invoke(args...); code != exitUsage {
				t.Errorf("exit code %d, not %d", code, exitUsage)
			}
			if lines := term.lines(); len(lines) != 1 || !strings.HasPrefix(lines[0], "dispatcher: ") {
				t.Errorf("wants one line, got %q", lines)
			}
		})
	}
}

// Every command says what it does, and so does every flag and argument of it.
func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&newTerminal().console, &commands{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range commandNodes(parser.Model.Node, nil) {
		name := strings.Join(n.path, " ")
		if n.node.Help == "" {
			t.Errorf("%q says nothing", name)
		}
		for _, flag := range n.node.Flags {
			if flag.Help == "" {
				t.Errorf("%q: --%s says nothing", name, flag.Name)
			}
		}
		for _, arg := range n.node.Positional {
			if arg.Help == "" {
				t.Errorf("%q: %s says nothing", name, arg.Name)
			}
		}
		if term := newTerminal(); term.invoke(append(n.path, "--help")...) != exitOK || !strings.Contains(term.stdout.String(), "Usage: dispatcher") {
			t.Errorf("%q has no help: %s", name, term.stderr.String())
		}
	}
}

// A line that cannot be parsed says which help is about it.
func TestUsageErrorsNameTheHelpThatHelps(t *testing.T) {
	t.Parallel()
	for help, args := range map[string][]string{
		"dispatcher --help": {"frobnicate"}, "dispatcher endpoint --help": {"endpoint"}, "dispatcher endpoint get --help": {"endpoint", "get"}, "dispatcher key create --help": {"key", "create", "n", "--scope", "x"},
	} {
		term := newTerminal()
		if code := term.invoke(args...); code != exitUsage || !strings.HasSuffix(term.stderr.String(), "(see \""+help+"\")\n") {
			t.Errorf("%v: exit code %d: %s", args, code, term.stderr.String())
		}
	}
}

func TestNoCommandShowsTheHelpAndIsNoSuccess(t *testing.T) {
	t.Parallel()
	term := newTerminal()
	if code := term.invoke(); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(term.stdout.String(), "callback") {
		t.Errorf("no help: %q", term.stdout.String())
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	term := newTerminal()
	if code := term.invoke("version"); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if got := term.stdout.String(); !strings.HasPrefix(got, "dispatcher ") || strings.Count(got, "\n") != 1 {
		t.Errorf("got %q", got)
	}
}
