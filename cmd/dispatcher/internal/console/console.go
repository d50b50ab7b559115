// Package console is the input and output of commands: tables, colours, progress, texts that are safe for a
// terminal, and exit codes.
//
// The exit code is 0 for success, 1 for an error while running, and 2 for a wrong command line or wrong
// settings. Texts from outside pass Printable before they reach a terminal.
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

// Console is the input, output and environment of a command. Tests use buffers.
type Console struct {
	In       io.Reader
	Out, Err io.Writer
	// Version of the program. Revision is the commit that it was built from; empty: see the build
	// information.
	Version, Revision string
	// Env is the environment as os.Environ returns it.
	Env []string
	// OutTerminal and ErrTerminal report that an output is a terminal. Only then are colours, live progress
	// and generated secrets printed. InTerminal reports the same of the input: a person can answer.
	OutTerminal, ErrTerminal, InTerminal bool
	// Transport sends the requests to a server; nil: the network.
	Transport http.RoundTripper
}

// System returns the process's own console. version is set by the linker; if it is empty or "dev", the
// version comes from the build information.
func System(version string) *Console {
	return &Console{
		Version:     programVersion(version),
		In:          os.Stdin,
		Out:         os.Stdout,
		Err:         os.Stderr,
		Env:         os.Environ(),
		OutTerminal: isTerminal(os.Stdout),
		ErrTerminal: isTerminal(os.Stderr),
		InTerminal:  isTerminal(os.Stdin),
	}
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// colour reports whether the output is coloured. NO_COLOR and TERM=dumb turn colours off.
func (c *Console) colour() bool {
	return c.OutTerminal && c.Lookup("NO_COLOR") == "" && c.Lookup("TERM") != "dumb"
}

// Lookup returns a variable of the environment, or "" if it is not set.
func (c *Console) Lookup(name string) string {
	value := ""
	for _, pair := range c.Env {
		if len(pair) > len(name) && pair[len(name)] == '=' && pair[:len(name)] == name {
			value = pair[len(name)+1:]
		}
	}
	return value
}

// Lines prints pairs of name and value, the names padded to width. Pairs with an empty value are left out.
func (c *Console) Lines(width int, pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(c.Out, "%-*s %s\n", width, pairs[i], pairs[i+1])
		}
	}
}

// Paint colours s if the output is coloured.
func (c *Console) Paint(s string, colours ...Colour) string {
	if !c.colour() {
		return s
	}
	return text.Colors(colours).EscapeSeq() + s + text.Reset.EscapeSeq()
}

// Colour is the colour or style of a text.
type Colour = text.Color

// Colours and styles.
const (
	Red    = text.FgRed
	Green  = text.FgGreen
	Yellow = text.FgYellow
	Cyan   = text.FgCyan
	Bold   = text.Bold
	Faint  = text.Faint
)

// StateColour returns the colour of a callback's state.
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
