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
	Signer  string   `placeholder:"NAME|JSON|@FILE" help:"How requests are signed: a signer's name, or an object with its options, as the endpoint has it. Default: standard-v1."`
	Secret  []string `sep:"none" placeholder:"TEXT|@FILE" help:"Secret to verify every request with, as the signer wants it, or the public key of a key pair; from a file after @. Twice during a rotation: either is taken."`
	Respond []string `default:"200" placeholder:"CODES" help:"Statuses to answer with, such as 500,500,200: one after the other for each webhook-id, the last one repeats. Default: 200."`
	Body    string   `default:"ok" placeholder:"TEXT" help:"Body to answer with, where the status is 2xx. Default: ok."`
	Delay   string   `default:"0s" placeholder:"DURATION" help:"Wait so long before each answer. Default: 0s."`
	Headers bool     `help:"Print all headers, not only those of the signature."`
}

// maxReceived is the most bytes of a request that are read; maxShown, the most that are printed.
const (
	MaxReceived = 1 << 20
	maxShown    = 2000
)

// A receiver answers callbacks as a script says, and prints them.
type receiver struct {
	c *console.Console
	// signer is what sign.Verify takes, secrets what it may have signed with; without secrets nothing is
	// verified.
	signer   string
	secrets  []sign.Secret
	statuses []int
	body     string
	delay    time.Duration
	headers  bool

	// mu guards what follows, and keeps one request's lines together.
	mu sync.Mutex
	// seen counts the requests of each webhook-id, ids keeps their order: the oldest are forgotten.
	seen map[string]int
	ids  []string
}

// rememberedIDs bounds what a receiver that runs for days keeps.
const rememberedIDs = 100_000

// receiver judges the flags.
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
		wrong.Add("--respond: name at least one status")
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
	fmt.Fprintf(c.Out, "listening on http://%s (Ctrl-C ends it)\n", listener.Addr())
	fmt.Fprintln(c.Out, r.verifies())
	return ServeUntilDone(ctx, listener, r)
}

// ServeHTTP prints the request and answers it.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxReceived))
	verdict := r.verdict(req, body, err)
	status := r.show(req, body, verdict)
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
		fmt.Fprintf(r.c.Out, "   the answer could not be written: %s\n", console.Printable(err.Error()))
	}
}

// show prints one request and returns the status that answers it.
func (r *receiver) show(req *http.Request, body []byte, v verdict) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := req.Header.Get("webhook-id")
	status := r.next(id)
	if v.bad {
		status = http.StatusUnauthorized
	}
	c := r.c
	colour := console.Green
	if status > 299 {
		colour = console.Yellow
	}
	fmt.Fprintf(c.Out, "\n%s  %s %s  %s\n", time.Now().Format("15:04:05.000"), console.Printable(req.Method),
		console.Printable(req.URL.String()),
		c.Paint("answered with "+strconv.Itoa(status), colour))
	fmt.Fprintf(c.Out, "   %s  attempt %s  %s\n", console.Short(cmp.Or(id, "no webhook-id"), console.Widest),
		console.Short(cmp.Or(req.Header.Get("webhook-attempt"), "?"), 10),
		c.Paint(console.Printable(v.text), v.colour))
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

// bodyLines returns a body for people, safe for a terminal.
func bodyLines(body []byte) []string {
	if len(body) == 0 {
		return []string{"(no body)"}
	}
	cut := ""
	if len(body) > maxShown {
		cut = fmt.Sprintf("(%d bytes more)", len(body)-maxShown)
		body = body[:maxShown]
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

// next returns the status for the next request of an id. Requests without an id share one sequence.
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

// ServeUntilDone answers HTTP on the listener until ctx ends.
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
