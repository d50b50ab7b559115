package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// maxForm bounds the bytes of a form. The form of a schedule holds a template with a payload.
const maxForm = 512 << 10

// A request is one request of a browser, or one rendering for the stream of a page.
type request struct {
	ctx    context.Context
	http   *http.Request // nil for a stream
	caller query.Caller
	route  Route
	url    *url.URL
	params map[string]string
	form   url.Values
	lang   *language
	zone   zoneChoice
	theme  string
	now    int64
	// live is true if the page is rerendered for a stream.
	live bool
	// id is the request id, for the log.
	id string
}

// newRequest returns a request with the viewer's preferences from cookies. Its caller has only the address
// until authenticate sets the rest.
func (u *UI) newRequest(ctx context.Context, c *gin.Context, route Route) *request {
	r := &request{
		ctx: ctx, http: c.Request, route: route, url: c.Request.URL,
		params: make(map[string]string, len(c.Params)), now: u.now(),
		id: c.Writer.Header().Get(RequestIDHeader),
	}
	// All clients without a known address share the zero address.
	r.caller.Address, _ = netip.ParseAddr(c.ClientIP())
	for _, p := range c.Params {
		r.params[p.Key] = p.Value
	}
	r.lang = u.languages.choose(u.cookie(c.Request, languageCookie), c.Request.Header.Get("Accept-Language"))
	r.zone, _ = zoneOf(u.cookie(c.Request, zoneCookie))
	r.theme = themeOf(u.cookie(c.Request, themeCookie))
	return r
}

// cookie returns the value of a cookie by its name without prefix, or "".
func (u *UI) cookie(r *http.Request, name string) string {
	c, err := r.Cookie(u.cookieName(name))
	if err != nil {
		return ""
	}
	value, err := url.QueryUnescape(c.Value)
	if err != nil {
		return ""
	}
	return value
}

// readForm parses the form of a POST into r.form. It refuses forms over maxForm and values that are not UTF-8
// text.
func (r *request) readForm() error {
	r.http.Body = http.MaxBytesReader(nil, r.http.Body, maxForm)
	if err := r.http.ParseForm(); err != nil {
		var over *http.MaxBytesError
		if errors.As(err, &over) {
			return fmt.Errorf("%w: a form has at most %d KiB", httperr.ErrTooLarge, maxForm>>10)
		}
		return fmt.Errorf("%w: %w", httperr.ErrIncomplete, err)
	}
	r.form = r.http.PostForm
	for name, values := range r.form {
		for _, value := range values {
			if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
				return invalid(name, "is not text")
			}
		}
	}
	return nil
}

// value returns the value of a form field without surrounding space.
func (r *request) value(name string) string { return strings.TrimSpace(r.form.Get(name)) }

// text returns the value of a textarea with LF line ends. Browsers send CRLF.
func (r *request) text(name string) string { return strings.ReplaceAll(r.form.Get(name), "\r\n", "\n") }

// query returns a parameter of the page's URL without surrounding space.
func (r *request) query(name string) string { return strings.TrimSpace(r.url.Query().Get(name)) }

// bareID returns the id in the path without its prefix, or store.ErrNotFound if it cannot be an id.
func (r *request) bareID(prefix string) (string, error) {
	id, ok := store.BareID(prefix, r.params["id"])
	if !ok {
		return "", store.ErrNotFound
	}
	return id, nil
}

// load reads the object whose prefixed id is in the path.
func load[T any](
	r *request, prefix string, from func(ctx context.Context, project, id string) (T, error),
) (found T, err error) {
	id, err := r.bareID(prefix)
	if err != nil {
		return found, err
	}
	return from(r.ctx, r.caller.Project, id)
}

// by returns the actor for the audit log: the viewer and the reason from the form.
func (r *request) by() store.Actor { return r.caller.By(r.value("reason")) }

// back returns the page to return to, from the form or the URL, or otherwise.
func (r *request) back(otherwise string) string {
	if to := r.form.Get("back"); to != "" {
		return local(to, otherwise)
	}
	return local(r.query("back"), otherwise)
}

// typedTimes are the layouts of times without an offset that a viewer may type.
var typedTimes = [...]string{
	inputTime, "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02",
}

// parseInput parses a time in the viewer's zone, or an RFC 3339 time with an offset. ok is false if the
// year in UTC is outside 0 to 9999, which RFC 3339 cannot write.
func (r *request) parseInput(s string) (ms int64, ok bool) {
	for _, layout := range typedTimes {
		if t, err := time.ParseInLocation(layout, s, r.zone.Location); err == nil {
			// When clocks go forward some local times do not exist, and the parser silently returns another
			// time.
			return t.UnixMilli(), t.Format(layout) == s && writable(t)
		}
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	return t.UnixMilli(), err == nil && writable(t)
}

// writable reports whether RFC 3339 can write t in UTC.
func writable(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 0 && year <= 9999
}

// timedOut reports whether the deadline of bounded has passed while the request itself still runs.
func (r *request) timedOut(bounded context.Context) bool {
	return errors.Is(bounded.Err(), context.DeadlineExceeded) && r.ctx.Err() == nil
}

// duration parses a form field with a duration. It returns nil for an empty field.
func (r *request) duration(name string) (*time.Duration, error) {
	text := r.value(name)
	if text == "" {
		return nil, nil
	}
	d, err := schedule.ParseDuration(text)
	if err != nil {
		return nil, invalid(name, r.lang.text("form.duration"))
	}
	return &d, nil
}

// moment parses a form field with a time, in Unix milliseconds. It returns nil for an empty field.
func (r *request) moment(name string) (*int64, error) {
	text := r.value(name)
	if text == "" {
		return nil, nil
	}
	ms, ok := r.parseInput(text)
	if !ok {
		return nil, invalid(name, r.lang.text("form.moment"))
	}
	return &ms, nil
}

// lengthOrMoment parses two fields of which at most one may be filled in: a duration and a time.
func (r *request) lengthOrMoment(length, moment string) (d *time.Duration, ms *int64, err error) {
	if r.value(length) != "" && r.value(moment) != "" {
		return nil, nil, invalid(length, r.lang.text("act.reschedule.both"))
	}
	d, err = r.duration(length)
	if err == nil {
		ms, err = r.moment(moment)
	}
	return d, ms, err
}

// pauseEnd returns when a pause ends, from the fields "for" and "until". If both are empty the pause lasts
// until an operator resumes it.
func (r *request) pauseEnd() (int64, error) {
	while, until, err := r.lengthOrMoment("for", "until")
	switch {
	case err != nil:
		return 0, err
	case while != nil && *while < time.Millisecond:
		return 0, invalid("for", r.lang.text("endpoint.pause.past"))
	case while != nil:
		return r.now + while.Milliseconds(), nil
	case until == nil:
		return store.Forever, nil
	case *until <= r.now:
		return 0, invalid("until", r.lang.text("endpoint.pause.past"))
	}
	return *until, nil
}

// A response is the result of a handler. A redirect has to, a text file has raw, a page has template.
type response struct {
	status int
	// template renders page.
	template string
	page     framed
	// to is the target of a redirect.
	to string
	// raw is sent as a plain-text download with the name file.
	raw  []byte
	file string
	// retryAfter sets the Retry-After header, unless it is zero.
	retryAfter time.Duration
	// cookies are set in addition to the session's cookie.
	cookies []*http.Cookie
}

// show returns a page.
func show(template string, page framed) (*response, error) {
	return &response{status: http.StatusOK, template: template, page: page}, nil
}

// redirect returns a redirect to another page of the UI.
func redirect(to string) (*response, error) {
	return &response{status: http.StatusSeeOther, to: to}, nil
}

// download returns a text file.
func download(file string, raw []byte) (*response, error) {
	return &response{status: http.StatusOK, raw: raw, file: file}, nil
}
