package main

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

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// defaultServer is where a server listens unless it is told otherwise.
const defaultServer = "http://127.0.0.1:8080"

// clientFlags say which server a command talks to, and as whom.
type clientFlags struct {
	Server  string `name:"server" group:"Server:" placeholder:"URL" help:"Address of the server (or DISPATCHER_SERVER). Default: http://127.0.0.1:8080."`
	Key     string `name:"key" group:"Server:" placeholder:"KEY" help:"API key (better in DISPATCHER_KEY or DISPATCHER_ADMIN_KEY, or in a file named by DISPATCHER_KEY_FILE). Default: what stands in DATA-DIR/admin.key."`
	DataDir string `name:"data-dir" group:"Server:" placeholder:"DIR" help:"Data directory of a server on this machine, for its admin key (or DISPATCHER_DATA_DIR). Default: ./dispatcher-data."`
	Project string `name:"project" group:"Server:" placeholder:"ID" help:"Project to act in (or DISPATCHER_PROJECT); only the admin key of the settings may choose. Default: the key's own, for that admin key: default."`
}

// A client talks to a server's API. Its errors are one line for people.
type client struct {
	base string
	key  string
	// keyOrigin says where the key was found.
	keyOrigin string
	// project is named in every request; empty: the key's own.
	project string
	http    *http.Client
	// maxAnswer is the most bytes of an answer that are read.
	maxAnswer int64
}

// longestCall bounds one call; a rebuild of a large index may take minutes.
const longestCall = 15 * time.Minute

// maxAnswer is the usual limit of an answer.
const maxAnswer = 64 << 20

// newClient returns a client for the flags and the environment.
func newClient(c *console, f clientFlags) (*client, error) {
	base := firstOf(f.Server, c.lookup("DISPATCHER_SERVER"), defaultServer)
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, &usageError{lines: []string{"--server is not an address of the form http://host:port"}}
	}
	key, origin, err := clientKey(c, f)
	if err != nil {
		return nil, err
	}
	return &client{
		base:      strings.TrimRight(base, "/"),
		key:       key,
		keyOrigin: origin,
		project:   firstOf(f.Project, c.lookup("DISPATCHER_PROJECT")),
		maxAnswer: maxAnswer,
		http: &http.Client{
			Timeout: longestCall,
			// A redirect would carry the key to an address that nobody named.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// clientKey looks for the key: flag, environment, files that the environment names, the data directory. Origin says where it was found.
func clientKey(c *console, f clientFlags) (key, origin string, err error) {
	if f.Key != "" {
		return f.Key, "--key", nil
	}
	for _, name := range []string{"DISPATCHER_KEY", "DISPATCHER_ADMIN_KEY"} {
		if key := c.lookup(name); key != "" {
			return key, name, nil
		}
	}
	for _, name := range []string{"DISPATCHER_KEY_FILE", "DISPATCHER_ADMIN_KEY_FILE"} {
		if path := c.lookup(name); path != "" {
			key, err := readSecretFile(path)
			if err != nil {
				return "", "", &usageError{lines: []string{fmt.Sprintf("%s: %s", name, err)}}
			}
			return key, path, nil
		}
	}
	path := filepath.Join(firstOf(f.DataDir, c.lookup("DISPATCHER_DATA_DIR"), "./dispatcher-data"), adminKeyFile)
	if key, err = readSecretFile(path); err != nil {
		return "", "", &usageError{lines: []string{"no API key: give --key or DISPATCHER_KEY, or name with --data-dir the directory of a server on this machine (" + err.Error() + ")"}}
	}
	return key, path, nil
}

// firstOf returns the first text that is not empty.
func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// An apiError is a problem that the server answered with.
type apiError struct {
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
func (e *apiError) Error() string {
	var b strings.Builder
	detail := e.Detail
	if len(e.Errors) > 0 { // they follow: the detail need not point at them
		detail, _, _ = strings.Cut(detail, ": see errors")
	}
	b.WriteString(firstOf(detail, e.Title, http.StatusText(e.Status), "the server refused"))
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
	return printable(b.String())
}

// call makes one request and decodes the answer into out, unless that is nil. It returns the answer's bytes.
func (cl *client) call(ctx context.Context, method, path string, in, out any) ([]byte, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = encode(in); err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
	}
	return cl.send(ctx, method, path, body, out)
}

// A verbatim is JSON whose bytes reach the server as they are: json.Marshal would take out spaces and escape <, > and &.
type verbatim []byte

// encode returns a request's body as JSON, with what is verbatim in it as it is.
func encode(in any) ([]byte, error) {
	switch v := in.(type) {
	case verbatim:
		return v, nil
	case map[string]any:
		out := []byte{'{'}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			for _, part := range []any{name, v[name]} {
				text, err := encode(part)
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

// send is call with a body of JSON whose bytes must stay as they are; nil: none.
func (cl *client) send(ctx context.Context, method, path string, in []byte, out any) ([]byte, error) {
	var body io.Reader
	if in != nil {
		body = bytes.NewReader(in)
	}
	req, err := http.NewRequestWithContext(ctx, method, cl.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+cl.key)
	req.Header.Set("User-Agent", "dispatcher-cli/"+programVersion())
	if cl.project != "" {
		req.Header.Set(api.ProjectHeader, cl.project)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := cl.http.Do(req)
	if err != nil {
		return nil, cl.unreachable(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, cl.maxAnswer+1))
	if err == nil && int64(len(answer)) > cl.maxAnswer {
		err = fmt.Errorf("it is longer than %d MiB", cl.maxAnswer>>20)
	}
	if err != nil {
		return nil, &unreachableError{fmt.Errorf("read the answer of %s: %w", cl.base, err)}
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return nil, cl.problem(res, answer)
	}
	if out == nil {
		return answer, nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return nil, fmt.Errorf("%s did not answer like a dispatcher: %w", cl.base, err)
	}
	return answer, nil
}

// inWords puts a sentence into the error of a request for what does not exist.
func inWords(err error, format string, args ...any) error {
	var problem *apiError
	if errors.As(err, &problem) && problem.Status == http.StatusNotFound && problem.Code == "not_found" {
		problem.Detail = fmt.Sprintf(format, args...)
	}
	return err
}

// An unreachableError says that there was no whole answer: whether the request had an effect is unknown.
type unreachableError struct{ error }

func (e *unreachableError) Unwrap() error { return e.error }

// unreachable says in one line why there was no answer.
func (cl *client) unreachable(err error) error {
	var outer *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, syscall.ECONNREFUSED):
		return &unreachableError{fmt.Errorf("nobody listens at %s; is \"dispatcher serve\" running there?", cl.base)}
	case errors.As(err, &outer):
		err = outer.Err
	}
	return &unreachableError{fmt.Errorf("cannot reach %s: %w", cl.base, err)}
}

// problem turns an answer that is no success into an error.
func (cl *client) problem(res *http.Response, answer []byte) error {
	e := &apiError{}
	if err := json.Unmarshal(answer, e); err != nil || e.Status == 0 {
		e = &apiError{Title: "the answer is not from a dispatcher: " + http.StatusText(res.StatusCode)}
	}
	e.Status, e.project = res.StatusCode, cl.project
	if e.Status == http.StatusUnauthorized && e.Code != "" {
		e.Detail = fmt.Sprintf("%s does not know this key, or it has ended; it is from %s", cl.base, cl.keyOrigin)
	}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// printable makes a text from elsewhere safe for a terminal: control characters, which could rewrite what stands there
// already, are shown by their numbers.
func printable(s string) string {
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			fmt.Fprintf(&b, "\\x%02x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// unprintable says of C0, DEL and C1 controls, and of characters that turn the direction of writing, that they must not
// reach a terminal.
func unprintable(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// printJSON shows an answer for machines: indented, otherwise as the server wrote it.
func printJSON(c *console, answer []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, answer, "", "  "); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	out.WriteByte('\n')
	_, err := out.WriteTo(c.out)
	return err
}
