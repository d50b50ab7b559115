// Command dispatcher is the whole program: server, newcomer's demo, and the tools around them, one file a command.
//
// It is the only package that knows concrete technology: it reads the settings, opens SQL and the index that they
// name, and wires them to the engine and the web server. Rules of sending, storing and scheduling are not here.
//
// Guarantees: every wrong setting is reported at the start, each in one line, before anything is opened; secrets are
// in no output except where a person asked for one; the exit code is 0 for success, 1 for what went wrong while
// running, 2 for a command line or settings that cannot be meant.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes of the program.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// commands is the grammar of the command line.
type commands struct {
	Serve    serveCommand    `cmd:"" help:"Run the dispatcher: API, admin UI and workers in one process, or those that --roles names."`
	Demo     demoCommand     `cmd:"" help:"Show what the dispatcher does: a server, a flaky receiver, 30 payment notifications and a poll, live in the terminal."`
	Migrate  migrateCommand  `cmd:"" help:"Apply the SQL migrations, or show with --status which are applied."`
	Doctor   doctorCommand   `cmd:"" help:"Check SQL, Redis, clocks, keys, egress, disk and limits with the settings of serve; exit with 1 on an error."`
	Verify   verifyCommand   `cmd:"" help:"Compare SQL with the index of a running server; exit with 1 if they differ."`
	Rebuild  rebuildCommand  `cmd:"" help:"Rebuild the index of a running server from SQL, while it runs."`
	Callback callbackCommand `cmd:"" help:"Send, show, list, explain, cancel and retry callbacks through a running server."`
	Poll     pollCommand     `cmd:"" help:"Ask upstreams until their answers are final: make, show, list and resolve polls."`
	Schedule scheduleCommand `cmd:"" help:"Make, show, change, run and remove schedules, which make a callback at each time that a cron names."`
	Endpoint endpointCommand `cmd:"" help:"Make, show, change, hold and test endpoints, and rotate their secrets."`
	Lane     laneCommand     `cmd:"" help:"Show lanes with what waits in them; hold and bound them."`
	Pause    pauseCommand    `cmd:"" help:"Hold all that a project sends; callbacks are accepted."`
	Resume   resumeCommand   `cmd:"" help:"Let a paused project go on."`
	Policy   policyCommand   `cmd:"" help:"Show the policies that can be named, with tiers, sums and times."`
	Signer   signerCommand   `cmd:"" help:"Explain the signers, their options and their secrets."`
	Key      keyCommand      `cmd:"" help:"Make, list and revoke API keys."`
	Secrets  secretsCommand  `cmd:"" help:"Print and rotate a project's own secrets; re-encrypt with a new master key."`
	Audit    auditCommand    `cmd:"" help:"List who has changed what, and check the chain over it."`
	Project  projectCommand  `cmd:"" help:"Make and list projects, and set their defaults."`
	Import   importCommand   `cmd:"" help:"Hand over a file of callbacks, one a line, through a running server; what is run again makes nothing twice."`
	Bench    benchCommand    `cmd:"" help:"Measure a server, one of its own or a running one: accepted and sent callbacks a second, latency, lateness."`
	Listen   listenCommand   `cmd:"" help:"Receive callbacks here, print them, and verify their signatures."`
	Config   configCommand   `cmd:"" help:"Show the effective settings with secrets masked, and where each value came from."`
	Version  versionCommand  `cmd:"" help:"Show the version of this program."`

	Completion completionCommand `cmd:"" help:"Print a script that lets bash, zsh or fish complete commands and flags."`

	BenchServer benchServerCommand `cmd:"" hidden:"" help:"The server that bench starts for itself."`
}

func main() {
	os.Exit(run(systemConsole(), os.Args[1:]))
}

// exitStatus is an error that has already been shown: it only carries the exit code.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// usageError is a command line, or settings, that cannot be meant: one line for each thing that is wrong.
type usageError struct{ lines []string }

func (e *usageError) Error() string { return strings.Join(e.lines, "\n") }

// helpShown is what ends the parser after it has printed a help text.
type helpShown struct{}

// run is the program without its process: it returns the exit code.
func run(c *console, args []string) (code int) {
	afterHelp := exitOK
	if len(args) == 0 {
		// A newcomer's first try: the help, but nothing was done.
		args, afterHelp = []string{"--help"}, exitUsage
	}
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(helpShown); !ok {
				panic(p)
			}
			code = afterHelp
		}
	}()
	var grammar commands
	parser, err := newParser(c, &grammar)
	if err != nil {
		return c.fail(err)
	}
	selected, err := parser.Parse(args)
	if err != nil {
		return c.fail(&usageError{lines: []string{fmt.Sprintf("%s (see \"%s --help\")", err, commandOf(err))}})
	}
	ctx, stop := withSignals(context.Background())
	defer stop()
	selected.BindTo(ctx, (*context.Context)(nil))
	return c.fail(selected.Run(c))
}

// commandOf returns the command that a line had come to when it could not be parsed any further.
func commandOf(err error) string {
	name := "dispatcher"
	var parse *kong.ParseError
	if errors.As(err, &parse) {
		for _, p := range parse.Context.Path {
			if p.Command != nil {
				name += " " + p.Command.Name
			}
		}
	}
	return name
}

// newParser returns the parser of the grammar.
func newParser(c *console, grammar *commands) (*kong.Kong, error) {
	grammar.Serve.Plugins = newSettingFlags(allSettings)
	grammar.Migrate.Plugins = newSettingFlags(storageSettings)
	grammar.Config.Plugins = newSettingFlags(allSettings)
	grammar.Doctor.Plugins = newSettingFlags(allSettings)
	return kong.New(grammar,
		kong.Name("dispatcher"),
		kong.Description("Delivers webhooks and payment notifications: durable, retried at tiered intervals until they are terminal."),
		kong.Writers(c.out, c.err),
		kong.Exit(func(int) { panic(helpShown{}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true, WrapUpperBound: 120}),
	)
}

// fail shows an error, if it is one, and returns the exit code for it.
func (c *console) fail(err error) int {
	var status exitStatus
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage):
		for _, line := range usage.lines {
			fmt.Fprintf(c.err, "dispatcher: %s\n", line)
		}
		return exitUsage
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(c.err, "dispatcher: interrupted")
		return exitFailed
	}
	fmt.Fprintf(c.err, "dispatcher: %s\n", err)
	return exitFailed
}

// withSignals returns a context that ends with the first SIGINT or SIGTERM. The second one ends the process at once.
func withSignals(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case <-signals:
			cancel()
		case <-done:
			return
		}
		select {
		case <-signals:
			os.Exit(exitFailed)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}
