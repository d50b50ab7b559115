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

// templates are the sets by the name of the page: what all pages share, and the page's own file.
type templates map[string]*template.Template

// shared are the files of every set.
var shared = [...]string{"layout.html", "parts.html"}

// readTemplates parses every set.
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
			err = errors.New("it defines no main")
		}
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		all[strings.TrimSuffix(name, ".html")] = set
	}
	return all, nil
}

// An item is one thing with the page around it, for a template that several pages use.
type item struct {
	*base
	It any
}

// render fills a template with a page.
func (u *UI) render(name string, page framed) ([]byte, error) {
	set, ok := u.templates[name]
	if !ok {
		return nil, fmt.Errorf("there is no template %q", name)
	}
	var out bytes.Buffer
	if err := set.ExecuteTemplate(&out, "layout.html", page); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// reply writes an answer. What cannot be rendered becomes a page that says so; nothing was written before.
func (u *UI) reply(c *gin.Context, r *request, a *answer) {
	body, err := u.body(r, a)
	if err != nil {
		a = u.trouble(r, err)
		body, err = u.body(r, a)
		if err != nil {
			u.Logger.Error("page failed", "request_id", r.id, "error", err)
			a, body = &answer{status: http.StatusInternalServerError}, []byte(r.lang.text("error.plain"))
		}
	}
	if err := u.storeSession(r.ctx, c.Writer); err != nil {
		u.Logger.Error("session not kept", "request_id", r.id, "error", err)
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
		// What receivers and senders wrote must never be taken for a page of ours.
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

// body is what an answer sends.
func (u *UI) body(r *request, a *answer) ([]byte, error) {
	if a.template == "" {
		return a.raw, nil
	}
	if _, asks := a.page.(*form); !asks {
		a.page.frame().Flash = u.flashOf(r) // a form is often shown beside the page, which is to say it
	}
	if err := u.complete(r, a.page.frame(), r.route.live && a.status == http.StatusOK); err != nil &&
		a.status < http.StatusInternalServerError {
		return nil, err
	}
	return u.render(a.template, a.page)
}

// troublePage says why there is no page.
type troublePage struct {
	base
	Status int
	// Say is what is wrong, Do what can be done about it; both are whole sentences.
	Say, Do string
	// Fields are what is wrong with the request.
	Fields []client.FieldError
	// RequestID finds the error in the log; empty: it is not there.
	RequestID string
	// Again is where to try again; empty: that is of no use.
	Again string
}

// trouble turns an error into a page, or into a way to the sign-in.
func (u *UI) trouble(r *request, err error) *answer {
	if errors.Is(err, errSignIn) {
		next := r.url.RequestURI()
		if r.http.Method == http.MethodPost {
			next = r.back(Root + "/")
		}
		a, _ := redirect(link("/sign-in", "next", next))
		return a
	}
	status, p := u.troubleOf(r, err)
	return &answer{status: status, template: "trouble", page: p}
}

func (u *UI) troubleOf(r *request, err error) (int, *troublePage) {
	problem := httperr.From(err)
	for _, own := range []struct {
		err    error
		status int
		code   string
	}{
		{errForeign, http.StatusForbidden, "foreign"}, {errSwitched, http.StatusConflict, "switched"},
		{errIndexAway, http.StatusServiceUnavailable, "index_away"},
	} {
		if errors.Is(err, own.err) {
			problem.Problem = client.Problem{Status: own.status, Code: own.code}
		}
	}
	p := &troublePage{base: u.base(r, "", "trouble.title"), Status: problem.Status, Fields: problem.Errors}
	p.Say = p.Or("trouble.", problem.Code)
	if p.Say == problem.Code {
		p.Say = problem.Detail
	}
	if key := "trouble." + problem.Code + ".do"; p.Has(key) {
		p.Do = p.T(key)
	}
	if errors.Is(err, errNotRoot) {
		p.Say = p.T("trouble.root")
	}
	var lacks *scopeError
	if errors.As(err, &lacks) {
		p.Say = p.T("trouble.scope", "scope", string(lacks.scope))
	}
	if problem.Status >= http.StatusInternalServerError {
		if r.http.Method == http.MethodGet {
			p.Again = r.url.RequestURI()
		}
		if problem.Status == http.StatusInternalServerError {
			p.RequestID = r.id
			u.Logger.Error("page failed", "request_id", r.id, "path", r.url.Path, "error", err)
		}
	}
	return problem.Status, p
}
