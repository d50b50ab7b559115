package ui

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// This file serves the pages of merchants, below query.ViewRoot. A merchant has no key and no session: the
// token in the path is its credential. The pages set no cookie and run no script, so they also work in a
// frame of another site. They show what query.Merchant returns, and nothing else.

// A viewRequest is one request with a link.
type viewRequest struct {
	*request
	link     control.ViewLink
	merchant query.Merchant
	// root is the path of the link's pages.
	root string
}

// A viewHandler returns the response to a request with a valid link.
type viewHandler func(v *viewRequest) (*response, error)

// errEnded: the token is no link, or the link has ended. The page does not say which.
var errEnded = errors.New("the link is not valid")

// registerViews adds the pages of merchants to a router.
func (u *UI) registerViews(engine *gin.Engine) {
	const root, callback = query.ViewRoot + "/:token", "/callbacks/:id"
	for path, h := range map[string]viewHandler{
		"": u.viewList, callback: u.viewCallback, callback + "/payload": u.viewPayload,
		callback + "/report": u.viewReport,
	} {
		engine.GET(root+path, func(c *gin.Context) { u.serveView(c, h) })
		engine.HEAD(root+path, func(c *gin.Context) { u.serveView(c, h) })
	}
	// No check of the origin: the request has no cookie, so another site would need the token to send it, and
	// with the token it needs no browser. Without a referrer and in a sandboxed frame, the browser hides the
	// origin even of the page's own form.
	engine.POST(root+callback+"/send", func(c *gin.Context) { u.serveView(c, u.viewSend) })
}

// serveView handles one request with a link.
func (u *UI) serveView(c *gin.Context, h viewHandler) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), u.Timeout)
	defer cancel()
	r := u.newRequest(ctx, c, Route{Method: c.Request.Method, Path: c.FullPath()})
	v := &viewRequest{request: r, root: query.ViewRoot + "/" + url.PathEscape(c.Param("token"))}
	v.chooseReader(u)
	protectView(c.Writer.Header(), nil)
	a, err := u.openView(c, v, h)
	if err != nil {
		a = u.viewProblem(v, err)
	}
	u.replyView(c, v, a)
}

// chooseReader sets language, time zone and theme. Without cookies the page's URL carries what a reader has
// chosen.
func (v *viewRequest) chooseReader(u *UI) {
	picked := cmp.Or(v.query("lang"), v.link.Language)
	v.lang, v.theme = u.languages.choose(picked, v.http.Header.Get("Accept-Language")), themeOf("auto")
	zone, ok := zoneOf(v.query("zone"))
	if !ok && v.lang.code == "zh-CN" {
		zone, _ = zoneOf("Asia/Shanghai")
	}
	v.zone = zone
}

// protectView sets the headers of a merchant's page. Only pages of the origins may show it in a frame.
func protectView(h http.Header, origins []string) {
	ancestors := "'none'"
	if len(origins) > 0 {
		ancestors = strings.Join(origins, " ")
	}
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors "+ancestors)
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("Referrer-Policy", "no-referrer") // the path has the token
	h.Set("Cache-Control", "no-store")
	h.Set("X-Robots-Tag", "noindex, nofollow")
}

// openView opens the link of the path and calls h. Guessed tokens are slowed down by address, as keys are.
// They cost no query of the database.
func (u *UI) openView(c *gin.Context, v *viewRequest, h viewHandler) (*response, error) {
	token := c.Param("token")
	var tokenHash string
	right, wait, err := u.Guesses.Try(v.caller.Address, token, func(hash [sha256.Size]byte) (bool, error) {
		tokenHash = hex.EncodeToString(hash[:])
		var err error
		v.link, err = u.Engine.OpenViewLink(v.ctx, token)
		if errors.Is(err, store.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	})
	switch {
	case err != nil:
		return nil, err
	case wait > 0:
		return nil, httperr.Later(httperr.ErrRate, wait)
	case !right:
		return nil, errEnded
	}
	// From here on the token is authentic, perhaps ended: its frame may show that.
	protectView(c.Writer.Header(), v.link.Embed)
	v.chooseReader(u)
	if wait := u.Merchants.Take(tokenHash); wait > 0 {
		return nil, httperr.Later(httperr.ErrRate, wait)
	}
	if !isText(v.url.RawQuery) {
		return nil, invalid("query", "is not text")
	}
	ep, err := u.Engine.LinkedEndpoint(v.ctx, &v.link)
	if errors.Is(err, store.ErrNotFound) {
		return nil, errEnded
	}
	if err != nil {
		return nil, err
	}
	v.merchant = query.Merchant{
		Engine: u.Engine, Store: u.Store, Limits: u.Merchants, Project: v.link.Project, Endpoint: ep,
	}
	return h(v)
}

// replyView writes a response. If the page cannot be rendered it writes an error page, or plain text if that
// fails too.
func (u *UI) replyView(c *gin.Context, v *viewRequest, a *response) {
	body, err := a.raw, error(nil)
	if a.template != "" {
		body, err = u.renderIn("viewlayout.html", a.template, a.page)
	}
	if err != nil {
		a = u.viewProblem(v, err)
		body, err = u.renderIn("viewlayout.html", a.template, a.page)
		if err != nil {
			u.Logger.Error("error page failed", "request_id", v.id, "error", err)
			a, body = &response{status: http.StatusInternalServerError}, []byte(v.lang.text("error.plain"))
		}
	}
	h := c.Writer.Header()
	if a.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(httperr.Seconds(a.retryAfter)))
	}
	switch {
	case a.to != "":
		h.Set("Location", a.to)
	case a.template != "":
		h.Set("Content-Type", "text/html; charset=utf-8")
	default:
		h.Set("Content-Type", "text/plain; charset=utf-8")
		if a.file != "" {
			h.Set("Content-Disposition", `attachment; filename="`+a.file+`"`)
		}
	}
	c.Writer.WriteHeader(a.status)
	if v.http.Method == http.MethodHead {
		return
	}
	if _, err := c.Writer.Write(body); err != nil {
		u.Logger.Debug("page not written", "request_id", v.id, "error", err)
	}
}

// viewProblemPage is the error page of a merchant.
type viewProblemPage struct {
	viewBase
	Message string
	// Ended: there are no other pages, because the link is not valid.
	Ended bool
	// Back is the path of the notification that the request was for, below the link. Empty: the list.
	Back string
}

// viewProblem returns the page for an error. It shows no text of the error.
func (u *UI) viewProblem(v *viewRequest, err error) *response {
	problem := httperr.From(err)
	p := &viewProblemPage{viewBase: u.viewBase(v, v.lang.text("view.problem"))}
	p.Message = p.Or("view.error.", problem.Code)
	switch {
	case errors.Is(err, errEnded):
		problem.Status, p.Ended, p.Message = http.StatusNotFound, true, p.T("view.ended")
		p.Receiver, p.Title = "", p.T("view.ended.title")
	case problem.Code != "not_found" && v.params["id"] != "":
		p.Back = "/callbacks/" + url.PathEscape(v.params["id"])
	}
	if p.Message == problem.Code {
		p.Message = p.T("view.error.other")
	}
	if problem.Status == http.StatusInternalServerError {
		// The path is not logged, because it has the token.
		u.Logger.Error("merchant's page failed", "request_id", v.id, "route", v.route.Path, "error", err)
	}
	return &response{status: problem.Status, template: "viewproblem", page: p,
		retryAfter: time.Duration(problem.RetryAfter) * time.Second}
}
