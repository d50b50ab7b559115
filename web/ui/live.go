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
	// maxViews bounds the distinct pages that a process rerenders, maxWatchers the browsers that watch them.
	maxViews    = 64
	maxWatchers = 512
	// maxKeyWatchers bounds the watchers of one key, so that one key cannot use all of maxWatchers.
	maxKeyWatchers = 20
	// renderEvery is the minimum interval between renderings of a page. A slow page is rendered less often:
	// its renderings take at most renderShare of the time.
	renderEvery = time.Second
	renderShare = 0.05
	// watcherBuffer is the number of events that can wait for a slow browser. When the buffer is full the
	// stream ends. The browser reconnects and gets all regions.
	watcherBuffer = 8
	// renderTimeout bounds one rendering.
	renderTimeout = 8 * time.Second
	// retryEvery is the wait after a failed rendering.
	retryEvery = 3 * time.Second
)

var (
	// errFull reports that the process has maxViews pages or maxWatchers watchers.
	errFull = errors.New("too many pages are open")
	// errKeyFull reports that the key has maxKeyWatchers watchers.
	errKeyFull = errors.New("too many pages are open with the key")
	// errPanic reports that a page has panicked. renderOnce has logged the panic.
	errPanic = errors.New("the page panicked")
)

// A region is a region of a page in an event.
type region struct {
	Region string `json:"region"`
	HTML   string `json:"html"`
}

// A hub keeps open pages up to date. It rerenders a page once for all browsers that show the same URL with
// the same key, project, language and time zone. It sends the changed regions to all of them as one event.
type hub struct {
	log *slog.Logger

	mu     sync.Mutex
	closed bool
	views  map[string]*view
	// watchers counts the watchers of all views.
	watchers int
	running  sync.WaitGroup
}

func newHub(log *slog.Logger) *hub { return &hub{log: log, views: make(map[string]*view)} }

// A view is one open page with its watchers.
type view struct {
	hub *hub
	key string
	// owner is the hash of the viewer's key. page is the path, for the log.
	owner, page string
	render      func(ctx context.Context) (map[string]string, error)
	stop        context.CancelFunc
	// watchers and last are guarded by the hub's mutex. last has the regions of the last successful
	// rendering.
	watchers map[*watcher]bool
	last     map[string]string
}

// A watcher is one browser. events carries the events to write; the hub closes it at the end of the stream.
// reload is set before the close. It says whether the browser must reload the page.
type watcher struct {
	events chan []byte
	reload bool
}

// watch adds a watcher to the view with the key, and starts the view if it is the first. The caller must call
// the returned function when the browser has gone. watch returns errFull or errKeyFull beyond the bounds.
func (h *hub) watch(
	owner, page, key string, render func(ctx context.Context) (map[string]string, error),
) (*watcher, func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.views[key]
	if h.closed || h.watchers >= maxWatchers || v == nil && len(h.views) >= maxViews {
		return nil, nil, errFull
	}
	if h.watchersOf(owner) >= maxKeyWatchers {
		return nil, nil, errKeyFull
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

// watchersOf counts the watchers of a key. The caller holds h.mu.
func (h *hub) watchersOf(owner string) (n int) {
	for _, v := range h.views {
		if v.owner == owner {
			n += len(v.watchers)
		}
	}
	return n
}

// leave removes a watcher. It stops the view of the last watcher. It may be called twice.
func (h *hub) leave(v *view, w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(v, w)
	if len(v.watchers) == 0 && h.views[v.key] == v {
		delete(h.views, v.key)
		v.stop()
	}
}

// drop removes a watcher and ends its stream, once. The caller holds h.mu.
func (h *hub) drop(v *view, w *watcher) {
	if v.watchers[w] {
		delete(v.watchers, w)
		h.watchers--
		close(w.events)
	}
}

// close ends all streams and waits for the goroutines of all views.
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

// run is the goroutine of a view. It rerenders the page until the last watcher has left, the session has
// ended or the page has panicked.
func (v *view) run(ctx context.Context) {
	seed := maphash.MakeSeed()
	hashes := make(map[string]uint64)
	for {
		began := time.Now()
		now, err := v.renderOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errSignIn) || errors.Is(err, errPanic) {
			v.end(errors.Is(err, errSignIn))
			return
		}
		if err != nil {
			v.hub.log.Debug("live page not rendered", "page", v.page, "error", err)
			v.broadcast(nil, nil, []byte("event: stale\ndata: {}\n\n"))
		} else {
			changed := make(map[string]string)
			for name, html := range now {
				if h := maphash.String(seed, timeless(html)); hashes[name] != h {
					hashes[name], changed[name] = h, html
				}
			}
			v.broadcast(now, changed, nil)
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

// renderOnce renders the page. It returns errPanic for a panic: outside a request no middleware recovers it,
// and the process would end.
func (v *view) renderOnce(ctx context.Context) (now map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, renderTimeout)
	defer cancel()
	defer func() {
		if thrown := recover(); thrown != nil {
			v.hub.log.Error("live page panicked", "page", v.page, "panic", fmt.Sprint(thrown), "stack",
				string(debug.Stack()))
			err = errPanic
		}
	}()
	return v.render(ctx)
}

// timeless removes the relative times. They change with each rendering, and the browser's script updates
// them.
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

// broadcast sends an event to all watchers: instead if it is not nil, else the changed regions. Without
// changes that event is a heartbeat. It drops watchers whose buffer is full. now, if not nil, becomes v.last.
func (v *view) broadcast(now, changed map[string]string, instead []byte) {
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

// end ends the streams of all watchers and the view. reload makes the browsers reload the page, which then
// shows the sign-in or an error.
func (v *view) end(reload bool) {
	v.hub.mu.Lock()
	defer v.hub.mu.Unlock()
	for w := range v.watchers {
		w.reload = reload
		v.hub.drop(v, w)
	}
	if v.hub.views[v.key] == v {
		delete(v.hub.views, v.key)
	}
	v.stop()
}

// event formats regions as a server-sent event.
func event(regions map[string]string) []byte {
	list := make([]region, 0, len(regions))
	for _, name := range slices.Sorted(maps.Keys(regions)) {
		list = append(list, region{name, regions[name]})
	}
	var out bytes.Buffer
	out.WriteString("event: regions\ndata: ")
	encoder := json.NewEncoder(&out) // writes one line with its line end
	if err := encoder.Encode(list); err != nil {
		panic(err) // strings always encode
	}
	out.WriteString("\n")
	return out.Bytes()
}

const (
	// writeTimeout bounds each write of a stream. It replaces the server's bound on the whole response.
	writeTimeout = 10 * time.Second
	// sessionCheckEvery is how often a stream checks its session.
	sessionCheckEvery = 15 * time.Second
)

// stream is GET /ui/live?page=PATH: the changes of an open page as server-sent events. It needs the same
// session and scope as the page.
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
	case !r.caller.Allows(route.Scope):
		u.reload(c, r)
		return
	}
	live := request{
		http: nil, url: page, params: params, lang: r.lang, zone: r.zone, theme: r.theme, live: true,
		id: "live",
	}
	hash, project := u.sessions.GetString(ctx, sessionKey), r.caller.Project
	key := strings.Join([]string{hash, project, r.lang.code, r.zone.name, page.RequestURI()}, " ")
	w, leave, err := u.hub.watch(hash, page.Path, key, func(ctx context.Context) (map[string]string, error) {
		return u.rerender(ctx, live, route, hash, project)
	})
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, errKeyFull) {
			status = http.StatusTooManyRequests
		}
		c.Header("Retry-After", "30")
		c.Status(status)
		return
	}
	defer leave()
	u.follow(c, r, w)
}

// rerender renders a page and returns its regions. It checks the key and its scope each time, as a request
// does. It returns errSignIn if the browser must reload the page.
func (u *UI) rerender(
	ctx context.Context, r request, route Route, hash, project string,
) (map[string]string, error) {
	caller, err := u.callerOf(ctx, hash, project)
	if err != nil {
		return nil, err
	}
	if !caller.Allows(route.Scope) {
		return nil, errSignIn
	}
	r.ctx, r.caller, r.now = ctx, caller, u.now()
	a, err := route.handler(&r)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, errSignIn // the object is gone; the reloaded page says so
	case err != nil:
		return nil, err
	case a.template == "":
		return nil, errSignIn // the page redirects now
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

// reload makes the browser reload a page that it may no longer see. After an error status the browser would
// retry the stream forever.
func (u *UI) reload(c *gin.Context, r *request) {
	beginStream(c.Writer.Header())
	if _, err := c.Writer.WriteString(reloadEvent); err != nil {
		u.Logger.Debug("stream not written", "request_id", r.id, "error", err)
	}
}

// reloadEvent makes the browser reload the page.
const reloadEvent = "event: reload\ndata: {}\n\n"

// beginStream sets the headers of a stream. X-Accel-Buffering keeps proxies from buffering it.
func beginStream(h http.Header) {
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
}

// follow writes the events of a watcher until the hub ends it, the browser disconnects, or the session ends.
// It checks the session itself, so a slow rendering does not delay the end of a revoked key's stream.
func (u *UI) follow(c *gin.Context, r *request, w *watcher) {
	beginStream(c.Writer.Header())
	c.Writer.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(c.Writer)
	// net/http cancels the request's context when the read deadline passes, even if nothing is left to read.
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return
	}
	write := func(event []byte) bool {
		err := rc.SetWriteDeadline(time.Now().Add(writeTimeout))
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			return false
		}
		_, err = c.Writer.Write(event)
		return err == nil && rc.Flush() == nil
	}
	if !write([]byte("retry: 2000\n\n")) {
		return
	}
	check := time.NewTicker(sessionCheckEvery)
	defer check.Stop()
	for {
		select {
		case <-r.http.Context().Done():
			return
		case event, more := <-w.events:
			if !more {
				if w.reload {
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

// sessionEnded reports whether the session of a stream, or its key, has ended. While SQL fails the stream
// goes on.
func (u *UI) sessionEnded(r *request) bool {
	ctx, cancel := context.WithTimeout(r.http.Context(), sessionTimeout)
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
	_, err = u.callerOf(ctx, text, "")
	return errors.Is(err, errSignIn)
}
