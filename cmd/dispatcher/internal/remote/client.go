// Package remote connects a command to a running server: its flags, where the key is found, requests and their errors
// in one line for people.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// defaultServer is where a server listens unless it is told otherwise.
const defaultServer = "http://127.0.0.1:8080"

// Flags say which server a command talks to, and as whom.
type Flags struct {
	Server  string `name:"server" group:"Server:" placeholder:"URL" help:"Address of the server (or DISPATCHER_SERVER). Default: http://127.0.0.1:8080."`
	Key     string `name:"key" group:"Server:" placeholder:"KEY" help:"API key (better in DISPATCHER_KEY or DISPATCHER_ADMIN_KEY, or in a file named by DISPATCHER_KEY_FILE). Default: what stands in DATA-DIR/admin.key."`
	DataDir string `name:"data-dir" group:"Server:" placeholder:"DIR" help:"Data directory of a server on this machine, for its admin key (or DISPATCHER_DATA_DIR). Default: ./dispatcher-data."`
	Project string `name:"project" group:"Server:" placeholder:"ID" help:"Project to act in (or DISPATCHER_PROJECT); only the admin key of the settings may choose. Default: the key's own, for that admin key: default."`
}

// A Client talks to a server's API. Its errors are one line for people.
type Client struct {
	Base string
	Key  string
	// keyOrigin says where the key was found.
	keyOrigin string
	// project is named in every request; empty: the key's own.
	project string
	// version of the program, for the server's records.
	version string
	Http    *http.Client
	// MaxAnswer is the most bytes of an answer that are read.
	MaxAnswer int64
}

// longestCall bounds one call; a rebuild of a large index may take minutes.
const longestCall = 15 * time.Minute

// maxAnswer is the usual limit of an answer.
const maxAnswer = 64 << 20

// New returns a client for the flags and the environment.
func New(c *console.Console, f Flags) (*Client, error) {
	base := console.FirstOf(f.Server, c.Lookup("DISPATCHER_SERVER"), defaultServer)
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, &console.UsageError{Lines: []string{"--server is not an address of the form http://host:port"}}
	}
	key, origin, err := clientKey(c, f)
	if err != nil {
		return nil, err
	}
	return &Client{
		Base:      strings.TrimRight(base, "/"),
		Key:       key,
		keyOrigin: origin,
		project:   console.FirstOf(f.Project, c.Lookup("DISPATCHER_PROJECT")),
		MaxAnswer: maxAnswer,
		version:   c.Version,
		Http: &http.Client{
			Timeout: longestCall,
			// A redirect would carry the key to an address that nobody named.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// clientKey looks for the key: flag, environment, files that the environment names, the data directory. Origin says where it was found.
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
				return "", "", &console.UsageError{Lines: []string{fmt.Sprintf("%s: %s", name, err)}}
			}
			return key, path, nil
		}
	}
	path := filepath.Join(console.FirstOf(f.DataDir, c.Lookup("DISPATCHER_DATA_DIR"), "./dispatcher-data"), config.AdminKeyFile)
	if key, err = config.ReadSecretFile(path); err != nil {
		return "", "", &console.UsageError{Lines: []string{"no API key: give --key or DISPATCHER_KEY, or name with --data-dir the directory of a server on this machine (" + err.Error() + ")"}}
	}
	return key, path, nil
}

// An APIError is a problem that the server answered with.
type APIError struct {
	Status int                `json:"status"`
	Title  string             `json:"title"`
	Detail string             `json:"detail"`
	Code   string             `json:"code"`
	Errors []store.FieldError `json:"errors"`
	// RetryAfter is how long the server asked to be left alone; zero: it did not say.
	RetryAfter time.Duration `json:"-"`
	// project is the one that the request named; empty: none.
	project string
}

// Error returns the problem in one readable line.
func (e *APIError) Error() string {
	var b strings.Builder
	detail := e.Detail
	if len(e.Errors) > 0 { // they follow: the detail need not point at them
		detail, _, _ = strings.Cut(detail, ": see errors")
	}
	b.WriteString(console.FirstOf(detail, e.Title, http.StatusText(e.Status), "the server refused"))
	fmt.Fprintf(&b, " (%d", e.Status)
	if e.Code != "" {
		b.WriteString(" " + e.Code)
	}
	b.WriteString(")")
	for i, f := range e.Errors {
		if i == 0 {
			b.WriteString(": ")
		} else {
			b.WriteString("; ")
		}
		b.WriteString(f.Field + " " + f.Message)
	}
	if e.Status == http.StatusNotFound && e.project != "" {
		fmt.Fprintf(&b, "; it was looked for in the project %q, which may not exist, or not for this key", e.project)
	}
	return console.Printable(b.String())
}

// Call makes one request and decodes the answer into out, unless that is nil. It returns the answer's bytes.
func (cl *Client) Call(ctx context.Context, method, path string, in, out any) ([]byte, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = Encode(in); err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
	}
	return cl.Send(ctx, method, path, body, out)
}

// A Verbatim is JSON whose bytes reach the server as they are: json.Marshal would take out spaces and escape <, > and &.
type Verbatim []byte

// Encode returns a request's body as JSON, with what is verbatim in it as it is.
func Encode(in any) ([]byte, error) {
	switch v := in.(type) {
	case Verbatim:
		return v, nil
	case map[string]any:
		out := []byte{'{'}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			for _, part := range []any{name, v[name]} {
				text, err := Encode(part)
				if err != nil {
					return nil, err
				}
				out = append(append(out, text...), ':')
			}
			out[len(out)-1] = ','
		}
		return append(bytes.TrimSuffix(out, []byte{','}), '}'), nil
	}
	return json.Marshal(in)
}

// Send is call with a body of JSON whose bytes must stay as they are; nil: none.
func (cl *Client) Send(ctx context.Context, method, path string, in []byte, out any) ([]byte, error) {
	var body io.Reader
	if in != nil {
		body = bytes.NewReader(in)
	}
	req, err := http.NewRequestWithContext(ctx, method, cl.Base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+cl.Key)
	req.Header.Set("User-Agent", "dispatcher-cli/"+cl.version)
	if cl.project != "" {
		req.Header.Set(api.ProjectHeader, cl.project)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := cl.Http.Do(req)
	if err != nil {
		return nil, cl.unreachable(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, cl.MaxAnswer+1))
	if err == nil && int64(len(answer)) > cl.MaxAnswer {
		err = fmt.Errorf("it is longer than %d MiB", cl.MaxAnswer>>20)
	}
	if err != nil {
		return nil, &unreachableError{fmt.Errorf("read the answer of %s: %w", cl.Base, err)}
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return nil, cl.problem(res, answer)
	}
	if out == nil {
		return answer, nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return nil, fmt.Errorf("%s did not answer like a dispatcher: %w", cl.Base, err)
	}
	return answer, nil
}

// InWords puts a sentence into the error of a request for what does not exist.
func InWords(err error, format string, args ...any) error {
	var problem *APIError
	if errors.As(err, &problem) && problem.Status == http.StatusNotFound && problem.Code == "not_found" {
		problem.Detail = fmt.Sprintf(format, args...)
	}
	return err
}

// An unreachableError says that there was no whole answer: whether the request had an effect is unknown.
type unreachableError struct{ error }

func (e *unreachableError) Unwrap() error { return e.error }

// unreachable says in one line why there was no answer.
func (cl *Client) unreachable(err error) error {
	var outer *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, syscall.ECONNREFUSED):
		return &unreachableError{fmt.Errorf("nobody listens at %s; is \"dispatcher serve\" running there?", cl.Base)}
	case errors.As(err, &outer):
		err = outer.Err
	}
	return &unreachableError{fmt.Errorf("cannot reach %s: %w", cl.Base, err)}
}

// problem turns an answer that is no success into an error.
func (cl *Client) problem(res *http.Response, answer []byte) error {
	e := &APIError{}
	if err := json.Unmarshal(answer, e); err != nil || e.Status == 0 {
		e = &APIError{Title: "the answer is not from a dispatcher: " + http.StatusText(res.StatusCode)}
	}
	e.Status, e.project = res.StatusCode, cl.project
	if e.Status == http.StatusUnauthorized && e.Code != "" {
		e.Detail = fmt.Sprintf("%s does not know this key, or it has ended; it is from %s", cl.Base, cl.keyOrigin)
	}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
