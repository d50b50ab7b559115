// Package ui serves the admin UI: HTML pages that show which callbacks are stuck and why. Operators act on
// callbacks there.
//
// A page is a handler that fills a typed struct and a template that renders the struct. The server renders a
// page into a buffer before it writes the first byte, so an error never leaves half a page. All texts are in
// the catalogues (texts/), in English and Chinese. An act has a form on a page of its own, which says what
// the act will do. The script may show the form in a dialog, but every page works without scripts. The server
// rerenders an open page once for all browsers that show the same one (live.go).
//
// The package guarantees:
//   - Texts of senders, receivers and operators never become markup.
//   - Every page and act requires a session whose key is valid now and has the scope in the route table.
//   - A request from another site changes nothing.
//   - The content security policy allows no inline script or style.
//
// The package makes no decision about callbacks. It knows no SQL and no index, and returns no JSON.
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
	"github.com/seed-ff5a32d8/dispatcher/web/signin"
)

// RequestIDHeader is the response header that carries the request's id. The middleware of package web sets
// it.
const RequestIDHeader = "X-Request-Id"

// Options configure the pages. Engine, Store and AdminKey are required.
type Options struct {
	Engine Engine
	Store  Store

	// AdminKey is the admin key of the settings. It has every scope in every project.
	AdminKey string
	// Guesses limits the rate at which keys can be guessed. Nil creates a limiter for the pages alone.
	Guesses *query.Guesses
	// Merchants limits what merchants do with their links. Nil creates limits for the pages alone.
	Merchants *query.MerchantLimits
	// PublicURL is the URL that browsers use. If it is https, all cookies are Secure. If it is empty, cookies
	// are not Secure.
	PublicURL string
	// SignIn is the identity provider of people, and Grants what the members of its groups may do. Nil: the
	// pages accept keys only.
	SignIn *signin.Provider
	Grants []signin.Grant
	// ApprovalAbove is the most callbacks of a bulk action that starts without an approval. Zero: any number.
	ApprovalAbove int
	// Version is the program's version.
	Version string
	// Logger gets the errors that pages must not show. Nil discards them.
	Logger *slog.Logger
	// Timeout bounds one request; zero means 15 s. IdleTimeout ends an idle session; zero means 30 minutes.
	// Lifetime ends every session; zero means 12 hours.
	Timeout, IdleTimeout, Lifetime time.Duration
}

// A UI serves every path under /ui.
type UI struct {
	Options
	keyHash [sha256.Size]byte
	// https is true if browsers use https, by PublicURL.
	https bool
	resources
	sessions *scs.SessionManager
	origin   *http.CrossOriginProtection
	routes   []Route
	hub      *hub
}

// New returns a UI. It returns an error if a required option is missing. It parses every template and
// catalogue, so a broken one fails the start and not a request.
func New(o Options) (*UI, error) {
	k, err := readResources()
	if err != nil {
		return nil, err
	}
	return newUI(o, k)
}

// complete sets the defaults. It returns an error if a required option is missing.
func (o *Options) complete() error {
	if o.Engine == nil || o.Store == nil || o.AdminKey == "" {
		return errors.New("the pages need an engine, a store and an admin key")
	}
	if o.Guesses == nil {
		o.Guesses = new(query.Guesses)
	}
	if o.Merchants == nil {
		o.Merchants = query.NewMerchantLimits()
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

// resources are the parts that all UIs share: catalogues, templates and static files. They are read-only.
type resources struct {
	languages languages
	templates templates
	assets    assets
}

// readResources parses the embedded files.
func readResources() (k resources, err error) {
	k.languages, err = embeddedLanguages()
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

// newUI returns a UI with parsed resources, which tests share.
func newUI(o Options, k resources) (*UI, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	u := &UI{
		Options: o, resources: k, keyHash: sha256.Sum256([]byte(o.AdminKey)), https: query.HTTPS(o.PublicURL),
		origin: http.NewCrossOriginProtection(),
	}
	if public, err := url.Parse(o.PublicURL); err == nil && public.Host != "" {
		// A proxy may change the Host header. Then the forms of these pages have this origin.
		if err := u.origin.AddTrustedOrigin(public.Scheme + "://" + public.Host); err != nil {
			return nil, fmt.Errorf("public_url: %w", err)
		}
	}
	u.routes = u.table()
	u.sessions = u.newSessions()
	u.hub = newHub(u.Logger)
	return u, nil
}

// Close ends the streams of all open pages. Each browser reconnects, during a shutdown to another process.
func (u *UI) Close() { u.hub.close() }

// now returns the index's clock in Unix milliseconds.
func (u *UI) now() int64 { return u.Engine.Now() }
