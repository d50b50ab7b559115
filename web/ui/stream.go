package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

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
	if err != nil {
		c.Status(http.StatusServiceUnavailable)
		return
	}
	r := u.newRequest(ctx, c, Route{})
	switch err := u.authenticate(r); {
	case errors.Is(err, errSignIn):
		u.reload(c, r)
		return
	case err != nil:
		c.Status(http.StatusServiceUnavailable)
		return
	}
	page, err := url.ParseRequestURI(local(c.Query("page"), ""))
	if err != nil || !isText(page.RawQuery) {
		c.Status(http.StatusNotFound)
		return
	}
	route, params, ok := u.match(page.Path)
	if !ok {
		c.Status(http.StatusNotFound)
		return
	}
	if !r.who.allows(route.Scope) {
		u.reload(c, r)
		return
	}
	again := request{
		http: nil, url: page, params: params, lang: r.lang, zone: r.zone, theme: r.theme, live: true, id: "live",
	}
	hash, project := u.sessions.GetString(ctx, sessionKey), r.who.project
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
func (u *UI) renderAgain(ctx context.Context, r request, route Route, hash, project string) (map[string]string, error) {
	who, err := u.holder(ctx, hash, project)
	if err != nil {
		return nil, err
	}
	if !who.allows(route.Scope) {
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

// reload answers a page that may not be looked at any more. A refusal would say nothing to it, and it would try again for ever.
func (u *UI) reload(c *gin.Context, r *request) {
	beginStream(c.Writer.Header())
	if _, err := c.Writer.WriteString(reloadEvent); err != nil {
		u.Logger.Debug("stream not written", "request_id", r.id, "error", err)
	}
}

// reloadEvent has the page loaded anew.
const reloadEvent = "event: reload\ndata: {}\n\n"

// beginStream says that what follows is a stream, which nobody on the way may hold back.
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
	// When the read deadline passes net/http ends the request's context, even if there is nothing more to read.
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return
	}
	write := func(event []byte) bool {
		if err := rc.SetWriteDeadline(time.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
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
