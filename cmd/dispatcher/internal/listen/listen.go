// Package listen receives callbacks on this machine, prints them and verifies their signatures.
package listen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Command receives callbacks on this machine.
type Command struct {
	Addr    string   `default:"127.0.0.1:9090" placeholder:"ADDR" help:"Address to listen on. Default: 127.0.0.1:9090."`
	Signer  string   `placeholder:"NAME|JSON|@FILE" help:"Signer of the requests: a name, or an object with its options, as the endpoint has it. Default: standard-v1."`
	Secret  []string `sep:"none" placeholder:"TEXT|@FILE" help:"Secret that verifies the requests, in the form of the signer, or the public key of a key pair. @FILE reads a file. Can be repeated during a rotation: each one is accepted."`
	Respond []string `default:"200" placeholder:"CODES" help:"Response statuses, such as 500,500,200: one after the other for each webhook-id; the last one repeats. Default: 200."`
	Body    string   `default:"ok" placeholder:"TEXT" help:"Response body if the status is 2xx. Default: ok."`
	Delay   string   `default:"0s" placeholder:"DURATION" help:"Delay of each response. Default: 0s."`
	Headers bool     `help:"Print all headers."`
}

// MaxReceived limits the bytes of a request that are read, maxPrinted those that are printed.
const (
	MaxReceived = 1 << 20
	maxPrinted  = 2000
)

// receiver responds to callbacks according to the flags, and prints them.
type receiver struct {
	c *console.Console
	// signer is the signer in the form of sign.Verify. secrets are the accepted secrets; without any,
	// signatures are not verified.
	signer   string
	secrets  []sign.Secret
	statuses []int
	body     string
	delay    time.Duration
	headers  bool

	// mu guards the fields below, and keeps the lines of one request together.
	mu sync.Mutex
	// seen counts the requests of each webhook-id. ids has the order, so that the oldest can be forgotten.
	seen map[string]int
	ids  []string
}

// rememberedIDs limits the memory of a receiver that runs for days.
const rememberedIDs = 100_000

// receiver checks the flags.
func (cmd *Command) receiver(c *console.Console) (*receiver, error) {
	r := &receiver{c: c, body: cmd.Body, headers: cmd.Headers, seen: map[string]int{}}
	wrong := &console.UsageError{}
	if err := config.CheckAddress(cmd.Addr); err != nil {
		wrong.Add("--addr: %s", err)
	}
	wrong.Lines = append(wrong.Lines, cmd.verifier(c, r)...)
	for _, written := range cmd.Respond {
		status, err := strconv.Atoi(strings.TrimSpace(written))
		if err != nil || status < 200 || status > 599 {
			wrong.Add("--respond: %q is not a status from 200 to 599", written)
		}
		r.statuses = append(r.statuses, status)
	}
	if len(r.statuses) == 0 {
		wrong.Add("--respond: give at least one status")
	}
	delay, err := schedule.ParseDuration(cmd.Delay)
	if err != nil || delay < 0 {
		wrong.Add("--delay: %q is not a duration such as 2s", cmd.Delay)
	}
	r.delay = delay
	if len(wrong.Lines) > 0 {
		return nil, wrong
	}
	return r, nil
}

// Run receives until it is interrupted.
func (cmd *Command) Run(ctx context.Context, c *console.Console) error {
	r, err := cmd.receiver(c)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cmd.Addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Fprintf(c.Out, "listening on http://%s (Ctrl-C to end)\n", listener.Addr())
	fmt.Fprintln(c.Out, r.verification())
	return ServeUntilDone(ctx, listener, r)
}

// ServeHTTP prints a request and responds.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxReceived))
	check := r.checkSignature(req, body, err)
	status := r.print(req, body, check)
	console.Pause(req.Context(), r.delay)
	if req.Context().Err() != nil {
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	answer := r.body
	if status > 299 {
		answer = http.StatusText(status)
	}
	if _, err := io.WriteString(w, answer); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		fmt.Fprintf(r.c.Out, "   write the response: %s\n", console.Printable(err.Error()))
	}
}

// print prints one request and returns the status of its response.
func (r *receiver) print(req *http.Request, body []byte, check signatureCheck) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := req.Header.Get("webhook-id")
	status := r.next(id)
	if check.bad {
		status = http.StatusUnauthorized
	}
	c := r.c
	colour := console.Green
	if status > 299 {
		colour = console.Yellow
	}
	fmt.Fprintf(c.Out, "\n%s  %s %s  %s\n", time.Now().Format("15:04:05.000"), console.Printable(req.Method),
		console.Printable(req.URL.String()),
		c.Paint("response "+strconv.Itoa(status), colour))
	fmt.Fprintf(c.Out, "   %s  attempt %s  %s\n", console.Short(cmp.Or(id, "no webhook-id"), console.Widest),
		console.Short(cmp.Or(req.Header.Get("webhook-attempt"), "?"), 10),
		c.Paint(console.Printable(check.text), check.colour))
	if r.headers {
		for _, name := range slices.Sorted(maps.Keys(req.Header)) {
			for _, value := range req.Header[name] {
				fmt.Fprintf(c.Out, "   %s: %s\n", console.Printable(name), console.Printable(value))
			}
		}
	}
	for _, line := range bodyLines(body) {
		fmt.Fprintf(c.Out, "   %s\n", line)
	}
	return status
}

// bodyLines returns the lines of a body, safe for a terminal.
func bodyLines(body []byte) []string {
	if len(body) == 0 {
		return []string{"(no body)"}
	}
	cut := ""
	if len(body) > maxPrinted {
		cut = fmt.Sprintf("(%d more bytes)", len(body)-maxPrinted)
		body = body[:maxPrinted]
	}
	var lines []string
	for text := range strings.SplitSeq(strings.TrimRight(string(body), "\n"), "\n") {
		lines = append(lines, console.Printable(strings.TrimRight(text, "\r")))
	}
	if cut != "" {
		lines = append(lines, cut)
	}
	return lines
}

// next returns the status of the next response for an id. Requests without an id share one sequence.
func (r *receiver) next(id string) int {
	n, known := r.seen[id]
	r.seen[id] = n + 1
	if !known {
		r.ids = append(r.ids, id)
		if len(r.ids) > rememberedIDs {
			delete(r.seen, r.ids[0])
			r.ids = r.ids[1:]
		}
	}
	return r.statuses[min(n, len(r.statuses)-1)]
}

// ServeUntilDone serves HTTP on the listener until ctx ends.
func ServeUntilDone(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		err = server.Close()
		if err != nil {
			return fmt.Errorf("close the listener: %w", err)
		}
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
