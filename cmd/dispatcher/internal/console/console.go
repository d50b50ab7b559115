// Package console is where a command reads and writes, and how it ends: tables, colours, progress, safe
// texts, exit codes. Tests give it buffers.
//
// The exit code is 0 for success, 1 for what went wrong while running, 2 for an invalid command line or
// settings. Texts from elsewhere pass Printable before they reach a terminal.
package console

import (
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// A Console is where a command reads and writes. Tests give it buffers.
type Console struct {
	In       io.Reader
	Out, Err io.Writer
	// Version of the program.
	Version string
	// Env is the environment as os.Environ returns it.
	Env []string
	// OutTerminal and errTerminal say that a person is looking: colours and live progress are welcome, and a
	// secret that was asked for may be shown.
	OutTerminal, ErrTerminal bool
	// Transport carries requests to a server; nil: the network does.
	Transport http.RoundTripper
}

// System returns the process's own console. Version is what the linker says; empty or "dev": the build's own
// information is used.
func System(version string) *Console {
	return &Console{
		Version:     programVersion(version),
		In:          os.Stdin,
		Out:         os.Stdout,
		Err:         os.Stderr,
		Env:         os.Environ(),
		OutTerminal: isTerminal(os.Stdout),
		ErrTerminal: isTerminal(os.Stderr),
	}
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// colour says whether the output may be coloured: a terminal that did not ask for none.
func (c *Console) colour() bool {
	return c.OutTerminal && c.Lookup("NO_COLOR") == "" && c.Lookup("TERM") != "dumb"
}

// Lookup returns a variable of the environment, or nothing.
func (c *Console) Lookup(name string) string {
	value := ""
	for _, pair := range c.Env {
		if len(pair) > len(name) && pair[len(name)] == '=' && pair[:len(name)] == name {
			value = pair[len(name)+1:]
		}
	}
	return value
}

// Lines prints names and their values, in pairs, the names as wide as width; nothing for an empty value.
func (c *Console) Lines(width int, pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(c.Out, "%-*s %s\n", width, pairs[i], pairs[i+1])
		}
	}
}

// Paint colours s where colours are welcome.
func (c *Console) Paint(s string, colours ...Colour) string {
	if !c.colour() {
		return s
	}
	return text.Colors(colours).EscapeSeq() + s + text.Reset.EscapeSeq()
}

// A Colour is how a text is painted.
type Colour = text.Color

// The colours.
const (
	Red    = text.FgRed
	Green  = text.FgGreen
	Yellow = text.FgYellow
	Cyan   = text.FgCyan
	Bold   = text.Bold
	Faint  = text.Faint
)

// StateColour returns the colour in which a callback's state is shown.
func StateColour(state client.State) Colour {
	switch state {
	case client.Succeeded:
		return text.FgGreen
	case client.Dead:
		return text.FgRed
	case client.Canceled:
		return text.FgYellow
	case client.Attempting:
		return text.FgCyan
	}
	return text.Reset
}
