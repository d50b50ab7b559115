package main

import (
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// A console is where a command reads and writes. Tests give it buffers.
type console struct {
	in       io.Reader
	out, err io.Writer
	// env is the environment as os.Environ returns it.
	env []string
	// outTerminal and errTerminal say that a person is looking: colours and live progress are welcome, and a secret that
	// was asked for may be shown.
	outTerminal, errTerminal bool
}

// systemConsole returns the process's own console.
func systemConsole() *console {
	return &console{
		in:          os.Stdin,
		out:         os.Stdout,
		err:         os.Stderr,
		env:         os.Environ(),
		outTerminal: isTerminal(os.Stdout),
		errTerminal: isTerminal(os.Stderr),
	}
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// colour says whether the output may be coloured: a terminal that did not ask for none.
func (c *console) colour() bool {
	return c.outTerminal && c.lookup("NO_COLOR") == "" && c.lookup("TERM") != "dumb"
}

// lookup returns a variable of the environment, or nothing.
func (c *console) lookup(name string) string {
	value := ""
	for _, pair := range c.env {
		if len(pair) > len(name) && pair[len(name)] == '=' && pair[:len(name)] == name {
			value = pair[len(name)+1:]
		}
	}
	return value
}

// paint colours s where colours are welcome.
func (c *console) paint(s string, colours ...text.Color) string {
	if !c.colour() {
		return s
	}
	return text.Colors(colours).EscapeSeq() + s + text.Reset.EscapeSeq()
}

// newTable returns a table with the header that writes to the console's output when it is rendered.
func (c *console) newTable(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(c.out)
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Format.Footer = text.FormatDefault
	style.Options.DrawBorder = false
	style.Options.SeparateColumns = false
	t.SetStyle(style)
	if len(header) > 0 {
		t.AppendHeader(table.Row(header))
	}
	return t
}

// stateColour returns the colour in which a callback's state is shown.
func stateColour(state string) text.Color {
	switch state {
	case "succeeded":
		return text.FgGreen
	case "dead":
		return text.FgRed
	case "canceled":
		return text.FgYellow
	case "attempting":
		return text.FgCyan
	}
	return text.Reset
}
