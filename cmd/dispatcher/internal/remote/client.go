// Package remote connects a command to a running server: its flags, where the key is found, and errors in one
// line for people.
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

// defaultServer is where a server listens unless it is told otherwise.
const defaultServer = "http://127.0.0.1:8080"

// Flags say which server a command talks to, and as whom.
type Flags struct {
	Server  string `group:"Server:" placeholder:"URL" help:"Address of the server (or DISPATCHER_SERVER). Default: http://127.0.0.1:8080."`
	Key     string `group:"Server:" placeholder:"KEY" help:"API key (better in DISPATCHER_KEY or DISPATCHER_ADMIN_KEY, or in a file named by DISPATCHER_KEY_FILE). Default: what stands in DATA-DIR/admin.key."`
	DataDir string `group:"Server:" placeholder:"DIR" help:"Data directory of a server on this machine, for its admin key (or DISPATCHER_DATA_DIR). Default: ./dispatcher-data."`
	Project string `group:"Server:" placeholder:"ID" help:"Project to act in (or DISPATCHER_PROJECT); only the admin key of the settings may choose. Default: the key's own, for that admin key: default."`
}

// A Client talks to a server's API. Its errors are one line for people.
type Client struct {
	// Base is the server's address, Key what it is asked with, HTTP what sends.
	Base, Key string
	HTTP      *http.Client
	// keyOrigin says where the key was found.
	keyOrigin string
	// project is named in every request; empty: the key's own.
	project string
	api     *client.Client
}

// longestCall bounds one call; a rebuild of a large index may take minutes.
const longestCall = 15 * time.Minute

// New returns a client for the flags and the environment.
func New(c *console.Console, f Flags) (*Client, error) { return NewWith(c, f, 0) }

// NewWith is New with the most bytes of an answer that are read; zero: 64 MiB.
func NewWith(c *console.Console, f Flags, maxAnswer int64) (*Client, error) {
	o := client.Options{
		URL:       cmp.Or(f.Server, c.Lookup("DISPATCHER_SERVER"), defaultServer),
		Key:       "-", // the address is judged first
		UserAgent: "dispatcher-cli/" + c.Version,
		MaxAnswer: maxAnswer,
	}
	if _, err := client.New(o); err != nil {
		return nil, console.Wrong("--server is not an address of the form http://host:port")
	}
	key, origin, err := clientKey(c, f)
	if err != nil {
		return nil, err
	}
	o.Key, o.Project = key, cmp.Or(f.Project, c.Lookup("DISPATCHER_PROJECT"))
	o.HTTPClient = &http.Client{
		Transport: c.Transport,
		Timeout:   longestCall,
		// A redirect would carry the key to an address that nobody named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	api, err := client.New(o)
	if err != nil {
		return nil, err
	}
	return &Client{
		Base: strings.TrimRight(o.URL, "/"), Key: key, HTTP: o.HTTPClient, keyOrigin: origin,
		project: o.Project, api: api,
	}, nil
}

// clientKey looks for the key: flag, environment, files that the environment names, the data directory.
// Origin says where it was found.
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
		return "", "", console.Wrong("no API key: give --key or DISPATCHER_KEY, or name with --data-dir "+
			"the directory of a server on this machine (%s)", err)
	}
	return key, path, nil
}

// A Refusal is a problem that the server answered with, in one line that is safe for a terminal.
type Refusal struct {
	problem *client.Error
	// also follows the line.
	also string
}

// Error returns the line.
func (e *Refusal) Error() string { return console.Printable(e.problem.Error() + e.also) }

// Unwrap returns the problem.
func (e *Refusal) Unwrap() error { return e.problem }

// Call makes one request and decodes the answer into out, unless that is nil. It returns the answer's bytes.
func (cl *Client) Call(ctx context.Context, method, path string, in, out any) ([]byte, error) {
	answer, err := cl.api.Call(ctx, method, path, in, out)
	return answer.Body, cl.forPeople(err)
}

// forPeople says of an error what the person at the terminal can do about it.
func (cl *Client) forPeople(err error) error {
	if refused, ok := errors.AsType[*client.Error](err); ok {
		also := ""
		switch {
		case refused.Status == http.StatusUnauthorized && refused.Code != "":
			refused.Detail = fmt.Sprintf("%s does not know this key, or it has ended; it is from %s", cl.Base,
				cl.keyOrigin)
		case refused.Status == http.StatusNotFound && cl.project != "":
			also = fmt.Sprintf("; it was looked for in the project %q, which may not exist, or not for "+
				"this key", cl.project)
		}
		return &Refusal{refused, also}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, syscall.ECONNREFUSED):
		return &client.NoAnswerError{Err: fmt.Errorf(
			"nobody listens at %s; is \"dispatcher serve\" running there?", cl.Base)}
	}
	return err
}

// InWords puts a sentence into the error of a request for what does not exist.
func InWords(err error, sentence string) error {
	refused, ok := errors.AsType[*client.Error](err)
	if ok && refused.Status == http.StatusNotFound && refused.Code == "not_found" {
		refused.Detail = sentence
	}
	return err
}

// InLine is a problem in one line that is safe for a terminal.
func InLine(p *client.Problem) string { return console.Printable((&client.Error{Problem: *p}).Error()) }

// leastPause and mostPause bound the pauses between two tries.
const (
	LeastPause = 500 * time.Millisecond
	mostPause  = 30 * time.Second
)

// ParseRate reads "500/s", "6000/m", "100/h" or a plain number for each second; empty is no limit, which is
// zero.
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

// Backoff says how long to wait after an error, and whether another try makes sense.
func Backoff(err error, try int) (wait time.Duration, again bool) {
	wait = min(LeastPause<<min(try, 10), mostPause)
	wait += rand.N(wait / 4) // so that several imports do not come back together
	if problem, ok := errors.AsType[*client.Error](err); ok {
		switch problem.Status {
		case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
			http.StatusServiceUnavailable,
			http.StatusGatewayTimeout:
			return max(wait, problem.RetryAfter), true
		}
		return 0, false
	}
	_, away := errors.AsType[*client.NoAnswerError](err)
	_, busy := errors.AsType[*BusyError](err)
	return wait, away || busy
}

// A BusyError is a batch of which the server could not take some lines now.
type BusyError struct{ Left, Of int }

func (e *BusyError) Error() string {
	return fmt.Sprintf("the server could not take %d of %d lines", e.Left, e.Of)
}
