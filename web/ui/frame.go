package ui

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// framed is a page struct that embeds base.
type framed interface{ frame() *base }

// A base is the part that all pages share: the viewer, the language, the time zone and the page's frame.
type base struct {
	ui   *UI
	r    *request
	lang *language
	zone zoneChoice
	now  int64

	// Title is the page's title, Section the current entry of the menu. TitleData is true if the title is
	// data and not a text of the catalogue.
	Title, Section string
	TitleData      bool
	// Project is nil without a session.
	Project *store.Project
	// Others are the projects that the viewer may switch to.
	Others []store.Project
	// Viewer is the name of the viewer: of a person, or of a key with its id.
	Viewer string
	// Person is the name of a viewer who has signed in without a key.
	Person string
	Flash  *flash
	// Ready is false while SQL cannot commit. Degraded has the codes of other problems, see dispatch.Health.
	Ready    bool
	Degraded []string
	// Unread names outbox tables that are not read. Only root sees them: they are of all projects.
	Unread string
	// Stop is the stop of all sending; the zero value if there is none.
	Stop store.Stop
	// Live is the path of the page's stream. It is empty if the page has none.
	Live string
	// signedIn is true if the request has a session.
	signedIn bool
}

func (b *base) frame() *base { return b }

// base returns the base of a page: section is its menu entry, title the catalogue key of its title.
func (u *UI) base(r *request, section, title string, params ...any) base {
	b := u.baseTitled(r, section, r.lang.text(title, params...))
	b.TitleData = false
	return b
}

// baseTitled is base for a title that is data, such as an endpoint's name.
func (u *UI) baseTitled(r *request, section, title string) base {
	return base{TitleData: true, ui: u, r: r, lang: r.lang, zone: r.zone, now: r.now, Title: title,
		Section: section, Ready: true, signedIn: r.caller.Project != ""}
}

// complete reads what the frame shows: health, project and the viewer's other projects. live adds the path of
// the page's stream.
func (u *UI) complete(r *request, b *base, live bool) error {
	if !b.signedIn {
		return nil
	}
	b.Viewer = r.caller.By("").Name
	if r.caller.Person != nil {
		b.Viewer, b.Person = r.caller.Name(), r.caller.Name()
	}
	health := u.Engine.Health(r.ctx)
	b.Ready = health.Ready
	b.Degraded, b.Unread = splitUnread(health.Degraded)
	if !r.caller.Root() {
		b.Unread = ""
	}
	if i := slices.Index(b.Degraded, "stopped"); i >= 0 {
		var err error
		b.Stop, err = u.Engine.SendingStop(r.ctx)
		if err != nil {
			return err
		}
		b.Degraded = slices.Delete(b.Degraded, i, i+1)
	}
	project, err := u.Store.Project(r.ctx, r.caller.Project)
	if err != nil {
		return err
	}
	b.Project = &project
	if live {
		b.Live = Root + "/live?page=" + url.QueryEscape(r.url.RequestURI())
	}
	switch {
	case r.live:
	case r.caller.Root():
		b.Others, err = u.Store.Projects(r.ctx, "", maxProjects)
	case r.caller.Person != nil:
		b.Others = u.projectsOf(r)
	}
	return err
}

// maxUnread is how many names of outbox tables the frame shows.
const maxUnread = 5

// splitUnread splits the codes of dispatch.Health into those of the process, and the names of the outbox
// tables that are not read.
func splitUnread(codes []string) (others []string, unread string) {
	var names []string
	for _, code := range codes {
		if name, ok := strings.CutPrefix(code, dispatch.DegradedRelay); ok {
			names = append(names, name)
		} else {
			others = append(others, code)
		}
	}
	if len(names) > maxUnread {
		names = append(names[:maxUnread], "…")
	}
	return others, strings.Join(names, ", ")
}

// maxProjects bounds the projects in the frame's list.
const maxProjects = 100

// T returns a text of the catalogue in the viewer's language.
func (b *base) T(key string, params ...any) string { return b.lang.text(key, params...) }

// Or is T for the key prefix+word where word comes from data. If the catalogue has no such text it returns
// the word itself.
func (b *base) Or(prefix, word string) string {
	if key := prefix + word; b.lang.has(key) {
		return b.lang.text(key)
	}
	return word
}

// Has reports whether the catalogue has a text for the key.
func (b *base) Has(key string) bool { return b.lang.has(key) }

// N formats an integer with thousands separators.
func (b *base) N(n any) string { return b.lang.value(n) }

// Lang returns the language's BCP 47 code, for the lang attribute.
func (b *base) Lang() string { return b.lang.code }

// Languages returns the options of the language menu.
func (b *base) Languages() []option {
	var all []option
	for _, l := range b.ui.languages {
		all = append(all, option{Value: l.code, Text: l.name, Data: true, Chosen: l == b.lang})
	}
	return all
}

// Themes returns the options of the theme menu.
func (b *base) Themes() []option {
	return choose(b, "theme.", b.r.theme, "auto", "light", "dark")
}

// Theme returns the theme: auto, light or dark.
func (b *base) Theme() string { return b.r.theme }

// Zone returns the IANA name of the viewer's time zone.
func (b *base) Zone() string { return b.zone.name }

// ZoneChosen reports whether the viewer or the script has set the zone cookie.
func (b *base) ZoneChosen() bool { return b.r.http == nil || b.ui.cookie(b.r.http, zoneCookie) != "" }

// ZoneCookie returns the name of the cookie in which the script stores the browser's time zone.
func (b *base) ZoneCookie() string { return b.ui.cookieName(zoneCookie) }

// Here returns the page's URL for forms that return to it. For a response to a POST it is the overview.
func (b *base) Here() string {
	if b.r.http != nil && b.r.http.Method != http.MethodGet {
		return Root + "/"
	}
	return b.r.url.RequestURI()
}

// Asset returns the URL of a static file.
func (b *base) Asset(name string) string { return b.ui.assets.names[name] }

// Version returns the program's version.
func (b *base) Version() string { return b.ui.Version }

// Now returns the time of the request in Unix milliseconds, by the index's clock.
func (b *base) Now() int64 { return b.now }

// Can reports whether the viewer's key has a scope. Pages offer only acts that the key allows.
func (b *base) Can(scope string) bool { return b.signedIn && b.r.caller.Allows(store.Scope(scope)) }

// ProjectID returns the project of the page. Forms send it along. admit refuses a form after the viewer has
// switched to another project.
func (b *base) ProjectID() string { return b.r.caller.Project }

// Root reports whether the viewer has signed in with the admin key of the settings.
func (b *base) Root() bool { return b.signedIn && b.r.caller.Root() }

// PausedNow reports whether the whole project is paused.
func (b *base) PausedNow() bool { return b.Project != nil && b.Project.PausedUntil > b.now }

// Forever reports whether a pause has no end time and needs a resume.
func (b *base) Forever(until int64) bool { return until >= store.Forever }

// A menuEntry is one page in the menu.
type menuEntry struct {
	Name, Path string
	Current    bool
}

// menuNames are the sections in the order of the menu. They are also the paths of the pages, but for
// overview.
var menuNames = [...]string{
	"overview", "callbacks", "dead", "endpoints", "lanes", "polls", "schedules", "relay", "alerts",
	"redrives", "books", "audit", "system",
}

// Menu returns the entries of the menu. Only keys with the scope admin see the audit log.
func (b *base) Menu() []menuEntry {
	var menu []menuEntry
	for _, name := range menuNames {
		if name == "audit" && !b.Can(string(store.ScopeAdmin)) {
			continue
		}
		path := Root + "/" + name
		if name == "overview" {
			path = Root + "/"
		}
		menu = append(menu, menuEntry{name, path, name == b.Section})
	}
	return menu
}

// Region begins a part of a page that the stream updates while the page is open. EndRegion ends it. Regions
// must not be nested.
func (b *base) Region(name string) template.HTML {
	return template.HTML(regionBegin + name + `">`)
}

// EndRegion ends a region.
func (b *base) EndRegion() template.HTML { return regionEnd }

const (
	regionBegin = `<div data-region="`
	regionEnd   = `</div><!--/region-->`
)

// regions returns the HTML of a page's regions by name.
func regions(page string) map[string]string {
	found := make(map[string]string)
	for {
		_, rest, ok := strings.Cut(page, regionBegin)
		if !ok {
			return found
		}
		name, rest, ok := strings.Cut(rest, `">`)
		if !ok {
			return found
		}
		inside, rest, ok := strings.Cut(rest, regionEnd)
		if !ok {
			return found
		}
		found[name], page = inside, rest
	}
}

// Link returns a URL below Root with parameters: pairs of a name and a value. It omits empty values.
func (b *base) Link(path string, pairs ...string) string { return link(path, pairs...) }

func link(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Add(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return Root + path
	}
	return Root + path + "?" + q.Encode()
}

// With returns the page's URL with changed parameters: pairs of a name and a value. An empty value removes a
// parameter. With also removes the cursor, since the list starts at its first page.
func (b *base) With(pairs ...string) string {
	q := b.r.url.Query()
	q.Del("cursor")
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Del(pairs[i])
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return b.r.url.Path
	}
	return b.r.url.Path + "?" + q.Encode()
}

// A named is a name with a value.
type named struct{ Name, Value string }
