package cli

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// callbackExplain says what keeps a callback.
type callbackExplain struct {
	ID string `arg:"" help:"Id of the callback."`
	answerFlags
}

// Run prints the explanation.
func (cmd *callbackExplain) Run(c *session) error {
	r := get(remote.CallbackPath(cmd.ID) + "/explain")
	return ask(c, r, func(x *client.Explanation) { showExplanation(c, c.Out, x) })
}

// showExplanation prints an explanation for people.
func showExplanation(c *session, w io.Writer, x *client.Explanation) {
	fmt.Fprintln(w, x.Summary)
	if !x.NextAt.IsZero() {
		fmt.Fprintf(w, "it is attempted at the earliest %s\n", console.ClockTime(x.NextAt))
	}
	for i := range x.Blocking {
		b := &x.Blocking[i]
		span := ""
		if !b.Since.IsZero() {
			span += "  since " + console.ClockTime(b.Since)
		}
		if !b.Until.IsZero() {
			span += "  until " + console.ClockTime(b.Until)
		}
		fmt.Fprintf(w, "\n%s%s\n  %s\n", c.Paint(string(b.Code), console.Bold), span, b.Detail)
		if b.Cure != "" {
			fmt.Fprintf(w, "  cure: %s\n", shellCure(b.Cure))
		}
	}
}

// shellCures are the cures that are calls of the API, and the commands that make them.
var shellCures = []struct {
	call    *regexp.Regexp
	command string
}{
	{regexp.MustCompile(`^POST /v1/resume$`), "dispatcher resume"},
	{regexp.MustCompile(`^POST /v1/endpoints/([^/ ]+)/resume$`), "dispatcher endpoint resume $1"},
	{regexp.MustCompile(`^PATCH /v1/endpoints/([^/ ]+) \{"enabled": true\}$`), "dispatcher endpoint set $1 --enable"},
	{regexp.MustCompile(`^POST /v1/lanes/(\S+)/resume$`), "dispatcher lane resume $1"},
	{
		regexp.MustCompile(`PUT /v1/lanes/(\S+)/limits \{"(rate|concurrency)": "?([^"}]+)"?\}`),
		"dispatcher lane limit $1 --$2 $3",
	},
	{regexp.MustCompile(`POST /v1/callbacks/([^/ ]+)/(retry|cancel)\b`), "dispatcher callback $2 $1"},
}

// shellCure says a cure as it is done from the shell, where there is a command for it.
func shellCure(cure string) string {
	for _, c := range shellCures {
		cure = c.call.ReplaceAllString(cure, c.command)
	}
	return cure
}

// callbackEvidence prints the records of a callback.
type callbackEvidence struct {
	serverFlags
	ID string `arg:"" help:"Id of the callback."`
}

// Help is what callback evidence --help says below the flags' summary.
func (*callbackEvidence) Help() string {
	return "The text has every attempt with its time and its answer. It has no credentials, and of the payload the SHA-256 alone, so that it may be given to the receiver: " +
		"dispatcher callback evidence ID > evidence.txt."
}

// Run prints the text: byte for byte, but on a terminal made safe, since receivers wrote parts of it.
func (cmd *callbackEvidence) Run(c *session) error {
	answer, err := c.call(get(remote.CallbackPath(cmd.ID)+"/evidence"), nil)
	if err != nil {
		return err
	}
	if c.OutTerminal {
		printLines(c, strings.TrimRight(string(answer), "\n"))
		return nil
	}
	_, err = c.Out.Write(answer)
	return err
}
