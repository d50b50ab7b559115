package ui

import (
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// framed is a page: what stands around it, and itself.
type framed interface{ frame() *base }

// A base is what every page has: who looks, in which language and zone, and what stands around the page.
type base struct {
	ui   *UI
	r    *request
	lang *language
	zone zoneChoice
	now  int64

	// Title is the page's, Section the entry of the menu that it belongs to. TitleData: the title is not a
	// text of ours.
	Title, Section string
	TitleData      bool
	// Project is nil without a session.
	Project *store.Project
	// Others are the projects that the viewer may switch to.
	Others []store.Project
	Who    string
	Flash  *flash
	// Ready is false when nothing can be committed; Degraded names what else is wrong.
	Ready    bool
	Degraded []string
	// Live says that the page is kept up to date, and is the path of its stream.
	Live string
	// signedIn: there is a viewer.
	signedIn bool
}

func (b *base) frame() *base { return b }

// base begins a page: title is the key of its title, section that of the menu.
func (u *UI) base(r *request, section, title string, params ...any) base {
	b := u.baseTitled(r, section, r.lang.text(title, params...))
	b.TitleData = false
	return b
}

// baseTitled is base for a title that is not a text of the catalogue alone.
func (u *UI) baseTitled(r *request, section, title string) base {
	return base{TitleData: true, ui: u, r: r, lang: r.lang, zone: r.zone, now: r.now, Title: title,
		Section: section, Ready: true, signedIn: r.who.Project != ""}
}

// complete fills in what the frame shows, which a page that is rendered again for a stream does not need.
func (u *UI) complete(r *request, b *base, live bool) error {
	if !b.signedIn {
		return nil
	}
	b.Who = r.who.By("").Name
	health := u.Engine.Health(r.ctx)
	b.Ready, b.Degraded = health.Ready, health.Degraded
	project, err := u.Store.Project(r.ctx, r.who.Project)
	if err != nil {
		return err
	}
	b.Project = &project
	if live {
		b.Live = Root + "/live?page=" + url.QueryEscape(r.url.RequestURI())
	}
	if r.who.Root() && !r.live {
		b.Others, err = u.Store.Projects(r.ctx, "", maxProjects)
		if err != nil {
			return err
		}
	}
	return nil
}

// maxProjects is how many projects one can choose from; of more, the others are found by their address.
const maxProjects = 100

// T returns a text of the catalogue in the viewer's language.
func (b *base) T(key string, params ...any) string { return b.lang.text(key, params...) }

// Or is T for a key whose last part comes from data: where there is no text of it, the word itself.
func (b *base) Or(prefix, word string) string {
	if key := prefix + word; b.lang.has(key) {
		return b.lang.text(key)
	}
	return word
}

// Says whether there is a text of the key.
func (b *base) Has(key string) bool { return b.lang.has(key) }

// N writes a whole number.
func (b *base) N(n any) string { return b.lang.value(n) }

// Lang is the language as HTML names it.
func (b *base) Lang() string { return b.lang.code }

// Languages are those that can be chosen.
func (b *base) Languages() []option {
	var all []option
	for _, l := range b.ui.languages {
		all = append(all, option{Value: l.code, Text: l.name, Data: true, Chosen: l == b.lang})
	}
	return all
}

// Themes are the colours that can be chosen.
func (b *base) Themes() []option {
	return choose(b, "theme.", b.r.theme, "auto", "light", "dark")
}

// Theme is the colours that were chosen.
func (b *base) Theme() string { return b.r.theme }

// Zone is the name of the viewer's time zone, ZoneChosen whether somebody or something has chosen it.
func (b *base) Zone() string { return b.zone.name }

// ZoneChosen says whether the browser has said where it is.
func (b *base) ZoneChosen() bool { return b.r.http == nil || b.ui.cookie(b.r.http, zoneCookie) != "" }

// ZoneCookie is the name of the cookie in which the script notes the browser's zone.
func (b *base) ZoneCookie() string { return b.ui.cookieName(zoneCookie) }

// Here is the page's own address, for forms that come back to it.
func (b *base) Here() string {
	if b.r.http != nil && b.r.http.Method != http.MethodGet {
		return Root + "/"
	}
	return b.r.url.RequestURI()
}

// Asset returns the address of a static file.
func (b *base) Asset(name string) string { return b.ui.assets.names[name] }

// Version is the program's.
func (b *base) Version() string { return b.ui.Version }

// Now is the clock's time, in Unix milliseconds.
func (b *base) Now() int64 { return b.now }

// Can says whether the viewer's key has a scope: what it may not do is not offered.
func (b *base) Can(scope string) bool { return b.signedIn && b.r.who.Allows(store.Scope(scope)) }

// ProjectID is the project that the page is about. Forms send it along, so that what is asked for in one
// project is not done in another which the viewer has switched to meanwhile.
func (b *base) ProjectID() string { return b.r.who.Project }

// Root says whether the viewer holds the settings' admin key.
func (b *base) Root() bool { return b.signedIn && b.r.who.Root() }

// PausedNow says whether all that the project sends is held.
func (b *base) PausedNow() bool { return b.Project != nil && b.Project.PausedUntil > b.now }

// Forever says whether a pause ends only when somebody ends it.
func (b *base) Forever(until int64) bool { return until >= store.Forever }

// A menuEntry is one page in the menu.
type menuEntry struct {
	Name, Path string
	Current    bool
}

// Menu is the pages that there are.
func (b *base) Menu() []menuEntry {
	var menu []menuEntry
	for _, name := range []string{"overview", "callbacks", "dead", "endpoints", "lanes", "polls", "schedules",
		"redrives", "books", "audit", "system"} {
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

// Region begins a part of a page that is kept up to date while the page is open, and EndRegion ends it.
// Regions do not stand in each other.
func (b *base) Region(name string) template.HTML {
	return template.HTML(regionBegin + name + `">`)
}

// EndRegion ends a region.
func (b *base) EndRegion() template.HTML { return regionEnd }

const (
	regionBegin = `<div data-region="`
	regionEnd   = `</div><!--/region-->`
)

// regions cuts the regions out of a page.
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

// Link makes an address of ours with parameters: pairs of a name and a value. Those whose value is empty are
// left out.
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

// With returns the page's own address with parameters changed: pairs of a name and a value; an empty value
// takes one away. The place in the list is forgotten.
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

// A named is a value with its name.
type named struct{ Name, Value string }
