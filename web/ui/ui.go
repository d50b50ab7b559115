// Package ui is the HTML face of the dispatcher: the pages by which people see what is stuck, why, since
// when, and act on it.
//
// A page is a handler that fills a typed struct, and a template of the same name; a page is rendered into a
// buffer before its first byte is written, so that an error never leaves half a page. Every text stands in a
// catalogue (texts/), in English and Chinese. An act is a form with a page of its own that says what will
// happen; scripts only show it in a dialog, and nothing needs scripts. A page that is open is kept up to date
// by rendering it again on the server, once for all who look at the same (live.go).
//
// It guarantees that nothing of what senders, receivers and operators write is taken for markup; that every
// page and act asks for a session whose key is valid at that moment and has the scope that the table of
// routes names; that a request from another site changes nothing; and that what leaves allows no inline
// script or style. It decides nothing about callbacks, knows no SQL and no index, and answers no JSON.
package ui

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// RequestIDHeader is the response header that carries the request's id, set by whatever stands in front.
const RequestIDHeader = "X-Request-Id"

// Options are what the pages are made of. The engine, the store and the key are required.
type Options struct {
	Engine Engine
	Store  Store

	// AdminKey is the settings' key: it may do everything, in every project.
	AdminKey string
	// Guesses slows the guessing of keys down; nil: one of the pages' own.
	Guesses *query.Guesses
	// PublicURL is the address by which browsers come, for the cookie to be kept to https; empty: what each
	// request says.
	PublicURL string
	// Version is the program's.
	Version string
	// Logger gets the errors that pages may not show; nil: they are not logged.
	Logger *slog.Logger
	// Timeout bounds one request; zero: 15 s. IdleTimeout signs out who does nothing; zero: 30 minutes.
	// Lifetime signs out in any case; zero: 12 hours.
	Timeout, IdleTimeout, Lifetime time.Duration
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

// New returns the pages, or what the options lack. It reads every template and catalogue, so that a missing
// one is found at the start.
func New(o Options) (*UI, error) {
	k, err := readKit()
	if err != nil {
		return nil, err
	}
	return newUI(o, k)
}

// complete fills in what the zero values mean, or says what is missing.
func (o *Options) complete() error {
	if o.Engine == nil || o.Store == nil || o.AdminKey == "" {
		return errors.New("the pages need an engine, a store and an admin key")
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

// A kit is what all pages are made from: catalogues, templates and static files, which do not depend on who
// makes them.
type kit struct {
	languages languages
	templates templates
	assets    assets
}

// readKit reads what is embedded in the program.
func readKit() (k kit, err error) {
	k.languages, err = readLanguages(textFiles)
	if err != nil {
		return k, err
	}
	k.assets, err = readAssets()
	if err != nil {
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

// Close ends the streams of all open pages; each page comes back by itself, to another process where this one
// is about to end.
func (u *UI) Close() { u.hub.close() }

// now is the clock's time.
func (u *UI) now() int64 { return u.Engine.Now() }
