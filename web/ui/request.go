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

// maxForm is the most bytes of a form: a template of a schedule has a payload in it.
const maxForm = 512 << 10

// A request is one request of a viewer, or of a stream that renders a page for all who look at it.
type request struct {
	ctx    context.Context
	http   *http.Request // nil for a stream's
	who    query.Caller
	route  Route
	url    *url.URL
	params map[string]string
	form   url.Values
	lang   *language
	zone   zoneChoice
	theme  string
	now    int64
	// live: the page is rendered again for those who have it open.
	live bool
	// id is the request's, for the log.
	id string
}

func (u *UI) newRequest(ctx context.Context, c *gin.Context, route Route) *request {
	r := &request{
		ctx: ctx, http: c.Request, route: route, url: c.Request.URL,
		params: make(map[string]string, len(c.Params)), now: u.now(),
		id: c.Writer.Header().Get(RequestIDHeader),
	}
	// the zero address is one, too, which all without one share
	r.who.Address, _ = netip.ParseAddr(c.ClientIP())
	for _, p := range c.Params {
		r.params[p.Key] = p.Value
	}
	r.lang = u.languages.choose(u.cookie(c.Request, languageCookie), c.Request.Header.Get("Accept-Language"))
	r.zone, _ = zoneOf(u.cookie(c.Request, zoneCookie))
	r.theme = themeOf(u.cookie(c.Request, themeCookie))
	return r
}

// cookie returns the value of a cookie of ours, or "".
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

// readForm reads the form that a browser has sent.
func (r *request) readForm() error {
	r.http.Body = http.MaxBytesReader(nil, r.http.Body, maxForm)
	if err := r.http.ParseForm(); err != nil {
		var over *http.MaxBytesError
		if errors.As(err, &over) {
			return fmt.Errorf("%w: at most %d KiB are taken here", httperr.ErrTooLarge, maxForm>>10)
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

// value returns what a field of the form says, without the space around it.
func (r *request) value(name string) string { return strings.TrimSpace(r.form.Get(name)) }

// text returns what a field of several lines says, with the line ends that a browser makes undone.
func (r *request) text(name string) string { return strings.ReplaceAll(r.form.Get(name), "\r\n", "\n") }

// query returns a parameter of the page's address.
func (r *request) query(name string) string { return strings.TrimSpace(r.url.Query().Get(name)) }

// bareID returns the id in the path without its prefix. What cannot be an id is not found.
func (r *request) bareID(prefix string) (string, error) {
	id, ok := store.BareID(prefix, r.params["id"])
	if !ok {
		return "", store.ErrNotFound
	}
	return id, nil
}

// load reads the object whose id, which has the prefix, stands in the path.
func load[T any](
	r *request, prefix string, from func(ctx context.Context, project, id string) (T, error),
) (found T, err error) {
	id, err := r.bareID(prefix)
	if err != nil {
		return found, err
	}
	return from(r.ctx, r.who.Project, id)
}

// by names the viewer for the audit, with the reason that the form gives.
func (r *request) by() store.Actor { return r.who.By(r.value("reason")) }

// back is where the form came from, or otherwise.
func (r *request) back(otherwise string) string {
	if to := r.form.Get("back"); to != "" {
		return local(to, otherwise)
	}
	return local(r.query("back"), otherwise)
}

// parseInput reads a moment that a field of a form has in the viewer's zone, or with an offset of its own.
// In UTC, as it is shown elsewhere, it is in the years that RFC 3339 can write.
func (r *request) parseInput(s string) (ms int64, ok bool) {
	for _, layout := range []string{inputTime, "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04",
		"2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, r.zone.Location); err == nil {
			// Where clocks are put forward there is no such time, and another one would be taken without a
			// word.
			return t.UnixMilli(), t.Format(layout) == s && writable(t)
		}
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	return t.UnixMilli(), err == nil && writable(t)
}

func writable(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 0 && year <= 9999
}

// tookTooLong says whether what ended is the bound on a part of the request, and not the request itself.
func (r *request) tookTooLong(bounded context.Context) bool {
	return errors.Is(bounded.Err(), context.DeadlineExceeded) && r.ctx.Err() == nil
}

// duration reads a field that holds a length of time; nil: it is empty.
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

// moment reads a field that holds a moment; nil: it is empty.
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

// lengthOrMoment reads two fields of which at most one says something: a length of time, or a moment.
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

// pauseEnd reads the fields for and until; neither: until somebody resumes it.
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

// An answer is what a handler has made of a request.
type answer struct {
	status int
	// template and page are what is rendered.
	template string
	page     framed
	// to is where to go instead.
	to string
	// raw is sent instead, as a text that no browser takes for a page, under the name file.
	raw  []byte
	file string
	// retryAfter is how long to wait before asking again; zero: that is not said.
	retryAfter time.Duration
	// cookies are set beside the session's.
	cookies []*http.Cookie
}

// show answers with a page.
func show(template string, page framed) (*answer, error) {
	return &answer{status: http.StatusOK, template: template, page: page}, nil
}

// redirect answers by sending the browser to another page of ours.
func redirect(to string) (*answer, error) {
	return &answer{status: http.StatusSeeOther, to: to}, nil
}

// download answers with a text.
func download(file string, raw []byte) (*answer, error) {
	return &answer{status: http.StatusOK, raw: raw, file: file}, nil
}
