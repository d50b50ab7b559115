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
	// ExitAwaiting: nothing is changed yet, because the act awaits an approval.
	ExitAwaiting = 3
)

// Execute runs the command that the arguments name and returns the exit code. grammar is a pointer to a
// struct for kong. The first SIGINT or SIGTERM ends the command's context.
func Execute(c *Console, grammar any, args []string) int {
	ctx, stop := withSignals(context.Background())
	defer stop()
	return ExecuteUntil(ctx, c, grammar, args)
}

// ExecuteUntil is Execute with the caller's context instead of signals.
func ExecuteUntil(ctx context.Context, c *Console, grammar any, args []string) (code int) {
	afterHelp := ExitOK
	if len(args) == 0 {
		// Without arguments, print the help. The exit code says that no command ran.
		args, afterHelp = []string{"--help"}, ExitUsage
	}
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(helpPrinted); !ok {
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

// NewParser returns the parser of a grammar. If the grammar has a method Examples, the help of each command
// has the example with the words of the command.
func NewParser(c *Console, grammar any) (*kong.Kong, error) {
	parser, err := kong.New(grammar,
		kong.Name("dispatcher"),
		kong.Description("Delivers webhooks and payment notifications. It stores each one, and retries it "+
			"until it is delivered or its attempts are used up."),
		kong.Writers(c.Out, c.Err),
		kong.Exit(func(int) { panic(helpPrinted{}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true,
			WrapUpperBound: 120}),
	)
	if err != nil {
		return nil, err
	}
	parser.Model.HelpFlag.Help = "Show this help."
	var examples map[string]string
	if g, ok := grammar.(interface{ Examples() map[string]string }); ok {
		examples = g.Examples()
	}
	completeHelp(parser.Model.Node, "", examples)
	return parser, nil
}

// completeHelp adds the examples of a command, and of those below it, to their help. Only the commands of the
// program are in groups, so those below another command get the usual title.
func completeHelp(n *kong.Node, path string, examples map[string]string) {
	if example := examples[path]; example != "" {
		n.Detail = strings.TrimSpace(n.Detail + "\n\nExample:\n\n" + example)
	}
	for _, child := range n.Children {
		if path != "" {
			child.Group = &kong.Group{Key: "commands", Title: "Commands:"}
		}
		completeHelp(child, strings.TrimSpace(path+" "+child.Name), examples)
	}
}

// ErrPrinted is a failure that the command has already printed. It only sets the exit code to ExitFailed.
var ErrPrinted = errors.New("exit status 1")

// ErrAwaiting is the end of a command whose act awaits an approval. The command has said so. It only sets the
// exit code to ExitAwaiting.
var ErrAwaiting = errors.New("exit status 3")

// UsageError is a wrong command line or wrong settings, one line for each problem.
type UsageError struct{ Lines []string }

// Wrong returns a UsageError of one line.
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

// helpPrinted is the panic that stops the parser after a help text. ExecuteUntil recovers it.
type helpPrinted struct{}

// commandOf returns the command that the parser had reached when it failed.
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

// fail prints an error, unless it is nil, and returns its exit code.
func (c *Console) fail(err error) int {
	var usage *UsageError
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrPrinted):
		return ExitFailed
	case errors.Is(err, ErrAwaiting):
		return ExitAwaiting
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

// withSignals returns a context that the first SIGINT or SIGTERM cancels. The second one ends the process at
// once.
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

// Pause waits for d or until ctx ends.
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

// programVersion returns the version for outputs, the User-Agent and the metrics: of the linker, else of the
// module, else the built revision, else "dev".
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
