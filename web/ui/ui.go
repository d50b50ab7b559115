package ui

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// RequestIDHeader is the response header that carries the request's id, set by whatever stands in front.
const RequestIDHeader = "X-Request-Id"

// Clock is what every page asks of the engine.
type Clock interface {
	// Now is the clock that decides what is due, in Unix milliseconds.
	Now() int64
	Health(ctx context.Context) dispatch.Health
}

// Options are what the pages are made of. Every part and the key are required; each part stands with the page that asks for it.
type Options struct {
	Clock        Clock
	Sessions     Sessions
	Keys         Keys
	Projects     Projects
	Overview     Overview
	Callbacks    Callbacks
	CallbackActs CallbackActs
	Endpoints    Endpoints
	EndpointActs EndpointActs
	Lanes        Lanes
	Polls        Polls
	Schedules    Schedules
	ScheduleActs ScheduleActs
	Redrives     Redrives
	RedriveActs  RedriveActs
	Dead         Dead
	Books        Books
	Audit        Audit
	Index        Index
	System       System
	Schema       Schema

	// AdminKey is the settings' key: it may do everything, in every project.
	AdminKey string
	// Guesses slows down who tries keys; nil: one of the pages' own.
	Guesses *query.Guesses
	// PublicURL is the address by which browsers come, for the cookie to be kept to https; empty: what each request says.
	PublicURL string
	// Version is the program's.
	Version string
	// Logger gets the errors that pages may not show; nil: they are not logged.
	Logger *slog.Logger
	// Timeout bounds one request; zero: 15 s. IdleTimeout signs out who does nothing; zero: 30 minutes. Lifetime signs out in any
	// case; zero: 12 hours.
	Timeout, IdleTimeout, Lifetime time.Duration
}

// missing names the parts that are not there.
func (o *Options) missing() (names []string) {
	for _, part := range []struct {
		name  string
		there bool
	}{
		{"Clock", o.Clock != nil}, {"Sessions", o.Sessions != nil}, {"Keys", o.Keys != nil}, {"Projects", o.Projects != nil},
		{"Overview", o.Overview != nil}, {"Callbacks", o.Callbacks != nil}, {"CallbackActs", o.CallbackActs != nil},
		{"Endpoints", o.Endpoints != nil}, {"EndpointActs", o.EndpointActs != nil}, {"Lanes", o.Lanes != nil}, {"Polls", o.Polls != nil},
		{"Schedules", o.Schedules != nil}, {"ScheduleActs", o.ScheduleActs != nil}, {"Redrives", o.Redrives != nil}, {"RedriveActs", o.RedriveActs != nil},
		{"Dead", o.Dead != nil}, {"Books", o.Books != nil}, {"Audit", o.Audit != nil}, {"Index", o.Index != nil}, {"System", o.System != nil},
		{"Schema", o.Schema != nil},
	} {
		if !part.there {
			names = append(names, part.name)
		}
	}
	return names
}

// A UI answers everything under /ui.
type UI struct {
	Options
	keyHash [sha256.Size]byte
	// https: browsers come over https.
	https bool
	kit
	sessions *scs.SessionManager
	origin   *http.CrossOriginProtection
	routes   []Route
	hub      *hub
}

// New returns the pages, or what the options lack. It reads every template and catalogue, so that a missing one is found at the start.
func New(o Options) (*UI, error) {
	k, err := readKit()
	if err != nil {
		return nil, err
	}
	return newUI(o, k)
}

// complete fills in what the zero values mean, or says what is missing.
func (o *Options) complete() error {
	if names := o.missing(); len(names) > 0 {
		return fmt.Errorf("the pages need %s", strings.Join(names, ", "))
	}
	if o.AdminKey == "" {
		return errors.New("the pages need an admin key")
	}
	if o.Guesses == nil {
		o.Guesses = new(query.Guesses)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Second
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = 30 * time.Minute
	}
	if o.Lifetime <= 0 {
		o.Lifetime = 12 * time.Hour
	}
	return nil
}

// A kit is what all pages are made from: catalogues, templates and static files, which do not depend on who makes them.
type kit struct {
	languages languages
	templates templates
	assets    assets
}

// readKit reads what is embedded in the program.
func readKit() (k kit, err error) {
	if k.languages, err = readLanguages(textFiles); err != nil {
		return k, err
	}
	if k.assets, err = readAssets(); err != nil {
		return k, err
	}
	k.templates, err = readTemplates(templateFiles)
	return k, err
}

func newUI(o Options, k kit) (*UI, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	u := &UI{
		Options: o, kit: k, keyHash: sha256.Sum256([]byte(o.AdminKey)), https: query.HTTPS(o.PublicURL),
		origin: http.NewCrossOriginProtection(),
	}
	if public, err := url.Parse(o.PublicURL); err == nil && public.Host != "" {
		// Behind a proxy that passes another Host on, this is where our own forms come from.
		if err := u.origin.AddTrustedOrigin(public.Scheme + "://" + public.Host); err != nil {
			return nil, fmt.Errorf("public_url: %w", err)
		}
	}
	u.routes = u.table()
	u.sessions = u.newSessions()
	u.hub = newHub(u.Logger)
	return u, nil
}

// Close ends the streams of all open pages; each page comes back by itself, to another process where this one is about to end.
func (u *UI) Close() { u.hub.close() }

// now is the clock's time.
func (u *UI) now() int64 { return u.Clock.Now() }

// A viewer is who looks, as the session's key says.
type viewer struct {
	project string
	// key is nil for the settings' admin key.
	key *store.Key
}

// root says whether the viewer holds the settings' admin key.
func (v viewer) root() bool { return v.key == nil }

// allows says whether the viewer's key has a scope.
func (v viewer) allows(s store.Scope) bool { return v.key == nil || v.key.Allows(s) }

// by returns the viewer as the audit names it, as the API does.
func (v viewer) by(reason string) store.Actor {
	if v.key == nil {
		return store.Actor{Name: "admin key", Reason: reason}
	}
	return store.Actor{Name: fmt.Sprintf("%s (%s%s)", v.key.Name, store.KeyPrefix, v.key.ID), Reason: reason}
}
