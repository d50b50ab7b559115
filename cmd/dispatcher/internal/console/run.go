package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// Exit codes of the program.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Execute runs the command of the grammar, a pointer to a struct for kong, that the arguments name, and
// returns the exit code. It ends the command's context with the first SIGINT or SIGTERM.
func Execute(c *Console, grammar any, args []string) int {
	ctx, stop := withSignals(context.Background())
	defer stop()
	return ExecuteUntil(ctx, c, grammar, args)
}

// ExecuteUntil is execute with a context of the caller's in place of signals.
func ExecuteUntil(ctx context.Context, c *Console, grammar any, args []string) (code int) {
	afterHelp := ExitOK
	if len(args) == 0 {
		// A newcomer's first try: the help, but nothing was done.
		args, afterHelp = []string{"--help"}, ExitUsage
	}
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(helpShown); !ok {
				panic(p)
			}
			code = afterHelp
		}
	}()
	parser, err := NewParser(c, grammar)
	if err != nil {
		return c.fail(err)
	}
	selected, err := parser.Parse(args)
	if err != nil {
		return c.fail(Wrong("%s (see \"%s --help\")", err, commandOf(err)))
	}
	selected.BindTo(ctx, (*context.Context)(nil))
	return c.fail(selected.Run(c))
}

// NewParser returns the parser of a grammar.
func NewParser(c *Console, grammar any) (*kong.Kong, error) {
	return kong.New(grammar,
		kong.Name("dispatcher"),
		kong.Description("Delivers webhooks and payment notifications: durable, retried at tiered "+
			"intervals until they are terminal."),
		kong.Writers(c.Out, c.Err),
		kong.Exit(func(int) { panic(helpShown{}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true,
			WrapUpperBound: 120}),
	)
}

// ErrShown is a failure that has already been shown: it only carries the exit code, ExitFailed.
var ErrShown = errors.New("exit status 1")

// UsageError is a command line, or settings, that cannot be meant: one line for each thing that is wrong.
type UsageError struct{ Lines []string }

// Wrong is a UsageError of one line.
func Wrong(format string, args ...any) *UsageError {
	e := &UsageError{}
	e.Add(format, args...)
	return e
}

// Add adds a line.
func (e *UsageError) Add(format string, args ...any) {
	e.Lines = append(e.Lines, fmt.Sprintf(format, args...))
}

func (e *UsageError) Error() string { return strings.Join(e.Lines, "\n") }

// helpShown is what ends the parser after it has printed a help text.
type helpShown struct{}

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

// fail shows an error, if it is one, and returns the exit code for it.
func (c *Console) fail(err error) int {
	var usage *UsageError
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrShown):
		return ExitFailed
	case errors.As(err, &usage):
		for _, line := range usage.Lines {
			fmt.Fprintf(c.Err, "dispatcher: %s\n", line)
		}
		return ExitUsage
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(c.Err, "dispatcher: interrupted")
		return ExitFailed
	}
	fmt.Fprintf(c.Err, "dispatcher: %s\n", err)
	return ExitFailed
}

// withSignals returns a context that ends with the first SIGINT or SIGTERM. The second one ends the process
// at once.
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
			os.Exit(ExitFailed)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}

// Pause waits for d, or less if ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// programVersion returns the version for people, the User-Agent and the metrics: the linker's, else the
// module's, else the revision that was built, else "dev".
func programVersion(linked string) string {
	if linked != "" && linked != "dev" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "-modified"
		}
	}
	if len(revision) < 12 {
		return "dev"
	}
	return "dev-" + revision[:12] + modified
}
