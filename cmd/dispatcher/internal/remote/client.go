// Package remote connects a command to a running server. It has the flags for that, finds the API key, and
// turns errors into one line for users.
package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// defaultServer is the default address of a server.
const defaultServer = "http://127.0.0.1:8080"

// Flags are the server that a command talks to, and the key that it uses.
type Flags struct {
	Server  string `group:"Server:" placeholder:"URL" help:"URL of the server (or DISPATCHER_SERVER). Default: http://127.0.0.1:8080."`
	Key     string `group:"Server:" placeholder:"KEY" help:"API key (better in DISPATCHER_KEY or DISPATCHER_ADMIN_KEY, or in a file named by DISPATCHER_KEY_FILE). Default: the key in DATA-DIR/admin.key."`
	DataDir string `group:"Server:" placeholder:"DIR" help:"Data directory of a server on this machine, to read its admin key (or DISPATCHER_DATA_DIR). Default: ./dispatcher-data."`
	Project string `group:"Server:" placeholder:"ID" help:"Project to work in (or DISPATCHER_PROJECT). Only the admin key of the settings can choose one. Default: the key's project; for the admin key, the project default."`
}

// Client talks to a server's API. Its errors are one line for users.
type Client struct {
	// Base is the server's URL, and Key the API key.
	Base, Key string
	// keyOrigin is where the key was found, for errors.
	keyOrigin string
	// project is sent in every request; empty: the key's own.
	project string
	// options are those of api, which copies them.
	options client.Options
	api     *client.Client
}

// longestCall limits one call; a rebuild of a large index may take minutes.
const longestCall = 15 * time.Minute

// New returns a client for the flags and the environment. It reads at most 64 MiB of a response.
func New(c *console.Console, f Flags) (*Client, error) { return NewWith(c, f, 0) }

// NewWith is New with another limit for the bytes of a response; zero: 64 MiB.
func NewWith(c *console.Console, f Flags, maxAnswer int64) (*Client, error) {
	o := client.Options{
		URL:       cmp.Or(f.Server, c.Lookup("DISPATCHER_SERVER"), defaultServer),
		Key:       "-", // a wrong URL is reported before a missing key
		UserAgent: "dispatcher-cli/" + c.Version,
		MaxAnswer: maxAnswer,
	}
	if _, err := client.New(o); err != nil {
		return nil, console.Wrong("--server is not a URL such as http://host:port")
	}
	key, origin, err := clientKey(c, f)
	if err != nil {
		return nil, err
	}
	o.Key, o.Project = key, cmp.Or(f.Project, c.Lookup("DISPATCHER_PROJECT"))
	cl := &Client{
		Base: strings.TrimRight(o.URL, "/"), Key: key, keyOrigin: origin, project: o.Project, options: o,
	}
	return cl, cl.Use(c.Transport, longestCall)
}

// Use sends the next calls through a transport, each with a timeout. A nil transport is the network.
func (cl *Client) Use(transport http.RoundTripper, timeout time.Duration) (err error) {
	cl.options.HTTPClient = &http.Client{Transport: transport, Timeout: timeout}
	cl.api, err = client.New(cl.options)
	return err
}

// Once returns a client of the API that sends each call once, with a timeout. Its errors are those of package
// client.
func (cl *Client) Once(timeout time.Duration) (*client.Client, error) {
	o := cl.options
	o.Retries, o.Timeout = -1, timeout
	if o.HTTPClient.Transport == nil {
		o.HTTPClient = nil // a client that keeps connections, for many calls at once
	}
	return client.New(o)
}

// clientKey finds the key: in the flag, the environment, the files that the environment names, or the data
// directory. origin is where it was found.
func clientKey(c *console.Console, f Flags) (key, origin string, err error) {
	if f.Key != "" {
		return f.Key, "--key", nil
	}
	for _, name := range []string{"DISPATCHER_KEY", "DISPATCHER_ADMIN_KEY"} {
		if key := c.Lookup(name); key != "" {
			return key, name, nil
		}
	}
	for _, name := range []string{"DISPATCHER_KEY_FILE", "DISPATCHER_ADMIN_KEY_FILE"} {
		if path := c.Lookup(name); path != "" {
			key, err := config.ReadSecretFile(path)
			if err != nil {
				return "", "", console.Wrong("%s: %s", name, err)
			}
			return key, path, nil
		}
	}
	path := filepath.Join(cmp.Or(f.DataDir, c.Lookup("DISPATCHER_DATA_DIR"), "./dispatcher-data"),
		config.AdminKeyFile)
	key, err = config.ReadSecretFile(path)
	if err != nil {
		return "", "", console.Wrong("no API key: set DISPATCHER_KEY or --key, or give --data-dir of a "+
			"server on this machine (%s)", err)
	}
	return key, path, nil
}

// Refusal is an error response of the server, as one line that is safe for a terminal.
type Refusal struct {
	problem *client.Error
	// also is appended to the line.
	also string
}

// Error returns the line.
func (e *Refusal) Error() string { return console.Printable(e.problem.Error() + e.also) }

// Unwrap returns the problem.
func (e *Refusal) Unwrap() error { return e.problem }

// Call makes one request and decodes the response into out, unless out is nil. It returns the body of the
// response.
func (cl *Client) Call(ctx context.Context, method, path string, in, out any) ([]byte, error) {
	answer, err := cl.Answer(ctx, method, path, in, out)
	return answer.Body, err
}

// Answer is Call with the status and the headers of the response.
func (cl *Client) Answer(ctx context.Context, method, path string, in, out any) (client.Answer, error) {
	answer, err := cl.api.Call(ctx, method, path, in, out)
	return answer, cl.forUser(err)
}

// forUser adds to an error what the user can do about it.
func (cl *Client) forUser(err error) error {
	if refused, ok := errors.AsType[*client.Error](err); ok {
		also := ""
		switch {
		case refused.Status == http.StatusUnauthorized && refused.Code != "":
			refused.Detail = fmt.Sprintf("%s refuses the API key from %s: it is unknown, expired or revoked",
				cl.Base, cl.keyOrigin)
		case refused.Status == http.StatusNotFound && cl.project != "":
			also = fmt.Sprintf(" (in project %q, which may not exist or not be open to this key)", cl.project)
		}
		return &Refusal{refused, also}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, syscall.ECONNREFUSED):
		return &client.NoAnswerError{Err: fmt.Errorf(
			"no server listens at %s; is \"dispatcher serve\" running there?", cl.Base)}
	}
	return err
}

// WithDetail replaces the detail of an error if it is the server's 404 for something that does not exist.
func WithDetail(err error, detail string) error {
	refused, ok := errors.AsType[*client.Error](err)
	if ok && refused.Status == http.StatusNotFound && refused.Code == "not_found" {
		refused.Detail = detail
	}
	return err
}

// InLine formats a problem as one line that is safe for a terminal.
func InLine(p *client.Problem) string { return console.Printable((&client.Error{Problem: *p}).Error()) }

// MinPause and maxPause limit the pause between two tries.
const (
	MinPause = 500 * time.Millisecond
	maxPause = 30 * time.Second
)

// ParseRate parses "500/s", "6000/m", "100/h" or a plain number per second, and returns the rate per second.
// Empty is no limit and returns zero.
func ParseRate(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, unit, found := strings.Cut(text, "/")
	seconds, known := map[string]float64{"": 1, "s": 1, "m": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !known || found && unit == "" || !(n > 0 && n <= 1e9) {
		return 0, fmt.Errorf("%q is not a rate such as 500/s or 6000/m", text)
	}
	return n / seconds, nil
}

// Backoff returns the pause after an error, and whether another try can succeed. try counts from zero.
func Backoff(err error, try int) (wait time.Duration, again bool) {
	wait = min(MinPause<<min(try, 10), maxPause)
	wait += rand.N(wait / 4) // spreads the retries of several imports
	if problem, ok := errors.AsType[*client.Error](err); ok {
		switch problem.Status {
		case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
			http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return max(wait, problem.RetryAfter), true
		}
		return 0, false
	}
	_, unreachable := errors.AsType[*client.NoAnswerError](err)
	_, busy := errors.AsType[*BusyError](err)
	return wait, unreachable || busy
}

// BusyError means that the server could not accept some lines of a batch now.
type BusyError struct{ Left, Of int }

func (e *BusyError) Error() string {
	return fmt.Sprintf("the server could not accept %d of %d lines now", e.Left, e.Of)
}
