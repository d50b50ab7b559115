package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxViews is how many different pages are rendered again at a time, maxWatchers how many browsers look
	// at them.
	maxViews    = 64
	maxWatchers = 512
	// maxOwnWatchers is how many of the browsers look with one key, so that it leaves some for the others.
	maxOwnWatchers = 20
	// renderEvery is how often a page is rendered again at most; it is done less often where it takes long:
	// no more than renderShare of the time is spent on one page.
	renderEvery = time.Second
	renderShare = 0.05
	// watcherBuffer is how many events wait for a slow browser. One that lags behind is cut off: it comes
	// back, and is told all.
	watcherBuffer = 8
	// renderTime bounds one rendering.
	renderTime = 8 * time.Second
	// retryEvery is how long after a rendering that failed the next one is.
	retryEvery = 3 * time.Second
)

var (
	// errFull: as many pages are looked at as a process keeps up to date.
	errFull = errors.New("too many pages are open")
	// errOwnFull: as many pages are looked at with the key as one key may.
	errOwnFull = errors.New("too many pages are open with the key")
	// errPanic: a page panicked, which was logged.
	errPanic = errors.New("the page panicked")
)

// A region of a page, as an event carries it.
type region struct {
	Region string `json:"region"`
	HTML   string `json:"html"`
}

// A hub keeps the pages up to date that somebody has open. Each page is rendered once for all who look at the
// same, in the same language and zone and with the same key, and what has changed of it goes to them as one
// event.
type hub struct {
	log *slog.Logger

	mu     sync.Mutex
	closed bool
	views  map[string]*view
	// watchers counts those of all views.
	watchers int
	running  sync.WaitGroup
}

func newHub(log *slog.Logger) *hub { return &hub{log: log, views: make(map[string]*view)} }

// A view is one page that somebody has open.
type view struct {
	hub *hub
	key string
	// owner is the key that looks, by its hash. page is the path, for the log.
	owner, page string
	render      func(ctx context.Context) (map[string]string, error)
	stop        context.CancelFunc
	// watchers and last are guarded by the hub's mutex. last is what the regions are, once they were
	// rendered.
	watchers map[*watcher]bool
	last     map[string]string
}

// A watcher is one browser. events carries what is to be written, and is closed when there is no more; then
// over says whether the page should be loaded anew.
type watcher struct {
	events chan []byte
	over   bool
}

// watch has a page kept up to date until the returned function is called.
func (h *hub) watch(
	owner, page, key string, render func(ctx context.Context) (map[string]string, error),
) (*watcher, func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.views[key]
	if h.closed || h.watchers >= maxWatchers || v == nil && len(h.views) >= maxViews {
		return nil, nil, errFull
	}
	if h.watchersOf(owner) >= maxOwnWatchers {
		return nil, nil, errOwnFull
	}
	w := &watcher{events: make(chan []byte, watcherBuffer)}
	if v == nil {
		ctx, stop := context.WithCancel(context.Background())
		v = &view{
			hub: h, key: key, owner: owner, page: page, render: render, stop: stop,
			watchers: make(map[*watcher]bool),
		}
		h.views[key] = v
		h.running.Go(func() { v.run(ctx) })
	} else if len(v.last) > 0 {
		w.events <- event(v.last)
	}
	v.watchers[w] = true
	h.watchers++
	return w, func() { h.leave(v, w) }, nil
}

// watchersOf counts the watchers of a key. The mutex is held.
func (h *hub) watchersOf(owner string) (n int) {
	for _, v := range h.views {
		if v.owner == owner {
			n += len(v.watchers)
		}
	}
	return n
}

// leave takes a watcher away, and its view with the last one.
func (h *hub) leave(v *view, w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(v, w)
	if len(v.watchers) == 0 && h.views[v.key] == v {
		delete(h.views, v.key)
		v.stop()
	}
}

// drop ends a watcher. The mutex is held.
func (h *hub) drop(v *view, w *watcher) {
	if v.watchers[w] {
		delete(v.watchers, w)
		h.watchers--
		close(w.events)
	}
}

// close ends all streams, and returns when nothing is rendered any more.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	for key, v := range h.views {
		for w := range v.watchers {
			h.drop(v, w)
		}
		delete(h.views, key)
		v.stop()
	}
	h.mu.Unlock()
	h.running.Wait()
}

// run renders the page again and again until its last watcher leaves.
func (v *view) run(ctx context.Context) {
	seed := maphash.MakeSeed()
	hashes := make(map[string]uint64)
	for {
		began := time.Now()
		now, err := v.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errSignIn) || errors.Is(err, errPanic) {
			v.end(errors.Is(err, errSignIn))
			return
		}
		if err != nil {
			v.hub.log.Debug("page not rendered again", "page", v.page, "error", err)
			v.tell(nil, nil, []byte("event: stale\ndata: {}\n\n"))
		} else {
			changed := make(map[string]string)
			for name, html := range now {
				if h := maphash.String(seed, timeless(html)); hashes[name] != h {
					hashes[name], changed[name] = h, html
				}
			}
			v.tell(now, changed, nil)
		}
		pause := max(renderEvery, time.Duration(float64(time.Since(began))/renderShare))
		if err != nil {
			pause = retryEvery
		}
		timer := time.NewTimer(min(pause, time.Minute))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// once renders the page. A panic becomes an error: no request is around it, so that it would end the process.
func (v *view) once(ctx context.Context) (now map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, renderTime)
	defer cancel()
	defer func() {
		if thrown := recover(); thrown != nil {
			v.hub.log.Error("a live page panicked",
				"page", v.page, "panic", fmt.Sprint(thrown), "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return v.render(ctx)
}

// timeless leaves out how long ago things were, which each browser counts on by itself.
func timeless(html string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(html, relativeBegin)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		_, html, found = strings.Cut(rest, "</span>")
		if !found {
			return out.String()
		}
	}
}

// tell sends what has changed, rendered once, to all who look; where nothing has, a beat by which they know
// that the stream is alive.
func (v *view) tell(now, changed map[string]string, instead []byte) {
	message := instead
	if message == nil {
		message = event(changed)
	}
	v.hub.mu.Lock()
	defer v.hub.mu.Unlock()
	if now != nil {
		v.last = now
	}
	for w := range v.watchers {
		select {
		case w.events <- message:
		default:
			v.hub.drop(v, w)
		}
	}
}

// end ends the streams of all who look. over has them load the page anew: their session has ended.
func (v *view) end(over bool) {
	v.hub.mu.Lock()
	defer v.hub.mu.Unlock()
	for w := range v.watchers {
		w.over = over
		v.hub.drop(v, w)
	}
	if v.hub.views[v.key] == v {
		delete(v.hub.views, v.key)
	}
	v.stop()
}

// event writes regions as one event of a stream.
func event(regions map[string]string) []byte {
	list := make([]region, 0, len(regions))
	for _, name := range slices.Sorted(maps.Keys(regions)) {
		list = append(list, region{name, regions[name]})
	}
	var out bytes.Buffer
	out.WriteString("event: regions\ndata: ")
	encoder := json.NewEncoder(&out) // which ends with the one line end that JSON has here
	if err := encoder.Encode(list); err != nil {
		panic(err) // texts can always be encoded
	}
	out.WriteString("\n")
	return out.Bytes()
}

const (
	// writeTime bounds each write of a stream, in place of the server's bound on the whole answer.
	writeTime = 10 * time.Second
	// sessionEvery is how often a stream looks whether its session goes on.
	sessionEvery = 15 * time.Second
)

// stream is GET /ui/live?page=PATH: what changes of a page while it is open, as server-sent events.
func (u *UI) stream(c *gin.Context) {
	u.protect(c.Writer.Header())
	ctx, err := u.loadSession(c.Request.Context(), c.Request)
	r := u.newRequest(ctx, c, Route{})
	if err == nil {
		err = u.authenticate(r)
	}
	switch {
	case errors.Is(err, errSignIn):
		u.reload(c, r)
		return
	case err != nil:
		c.Status(http.StatusServiceUnavailable)
		return
	}
	var (
		route  Route
		params map[string]string
		ok     bool
	)
	page, err := url.ParseRequestURI(local(c.Query("page"), ""))
	if err == nil && isText(page.RawQuery) {
		route, params, ok = u.match(http.MethodGet, page.Path)
	}
	switch {
	case !ok || !route.live:
		c.Status(http.StatusNotFound)
		return
	case !r.who.Allows(route.Scope):
		u.reload(c, r)
		return
	}
	again := request{
		http: nil, url: page, params: params, lang: r.lang, zone: r.zone, theme: r.theme, live: true,
		id: "live",
	}
	hash, project := u.sessions.GetString(ctx, sessionKey), r.who.Project
	key := strings.Join([]string{hash, project, r.lang.code, r.zone.name, page.RequestURI()}, " ")
	w, leave, err := u.hub.watch(hash, page.Path, key, func(ctx context.Context) (map[string]string, error) {
		return u.renderAgain(ctx, again, route, hash, project)
	})
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, errOwnFull) {
			status = http.StatusTooManyRequests
		}
		c.Header("Retry-After", "30")
		c.Status(status)
		return
	}
	defer leave()
	u.follow(c, r, w)
}

// renderAgain renders a page and returns its regions.
func (u *UI) renderAgain(ctx context.Context, r request, route Route, hash,
	project string) (map[string]string, error) {
	who, err := u.holder(ctx, hash, project)
	if err != nil {
		return nil, err
	}
	if !who.Allows(route.Scope) {
		return nil, errSignIn
	}
	r.ctx, r.who, r.now = ctx, who, u.now()
	a, err := route.handler(&r)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, errSignIn // it is gone: the page must say so
	case err != nil:
		return nil, err
	case a.template == "":
		return nil, errSignIn
	}
	if err := u.complete(&r, a.page.frame(), false); err != nil {
		return nil, err
	}
	body, err := u.render(a.template, a.page)
	if err != nil {
		return nil, err
	}
	return regions(string(body)), nil
}

// reload answers a page that may not be looked at any more. A refusal would say nothing to it, and it would
// try again for ever.
func (u *UI) reload(c *gin.Context, r *request) {
	beginStream(c.Writer.Header())
	if _, err := c.Writer.WriteString(reloadEvent); err != nil {
		u.Logger.Debug("stream not written", "request_id", r.id, "error", err)
	}
}

// reloadEvent has the page loaded anew.
const reloadEvent = "event: reload\ndata: {}\n\n"

// beginStream says that what follows is a stream, which no proxy may hold back.
func beginStream(h http.Header) {
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
}

// follow writes a watcher's events until it ends, the browser goes, or the session ends.
func (u *UI) follow(c *gin.Context, r *request, w *watcher) {
	beginStream(c.Writer.Header())
	c.Writer.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(c.Writer)
	// When the read deadline passes net/http ends the request's context, even if there is nothing more to
	// read.
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return
	}
	write := func(event []byte) bool {
		if err := rc.SetWriteDeadline(time.Now().Add(writeTime)); err != nil &&
			!errors.Is(err, http.ErrNotSupported) {
			return false
		}
		_, err := c.Writer.Write(event)
		return err == nil && rc.Flush() == nil
	}
	if !write([]byte("retry: 2000\n\n")) {
		return
	}
	check := time.NewTicker(sessionEvery)
	defer check.Stop()
	for {
		select {
		case <-r.http.Context().Done():
			return
		case event, more := <-w.events:
			if !more {
				if w.over {
					write([]byte(reloadEvent))
				}
				return
			}
			if !write(event) {
				return
			}
		case <-check.C:
			if u.sessionEnded(r) {
				write([]byte(reloadEvent))
				return
			}
		}
	}
}

// sessionEnded says whether the session that a stream belongs to is no more, or its key. While SQL is away it
// goes on.
func (u *UI) sessionEnded(r *request) bool {
	ctx, cancel := context.WithTimeout(r.http.Context(), sessionTime)
	defer cancel()
	ctx, err := u.loadSession(ctx, r.http)
	if err != nil {
		return false
	}
	seen := time.UnixMilli(u.sessions.GetInt64(ctx, sessionSeen))
	text := u.sessions.GetString(ctx, sessionKey)
	if text == "" || time.Since(seen) > u.IdleTimeout {
		return true
	}
	_, err = u.holder(ctx, text, "")
	return errors.Is(err, errSignIn)
}
