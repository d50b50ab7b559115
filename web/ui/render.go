package ui

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

//go:embed templates
var templateFiles embed.FS

// templates are the template sets by page name. A set is the shared files and the page's own file.
type templates map[string]*template.Template

// shared are the files of every template set.
var shared = [...]string{"layout.html", "viewlayout.html", "parts.html"}

// readTemplates parses every template set. Each page must define the template "main".
func readTemplates(from fs.FS) (templates, error) {
	common := template.New("").Option("missingkey=error").Funcs(template.FuncMap{
		"of": func(page framed, it any) item { return item{page.frame(), it} },
	})
	for _, name := range shared {
		if _, err := common.ParseFS(from, path.Join("templates", name)); err != nil {
			return nil, fmt.Errorf("parse templates: %w", err)
		}
	}
	files, err := fs.Glob(from, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("find templates: %w", err)
	}
	all := make(templates)
	for _, file := range files {
		name := path.Base(file)
		if slices.Contains(shared[:], name) {
			continue
		}
		set, err := common.Clone()
		if err == nil {
			_, err = set.ParseFS(from, file)
		}
		if err == nil && set.Lookup("main") == nil {
			err = errors.New(`template "main" is not defined`)
		}
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		all[strings.TrimSuffix(name, ".html")] = set
	}
	return all, nil
}

// An item is one value with the page that contains it, for a template that several pages share.
type item struct {
	*base
	It any
}

// render executes the template of a page.
func (u *UI) render(name string, page framed) ([]byte, error) {
	return u.renderIn("layout.html", name, page)
}

// renderIn executes the template of a page in a layout.
func (u *UI) renderIn(layout, name string, page framed) ([]byte, error) {
	set, ok := u.templates[name]
	if !ok {
		return nil, fmt.Errorf("render %s: no such template", name)
	}
	var out bytes.Buffer
	if err := set.ExecuteTemplate(&out, layout, page); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// reply writes a response. If the page cannot be rendered, reply writes an error page instead, or plain text
// if that fails too. It writes nothing before the rendering has succeeded.
func (u *UI) reply(c *gin.Context, r *request, a *response) {
	body, err := u.body(r, a)
	if err != nil {
		a = u.errorResponse(r, err)
		body, err = u.body(r, a)
		if err != nil {
			u.Logger.Error("error page failed", "request_id", r.id, "error", err)
			a, body = &response{status: http.StatusInternalServerError}, []byte(r.lang.text("error.plain"))
		}
	}
	if err := u.storeSession(r.ctx, c.Writer); err != nil {
		u.Logger.Error("session not stored", "request_id", r.id, "error", err)
	}
	for _, cookie := range a.cookies {
		http.SetCookie(c.Writer, cookie)
	}
	h := c.Writer.Header()
	if a.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(httperr.Seconds(a.retryAfter)))
	}
	switch {
	case a.to != "":
		h.Set("Location", a.to)
	case a.raw != nil:
		// Texts of senders and receivers must never run as a page of this site.
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Content-Disposition", `attachment; filename="`+a.file+`"`)
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	case a.template == "":
		h.Set("Content-Type", "text/plain; charset=utf-8")
	default:
		h.Set("Content-Type", "text/html; charset=utf-8")
	}
	c.Writer.WriteHeader(a.status)
	if r.http.Method == http.MethodHead {
		return
	}
	if _, err := c.Writer.Write(body); err != nil {
		u.Logger.Debug("page not written", "request_id", r.id, "error", err)
	}
}

// body renders a response.
func (u *UI) body(r *request, a *response) ([]byte, error) {
	if a.template == "" {
		return a.raw, nil
	}
	if _, asks := a.page.(*form); !asks {
		// The script often loads a form into a dialog. The flash is for the next full page.
		a.page.frame().Flash = u.popFlash(r)
	}
	live := r.route.live && a.status == http.StatusOK
	// A page that reports a server error is rendered even if the frame cannot be read.
	if err := u.complete(r, a.page.frame(), live); err != nil && a.status < http.StatusInternalServerError {
		return nil, err
	}
	return u.render(a.template, a.page)
}

// problemPage is the error page.
type problemPage struct {
	base
	Status int
	// Message says what is wrong. Advice says what to do, or is empty. Both are full sentences.
	Message, Advice string
	// Fields are the invalid fields of the request.
	Fields []client.FieldError
	// RequestID finds the error in the log. It is empty if the error is not logged.
	RequestID string
	// RetryLink retries the request. It is empty if a retry is useless.
	RetryLink string
}

// errorResponse turns a handler's error into a problem page. For errSignIn it redirects to the sign-in.
func (u *UI) errorResponse(r *request, err error) *response {
	if errors.Is(err, errSignIn) {
		next := r.url.RequestURI()
		if r.http.Method == http.MethodPost { // its form is lost, so go to the page that it came from
			next = r.back(Root + "/")
		}
		a, _ := redirect(link("/sign-in", "next", next))
		return a
	}
	status, p := u.problemPageOf(r, err)
	return &response{status: status, template: "problem", page: p}
}

// problemPageOf returns the status and the page for an error. httperr.From maps the error; three errors of
// this package have a code of their own.
func (u *UI) problemPageOf(r *request, err error) (int, *problemPage) {
	problem := httperr.From(err)
	for _, own := range []struct {
		err    error
		status int
		code   string
	}{
		{errForeign, http.StatusForbidden, "foreign"}, {errSwitched, http.StatusConflict, "switched"},
		{errIndexDown, http.StatusServiceUnavailable, "index_away"},
	} {
		if errors.Is(err, own.err) {
			problem.Problem = client.Problem{Status: own.status, Code: own.code}
		}
	}
	p := &problemPage{base: u.base(r, "", "trouble.title"), Status: problem.Status, Fields: problem.Errors}
	p.Message = p.Or("trouble.", problem.Code)
	if p.Message == problem.Code {
		p.Message = problem.Detail
	}
	if key := "trouble." + problem.Code + ".do"; p.Has(key) {
		p.Advice = p.T(key)
	}
	if errors.Is(err, errNotRoot) {
		p.Message = p.T("trouble.root")
	}
	var lacks *scopeError
	if errors.As(err, &lacks) {
		p.Message = p.T("trouble.scope", "scope", p.T("scope."+string(lacks.scope)))
	}
	if problem.Status >= http.StatusInternalServerError {
		if r.http.Method == http.MethodGet { // a retry of a POST could act twice
			p.RetryLink = r.url.RequestURI()
		}
		if problem.Status == http.StatusInternalServerError {
			p.RequestID = r.id
			u.Logger.Error("page failed", "request_id", r.id, "path", r.url.Path, "error", err)
		}
	}
	return problem.Status, p
}
